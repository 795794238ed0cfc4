#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

class MapTest : public testing::TestWithParam<program::v1::DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, MapTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

// relu(x * scale + y) > 0 ? x : tanh(y), in one go and step by step: every step rounds to its type.
TEST_P(MapTest, GivesTheBitsOfItsSteps) {
  for (const Dims& dims : {Dims{3, 5000}, Dims{40, 64}, Dims{}, Dims{2, 3, 7}}) {
    TestIpu ipu;
    const Dims row = dims.empty() ? Dims{} : Dims{dims.back()};
    const uint32_t x = ipu.Add(GetParam(), dims, Random(dims, 1)),
                   y = ipu.Add(GetParam(), dims, Random(dims, 2)),
                   scale = ipu.Add(GetParam(), row, Random(row, 3)),
                   zero = ipu.Add(GetParam(), {}, {0});
    const uint32_t product = ipu.Add(GetParam(), dims), sum = ipu.Add(GetParam(), dims),
                   relu = ipu.Add(GetParam(), dims), tanh = ipu.Add(GetParam(), dims),
                   expected = ipu.Add(GetParam(), dims), output = ipu.Add(GetParam(), dims),
                   positive = ipu.Add(BOOL, dims);
    const auto run = [&](const char* op, std::vector<uint32_t> inputs, uint32_t result) {
      std::string text = op;
      for (uint32_t input : inputs) absl::StrAppend(&text, " inputs:", input);
      ipu.Run(absl::StrCat(text, " outputs:", result));
    };
    run("binary{operator:MULTIPLY}", {x, scale}, product);
    run("binary{operator:ADD}", {product, y}, sum);
    run("unary{operator:RELU}", {sum}, relu);
    run("binary{operator:GREATER}", {relu, zero}, positive);
    run("unary{operator:TANH}", {y}, tanh);
    run("select{}", {positive, x, tanh}, expected);
    run("map{steps{binary{operator:MULTIPLY} inputs:0 inputs:1}"
        "    steps{binary{operator:ADD} inputs:4 inputs:2}"
        "    steps{unary{operator:RELU} inputs:5}"
        "    steps{binary{operator:GREATER} inputs:6 inputs:3}"
        "    steps{unary{operator:TANH} inputs:2}"
        "    steps{select{} inputs:7 inputs:0 inputs:8}}",
        {x, scale, y, zero}, output);
    EXPECT_EQ(ipu.Read(output), ipu.Read(expected));
  }
}

// Values of several types, in any layout.
TEST_P(MapTest, TakesTypesAndStridesAsTheyCome) {
  TestIpu ipu;
  const Dims dims = {2, 3};
  const uint32_t x = ipu.Add(GetParam(), dims, {1.25, -2, 3, 4, -5, 6}, false, {1, 2}),
                 n = ipu.Add(INT32, {3}, {1, 2, 3}),
                 output = ipu.Add(INT32, dims, {}, false, {4, 1});
  ipu.Run(
      absl::StrCat("map{steps{cast{type:INT32} inputs:0}"
                   "    steps{binary{operator:MULTIPLY} inputs:2 inputs:1}}"
                   " inputs:[",
                   x, ",", n, "] outputs:", output));
  EXPECT_EQ(ipu.Read(output), (Values{1, -4, 9, 4, -10, 18}));
}

// Operands without dimensions go with every element of a step, and of a step of them alone.
TEST(MapRulesTest, SpreadsWhatIsComputedOfScalars) {
  TestIpu ipu;
  const uint32_t a = ipu.Add(FLOAT32, {}, {3}), x = ipu.Add(FLOAT32, {4}, {1, 2, 3, 4}),
                 output = ipu.Add(FLOAT32, {4});
  ipu.Run(
      absl::StrCat("map{steps{unary{operator:SQUARE} inputs:0}"
                   "    steps{binary{operator:SUBTRACT} inputs:1 inputs:2}}"
                   " inputs:[",
                   a, ",", x, "] outputs:", output));
  EXPECT_EQ(ipu.Read(output), (Values{-8, -7, -6, -5}));
}

TEST(MapRulesTest, RefusesStepsThatDoNotFit) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, {4}, {1, 2, 3, 4}), y = ipu.Add(FLOAT32, {4});
  const auto error = [&](const std::string& map) {
    return std::string(
        ipu.TryRun(absl::StrCat("map{", map, "} inputs:", x, " outputs:", y)).message());
  };
  const std::string negate = "steps{unary{operator:NEGATE} inputs:0}";
  EXPECT_THAT(error(""), testing::HasSubstr("a map has 1 to 32 steps, not 0"));
  std::string many;
  for (int i = 0; i < 33; ++i)
    absl::StrAppend(&many, "steps{unary{operator:NEGATE} inputs:", i, "}");
  EXPECT_THAT(error(many), testing::HasSubstr("a map has 1 to 32 steps, not 33"));
  EXPECT_THAT(error("steps{unary{operator:NEGATE} inputs:1}"),
              testing::HasSubstr("value 1 does not exist yet"));
  EXPECT_THAT(error(negate + negate), testing::HasSubstr("no step reads value 1"));
  EXPECT_THAT(error("steps{reduce{operator:SUM} inputs:0}"),
              testing::HasSubstr("reduce is not done element by element"));
  EXPECT_THAT(error("steps{map{" + negate + "} inputs:0}"),
              testing::HasSubstr("map is not done element by element"));
  EXPECT_THAT(error("steps{unary{operator:NEGATE} inputs:0 outputs:1}"),
              testing::HasSubstr("steps of a map have no outputs"));
  EXPECT_THAT(error("steps{unary{operator:LOGICAL_NOT} inputs:0}"),
              testing::HasSubstr("LOGICAL_NOT does not take float32[4]"));
}

}  // namespace
}  // namespace vpod::engine
