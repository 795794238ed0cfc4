#include "device/engine/kernels/epilogue.h"

#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

constexpr char kConvolution[] =
    "convolution{groups:1 pass:FORWARD window{kernel:[3,3] stride:[1,1] dilation:[1,1] "
    "pad_before:[1,1] "
    "pad_after:[1,1]}}";
const Dims kImage = {5, 16, 30, 30}, kResult = {5, 24, 30, 30}, kWeights = {24, 16, 3, 3};

// A convolution and the normalisation of its result, with an addend and RELU.
struct Pair {
  TestIpu ipu;
  uint32_t image, weights, result, addend, normalized;
  std::vector<uint32_t> vectors;
  Instruction convolution, normalization;

  // `normalized_at`: a tensor in whose place the normalised result lies; -1: in its own.
  explicit Pair(program::v1::DataType type, int normalized_at = -1) {
    image = ipu.AddImage(type, kImage, Random(kImage, 1));
    weights = ipu.Add(type, kWeights, Random(kWeights, 2, -0.2, 0.2));
    result = ipu.AddImage(type, kResult);
    addend = ipu.AddImage(type, kResult, Random(kResult, 3));
    for (uint32_t seed = 4; seed < 8; ++seed)
      vectors.push_back(ipu.Add(FLOAT32, {24}, Random({24}, seed, 0.5, 2)));
    normalized = normalized_at < 0 ? ipu.AddImage(type, kResult) : result;
    Parse(absl::StrCat(kConvolution, " inputs:[", image, ",", weights, "] outputs:", result),
          convolution);
    Parse(absl::StrCat("batch_norm_inference{epsilon:0.1 add:true activation:RELU} inputs:[",
                       result, ",", vectors[0], ",", vectors[1], ",", vectors[2], ",", vectors[3],
                       ",", addend, "] outputs:", normalized),
          normalization);
  }
  static void Parse(const std::string& text, Instruction& instruction) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &instruction)) << text;
  }
  Kernel Prepare(const Instruction& instruction) const {
    auto kernel = PrepareKernel(ipu.proto(), instruction);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return *std::move(kernel);
  }
  bool CanAttach() const {
    return CanBeEpilogue(ipu.proto(), convolution, Prepare(convolution), normalization,
                         Prepare(normalization));
  }
  Values Run(bool attach) {
    Kernel first = Prepare(convolution), second = Prepare(normalization);
    if (attach) {
      AttachEpilogue(first, second);
    }
    EXPECT_TRUE(RunPhases(first, ipu.Arena()).ok());
    if (!attach) {
      EXPECT_TRUE(RunPhases(second, ipu.Arena()).ok());
    }
    return ipu.Read(normalized);
  }
};

class EpilogueTest : public testing::TestWithParam<program::v1::DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, EpilogueTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

TEST_P(EpilogueTest, ChangeNoBit) {
  for (const int place : {-1, 0}) {
    ASSERT_TRUE(Pair(GetParam(), place).CanAttach());
    EXPECT_EQ(Pair(GetParam(), place).Run(true), Pair(GetParam(), place).Run(false));
  }
}

TEST_P(EpilogueTest, ChunksHaveAllRowsOnce) {
  const Pair pair(GetParam());
  const Kernel kernel = pair.Prepare(pair.convolution);
  std::vector<int> seen(5 * 30 * 30);
  EXPECT_GT(kernel.phases.back().chunks, 1u);
  for (size_t chunk = 0; chunk < kernel.phases.back().chunks; ++chunk) {
    const Rows rows = kernel.rows_of_chunk(chunk);
    for (size_t i = 0; i < rows.count; ++i) ++seen.at(rows.first + i);
  }
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

// An epilogue must not write what other chunks still read, nor read rows that come later.
TEST_P(EpilogueTest, MemoryThatIsStillReadForbidsIt) {
  Pair pair(GetParam());
  const auto can_attach = [&](const program::v1::Ipu& ipu) {
    return CanBeEpilogue(ipu, pair.convolution, pair.Prepare(pair.convolution), pair.normalization,
                         pair.Prepare(pair.normalization));
  };
  ASSERT_TRUE(can_attach(pair.ipu.proto()));
  const auto with = [&](uint32_t tensor, uint32_t lies_at) {
    program::v1::Ipu changed = pair.ipu.proto();
    changed.mutable_tensors(static_cast<int>(tensor))
        ->set_offset(changed.tensors(static_cast<int>(lies_at)).offset());
    return changed;
  };
  EXPECT_FALSE(can_attach(with(pair.normalized, pair.image)));
  EXPECT_FALSE(can_attach(with(pair.normalized, pair.weights)));
  EXPECT_FALSE(can_attach(with(pair.addend, pair.result)));
  program::v1::Ipu shifted = pair.ipu.proto();
  shifted.mutable_tensors(static_cast<int>(pair.normalized))
      ->set_offset(shifted.tensors(static_cast<int>(pair.result)).offset() + 64);
  EXPECT_FALSE(can_attach(shifted));
  EXPECT_TRUE(can_attach(with(pair.normalized, pair.result)));
  EXPECT_TRUE(can_attach(with(pair.normalized, pair.addend)));
}

TEST_P(EpilogueTest, SeedsOfRoundingAreRead) {
  Pair pair(GetParam());
  const Kernel first = pair.Prepare(pair.convolution), second = pair.Prepare(pair.normalization);
  const auto can_attach = [&] {
    return CanBeEpilogue(pair.ipu.proto(), pair.convolution, first, pair.normalization, second);
  };
  auto* rounding = pair.convolution.mutable_rounding();
  rounding->set_seed(pair.addend);
  rounding->set_counter(pair.addend);
  EXPECT_TRUE(can_attach());
  rounding->set_counter(pair.normalized);
  EXPECT_FALSE(can_attach());
  pair.convolution.clear_rounding();
  pair.normalization.mutable_rounding()->set_seed(pair.result);
  EXPECT_FALSE(can_attach());
}

TEST_P(EpilogueTest, OtherInstructionsAreNoEpilogues) {
  Pair pair(GetParam());
  pair.normalization.set_inputs(0, pair.addend);
  EXPECT_FALSE(pair.CanAttach());
}

}  // namespace
}  // namespace vpod::engine
