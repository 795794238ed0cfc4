#include <thread>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

class MatMulTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, MatMulTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

struct Case {
  int64_t m, k, n;
  bool transpose_a, transpose_b;

  Dims a() const { return transpose_a ? Dims{k, m} : Dims{m, k}; }
  Dims b() const { return transpose_b ? Dims{n, k} : Dims{k, n}; }
  std::string Text(uint32_t a, uint32_t b, uint32_t output) const {
    return absl::StrCat("mat_mul{transpose_a:", transpose_a, " transpose_b:", transpose_b,
                        "} inputs:", a, " inputs:", b, " outputs:", output);
  }
  Values Reference(const Values& a, const Values& b) const {
    Values result(m * n);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t l = 0; l < k; ++l) {
          result[i * n + j] +=
              a[transpose_a ? l * m + i : i * k + l] * b[transpose_b ? j * k + l : l * n + j];
        }
      }
    }
    return result;
  }
};

template <class Check>
void ForCases(const Check& check) {
  // Blocks of the last ones are copied because of their strides.
  const int64_t sizes[][3] = {{1, 1, 1},   {1, 5, 1},   {4, 1, 6},     {1, 7, 9},    {9, 7, 1},
                              {2, 3, 4},   {5, 5, 5},   {16, 16, 16},  {17, 33, 9},  {64, 48, 10},
                              {3, 300, 2}, {40, 2, 50}, {40, 36, 512}, {512, 36, 40}};
  for (const auto& size : sizes) {
    for (int transposed = 0; transposed < 4; ++transposed) {
      const Case one{size[0], size[1], size[2], (transposed & 1) != 0, (transposed & 2) != 0};
      SCOPED_TRACE(one.Text(0, 1, 2) + absl::StrCat(" ", one.m, "x", one.k, "x", one.n));
      check(one);
    }
  }
}

// Whole numbers leave no room for rounding: every product must be the right one.
TEST_P(MatMulTest, ExactForWholeNumbers) {
  ForCases([&](const Case& one) {
    TestIpu ipu;
    const Values a = RandomIntegers(one.a(), 1), b = RandomIntegers(one.b(), 2);
    const uint32_t x = ipu.Add(GetParam(), one.a(), a), y = ipu.Add(GetParam(), one.b(), b);
    const uint32_t z = ipu.Add(GetParam(), {one.m, one.n});
    ipu.Run(one.Text(x, y, z));
    ExpectRounded(ipu.Read(z), one.Reference(a, b), GetParam());
  });
}

TEST_P(MatMulTest, CloseForFractions) {
  ForCases([&](const Case& one) {
    TestIpu ipu;
    const uint32_t x = ipu.Add(GetParam(), one.a(), Random(one.a(), 3));
    const uint32_t y = ipu.Add(GetParam(), one.b(), Random(one.b(), 4));
    const uint32_t z = ipu.Add(GetParam(), {one.m, one.n});
    ipu.Run(one.Text(x, y, z));
    // Each of k additions may lose half a unit of the largest partial sum.
    ExpectClose(ipu.Read(z), one.Reference(ipu.Read(x), ipu.Read(y)), GetParam(), 1e-6,
                4e-7 * static_cast<double>(one.k));
  });
}

// Several products, of which small ones share a chunk, and large ones are cut.
TEST_P(MatMulTest, ManyProducts) {
  for (const auto& [products, one] : {std::pair(Dims{3}, Case{2, 3, 4, false, false}),
                                      {Dims{2, 5}, Case{7, 5, 3, true, false}},
                                      {Dims{300}, Case{40, 30, 20, false, true}},
                                      {Dims{2}, Case{160, 260, 300, true, true}},
                                      {Dims{2}, Case{512, 65, 1024, true, false}},
                                      {Dims{1, 2}, Case{1, 70000, 1, false, false}}}) {
    SCOPED_TRACE(absl::StrCat(one.m, "x", one.k, "x", one.n));
    const auto with = [&](Dims dims) {
      dims.insert(dims.begin(), products.begin(), products.end());
      return dims;
    };
    TestIpu ipu;
    const Values a = RandomIntegers(with(one.a()), 1), b = RandomIntegers(with(one.b()), 2);
    const uint32_t x = ipu.Add(GetParam(), with(one.a()), a),
                   y = ipu.Add(GetParam(), with(one.b()), b);
    const uint32_t z = ipu.Add(GetParam(), with({one.m, one.n}));
    ipu.Run(one.Text(x, y, z));
    Values expected;
    for (auto left = a.begin(), right = b.begin(); left != a.end();
         left += one.m * one.k, right += one.k * one.n) {
      const Values product =
          one.Reference({left, left + one.m * one.k}, {right, right + one.k * one.n});
      expected.insert(expected.end(), product.begin(), product.end());
    }
    ExpectRounded(ipu.Read(z), expected, GetParam());
  }
}

TEST(HalfMatMulTest, PartialSumsAreNotRoundedToHalf) {
  // 4096 ones: in float16 the sum would stop at 2048.
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT16, {1, 4096}, Values(4096, 1));
  const uint32_t y = ipu.Add(FLOAT16, {4096, 1}, Values(4096, 1));
  const uint32_t z = ipu.Add(FLOAT16, {1, 1});
  ipu.Run(Case{1, 4096, 1, false, false}.Text(x, y, z));
  EXPECT_EQ(ipu.Read(z), Values{4096});
}

TEST_P(MatMulTest, BothOperandsMayBeTheSameTensor) {
  const Case square{6, 6, 6, true, false};
  TestIpu ipu;
  const Values a = RandomIntegers({6, 6}, 5);
  const uint32_t x = ipu.Add(GetParam(), {6, 6}, a), z = ipu.Add(GetParam(), {6, 6});
  ipu.Run(square.Text(x, x, z));
  EXPECT_EQ(ipu.Read(z), square.Reference(a, a));
}

// A prepared kernel serves all replicas at once; the bits are the same on every thread.
TEST_P(MatMulTest, OneKernelOnManyThreads) {
  const Case one{33, 65, 17, false, true};
  TestIpu ipu;
  const uint32_t x = ipu.Add(GetParam(), one.a(), Random(one.a(), 6));
  const uint32_t y = ipu.Add(GetParam(), one.b(), Random(one.b(), 7));
  const uint32_t z = ipu.Add(GetParam(), {one.m, one.n});
  program::v1::Instruction instruction;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(one.Text(x, y, z), &instruction));
  const auto kernel = PrepareKernel(ipu.proto(), instruction);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  std::vector<TestIpu> replicas(4, ipu);
  std::vector<std::thread> threads;
  for (TestIpu& replica : replicas) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(RunPhases(*kernel, replica.Arena()).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ipu.Run(one.Text(x, y, z));
  for (TestIpu& replica : replicas) EXPECT_EQ(replica.Bytes(), ipu.Bytes());
}

}  // namespace
}  // namespace vpod::engine
