#include <algorithm>
#include <array>

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;
using Distribution = program::v1::Random;  // its values are named in the message

using Block = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

// Philox 4x32-10 as its paper has it (Salmon et al., 2011), a block at a time.
Block Philox(Block counter, Key key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

// The inputs that decide about the elements of a random tensor.
struct Source {
  Key seed{};
  uint32_t number = 0, counter = 0, stream = 0;
};

Values Draw(program::v1::Random::Distribution distribution, DataType type, const Dims& dims,
            const Source& source) {
  TestIpu ipu;
  const auto scalar = [&](uint32_t value) {
    return ipu.Add(UINT32, {}, {static_cast<double>(value)});
  };
  const uint32_t seed = ipu.Add(
      UINT32, {2}, {static_cast<double>(source.seed[0]), static_cast<double>(source.seed[1])});
  std::string text =
      absl::StrCat("random{distribution:", program::v1::Random::Distribution_Name(distribution),
                   " type:", program::v1::DataType_Name(type), " number:", source.number);
  for (int64_t dim : dims) absl::StrAppend(&text, " dims:", dim);
  const uint32_t counter = scalar(source.counter), stream = scalar(source.stream);
  const uint32_t y = ipu.Add(type, dims);
  ipu.Run(absl::StrCat(text, "} inputs:", seed, " inputs:", counter, " inputs:", stream,
                       " outputs:", y));
  return ipu.Read(y);
}

Values Bits(const Dims& dims, const Source& source) {
  return Draw(Distribution::BITS, UINT32, dims, source);
}

constexpr uint32_t kOnes = 0xFFFFFFFF;
constexpr Source kSource{{0xA4093822, 0x299F31D0}, 0x85A308D3, 0x13198A2E, 0x03707344};

// The vectors that the authors publish with their implementation (Random123, kat_vectors).
TEST(PhiloxTest, ReferenceGivesTheKnownAnswers) {
  EXPECT_EQ(Philox({}, {}), (Block{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Block{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(Philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Block{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(RandomBitsTest, OfZerosAreTheKnownAnswer) {
  EXPECT_EQ(Bits({4}, {}), (Values{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
}

// The first word of the counter is an element's place divided by 4, which never is all ones. Enough
// elements for three chunks, the last of them not full.
TEST(RandomBitsTest, AreThoseOfTheReference) {
  for (const Source& source : {kSource, Source{{kOnes, kOnes}, kOnes, kOnes, kOnes}}) {
    const Values bits = Bits({300'001}, source);
    Values expected;
    for (uint32_t block = 0; expected.size() < bits.size(); ++block) {
      for (uint32_t word :
           Philox({block, source.number, source.counter, source.stream}, source.seed))
        expected.push_back(word);
    }
    expected.resize(bits.size());
    EXPECT_TRUE(bits == expected);  // not to be printed
  }
}

TEST(RandomBitsTest, DependOnTheElementsPlaceOnly) {
  const Values all = Bits({300'001}, kSource);
  for (const Dims& dims : {Dims{},
                           {1},
                           {3},
                           {4},
                           {5},
                           {255},
                           {16, 16},
                           {257},
                           {131'072},
                           {131'073},
                           {7, 1, 20'011},
                           {2, 2, 2, 2, 2, 2, 2, 3}}) {
    SCOPED_TRACE(Describe(UINT32, dims));
    const Values bits = Bits(dims, kSource);
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), all.begin()));
  }
}

TEST(RandomBitsTest, ChangeWithEachOfTheInputs) {
  const Values before = Bits({1000}, {});
  for (const Source& source : {Source{.seed = {1, 0}}, Source{.seed = {0, 1}}, Source{.number = 1},
                               Source{.counter = 1}, Source{.stream = 1}}) {
    const Values after = Bits({1000}, source);
    int equal = 0;
    for (size_t i = 0; i < after.size(); ++i) equal += after[i] == before[i];
    EXPECT_EQ(equal, 0);
  }
}

// --- Distributions ---

class RandomFloatsTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(All, RandomFloatsTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

constexpr size_t kMany = 200'003;

double MeanOf(const Values& values, double (*function)(double)) {
  double sum = 0;
  for (double value : values) sum += function(value);
  return sum / static_cast<double>(values.size());
}

// The covariance of neighbours `distance` apart, whose mean is known.
double Covariance(const Values& values, size_t distance, double mean) {
  double sum = 0;
  for (size_t i = distance; i < values.size(); ++i)
    sum += (values[i] - mean) * (values[i - distance] - mean);
  return sum / static_cast<double>(values.size() - distance);
}

// The bounds are five standard deviations of each mean: at most 5 * sqrt(variance / kMany).
TEST_P(RandomFloatsTest, Uniform) {
  const Values values = Draw(Distribution::UNIFORM, GetParam(), {kMany}, kSource);
  // As many distinct values as the type's significand has bits, so that 1 never appears.
  const double step = GetParam() == FLOAT16 ? 0x1p-11 : 0x1p-24;
  for (double value : values) {
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    ASSERT_EQ(std::fmod(value, step), 0) << value;
  }
  if (GetParam() == FLOAT16) {
    EXPECT_EQ(*std::min_element(values.begin(), values.end()), 0);
    EXPECT_EQ(*std::max_element(values.begin(), values.end()), 1 - step);
  }
  const double mean = (1 - step) / 2;  // the lower end of each step is taken
  EXPECT_NEAR(MeanOf(values, [](double x) { return x; }), mean, 0.0033);
  EXPECT_NEAR(MeanOf(values, [](double x) { return x * x; }), 1.0 / 3 - step / 2, 0.0034);
  for (size_t distance : {1, 2, 3, 4, 256})
    EXPECT_NEAR(Covariance(values, distance, mean), 0, 1e-3);
  std::array<double, 16> bins{};
  for (double value : values) ++bins[static_cast<size_t>(value * 16)];
  const double full = kMany / 16.0;
  for (double bin : bins) EXPECT_NEAR(bin, full, 5 * std::sqrt(full));
}

TEST_P(RandomFloatsTest, Normal) {
  const Values values = Draw(Distribution::NORMAL, GetParam(), {kMany}, kSource);
  // The smallest uniform value is 2^-32: sqrt(-2 ln 2^-32) is 6.66.
  for (double value : values) ASSERT_LT(std::fabs(value), 6.67);
  EXPECT_NEAR(MeanOf(values, [](double x) { return x; }), 0, 0.0112);
  EXPECT_NEAR(MeanOf(values, [](double x) { return x * x; }), 1, 0.0159);
  EXPECT_NEAR(MeanOf(values, [](double x) { return x * x * x; }), 0, 0.0434);
  EXPECT_NEAR(MeanOf(values, [](double x) { return x * x * x * x; }), 3, 0.11);
  // Neighbours come of one radius: their squares would be coupled by a wrong one.
  for (size_t distance : {1, 2, 3, 4, 256}) EXPECT_NEAR(Covariance(values, distance, 0), 0, 0.0112);
  Values squares = values;
  for (double& value : squares) value *= value;
  EXPECT_NEAR(Covariance(squares, 1, 1), 0, 0.0224);
  EXPECT_NEAR(MeanOf(values, [](double x) { return x < 0 ? 1.0 : 0.0; }), 0.5, 0.0056);
  EXPECT_NEAR(MeanOf(values, [](double x) { return std::fabs(x) < 1 ? 1.0 : 0.0; }), 0.6826895,
              0.0053);
  EXPECT_NEAR(MeanOf(values, [](double x) { return std::fabs(x) < 2 ? 1.0 : 0.0; }), 0.9544997,
              0.0024);
}

// Box and Muller: two words make a radius and an angle.
TEST_P(RandomFloatsTest, NormalsFollowFromTheBits) {
  const Values bits = Bits({1000}, kSource);
  const Values values = Draw(Distribution::NORMAL, GetParam(), {1000}, kSource);
  Values expected(values.size());
  for (size_t i = 0; i < values.size(); i += 2) {
    const double radius = std::sqrt(-2 * std::log((bits[i] + 1) / 4294967296.0));
    const double angle = 2 * M_PI * bits[i + 1] / 4294967296.0;
    expected[i] = radius * std::cos(angle);
    expected[i + 1] = radius * std::sin(angle);
  }
  ExpectClose(values, expected, GetParam());
}

TEST_P(RandomFloatsTest, DependOnTheElementsPlaceOnly) {
  for (auto distribution : {Distribution::UNIFORM, Distribution::NORMAL}) {
    const Values all = Draw(distribution, GetParam(), {kMany}, kSource);
    for (int64_t length : {1, 2, 3, 255, 256, 257, 131'073}) {
      const Values values = Draw(distribution, GetParam(), {length}, kSource);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin())) << length;
    }
  }
}

// Float16 takes the high bits of the same words.
TEST(RandomFloatsOfBothTypesTest, AgreeToTheRounding) {
  const Values floats = Draw(Distribution::UNIFORM, FLOAT32, {1000}, kSource);
  const Values halves = Draw(Distribution::UNIFORM, FLOAT16, {1000}, kSource);
  for (size_t i = 0; i < floats.size(); ++i)
    EXPECT_EQ(halves[i], std::floor(floats[i] * 2048) / 2048);
  ExpectRounded(Draw(Distribution::NORMAL, FLOAT16, {1000}, kSource),
                Draw(Distribution::NORMAL, FLOAT32, {1000}, kSource), FLOAT16);
}

TEST(ReplicaIndexTest, IsTheWorkspaces) {
  TestIpu ipu;
  const uint32_t y = ipu.Add(UINT32, {});
  ipu.Run(absl::StrCat("replica_index{} outputs:", y));
  EXPECT_EQ(ipu.Read(y), Values{0});
  program::v1::Instruction instruction;
  instruction.mutable_replica_index();
  instruction.add_outputs(y);
  const absl::StatusOr<Kernel> kernel = PrepareKernel(ipu.proto(), instruction);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_EQ(kernel->phases.size(), 1u);
  for (uint32_t replica : {7u, kOnes}) {
    ASSERT_TRUE(kernel->phases[0].run({.arena = ipu.Arena(), .replica = replica}, 0).ok());
    EXPECT_EQ(ipu.Read(y), Values{static_cast<double>(replica)});
  }
}

}  // namespace
}  // namespace vpod::engine
