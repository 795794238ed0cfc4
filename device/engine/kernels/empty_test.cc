// Ops on tensors without elements: nothing is written, or what nothing gives.
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "device/engine/kernels/kernel_test_util.h"

namespace vpod::engine {
namespace {

using program::v1::DataType;

struct Tensor {
  Dims dims;
  DataType type = FLOAT32;  // FLOAT16 where that is tested
  Values values = {};
};

struct EmptyCase {
  const char* attributes;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;  // with the values that are expected
};

constexpr char kWindow[] =
    "window{kernel:[2,2] stride:[1,1] dilation:[1,1] pad_before:[0,0] pad_after:[0,0]}";

std::vector<EmptyCase> Cases() {
  const double nan = std::nan("");
  return {
      {"fill{value:1}", {}, {{{0, 3}}}},
      {"copy{}", {{{2, 0}}}, {{{2, 0}}}},
      {"cast{type:INT8}", {{{0}}}, {{{0}, INT8}}},
      {"unary{operator:TANH}", {{{3, 0, 2}}}, {{{3, 0, 2}}}},
      {"binary{operator:ADD}", {{{0, 3}}, {{3}, FLOAT32, {1, 2, 3}}}, {{{0, 3}}}},
      {"binary{operator:LESS}", {{{1}, FLOAT32, {1}}, {{0}}}, {{{0}, BOOL}}},
      {"select{}", {{{0}, BOOL}, {{1}, FLOAT32, {1}}, {{0}}}, {{{0}}}},
      {"map{steps{unary{operator:NEGATE} inputs:0} steps{binary{operator:ADD} inputs:[1,0]}}",
       {{{0, 4}}},
       {{{0, 4}}}},
      {"transpose{permutation:[1,0]}", {{{0, 3}}}, {{{3, 0}}}},
      {"slice{begin:[2,0] size:[0,3] step:[1,1]}",
       {{{2, 3}, FLOAT32, {1, 2, 3, 4, 5, 6}}},
       {{{0, 3}}}},
      {"expand{dims:[4,0]}", {{{1}, FLOAT32, {1}}}, {{{4, 0}}}},
      {"pad{before:[1,0] after:[0,2] value:5}", {{{0, 1}}}, {{{1, 3}, FLOAT32, {5, 5, 5}}}},
      {"concat{axis:0}",
       {{{0, 2}}, {{1, 2}, FLOAT32, {1, 2}}, {{0, 2}}},
       {{{1, 2}, FLOAT32, {1, 2}}}},
      {"dynamic_slice{axes:0 size:0}", {{{3}, FLOAT32, {1, 2, 3}}, {{1}, INT32, {3}}}, {{{0}}}},
      {"dynamic_update{axes:0}",
       {{{2}, FLOAT32, {1, 2}}, {{0}}, {{1}, INT32, {2}}},
       {{{2}, FLOAT32, {1, 2}}}},
      {"reduce{operator:SUM axes:0}", {{{0, 3}}}, {{{3}, FLOAT32, {0, 0, 0}}}},
      {"reduce{operator:SUM axes:1}", {{{0, 3}}}, {{{0}}}},
      {"reduce{operator:MEAN axes:[0,1]}", {{{4, 0}}}, {{{}, FLOAT32, {nan}}}},
      {"reduce{operator:MAX axes:1}", {{{0, 3}}}, {{{0}}}},
      {"reduce{operator:SUM axes:0}", {{{0, 2}, INT32}}, {{{2}, INT32, {0, 0}}}},
      {"arg_max{}", {{{0, 3}}}, {{{0}, INT32}}},
      {"mat_mul{}", {{{2, 0}}, {{0, 3}}}, {{{2, 3}, FLOAT32, {0, 0, 0, 0, 0, 0}}}},
      {"mat_mul{}", {{{0, 2}}, {{2, 1}, FLOAT32, {1, 2}}}, {{{0, 1}}}},
      {"mat_mul{transpose_b:true}", {{{1, 2}, FLOAT32, {1, 2}}, {{0, 2}}}, {{{1, 0}}}},
      {"convolution{pass:FORWARD groups:1 WINDOW}",
       {{{0, 1, 3, 3}}, {{2, 1, 2, 2}, FLOAT32, Values(8, 1)}},
       {{{0, 2, 2, 2}}}},
      {"convolution{pass:INPUT_GRADIENT groups:1 image_size:[3,3] WINDOW}",
       {{{0, 2, 2, 2}}, {{2, 1, 2, 2}, FLOAT32, Values(8, 1)}},
       {{{0, 1, 3, 3}}}},
      {"convolution{pass:WEIGHT_GRADIENT groups:1 WINDOW}",
       {{{0, 1, 3, 3}}, {{0, 2, 2, 2}}},
       {{{2, 1, 2, 2}, FLOAT32, Values(8, 0)}}},
      {"max_pool{WINDOW}", {{{0, 2, 3, 3}}}, {{{0, 2, 2, 2}}, {{0, 2, 2, 2}, INT32}}},
      {"max_pool_gradient{image_size:[3,3] WINDOW}",
       {{{0, 2, 2, 2}}, {{0, 2, 2, 2}, INT32}},
       {{{0, 2, 3, 3}}}},
      {"average_pool{output_size:[2,2]}", {{{0, 2, 3, 3}}}, {{{0, 2, 2, 2}}}},
      {"average_pool_gradient{image_size:[3,3]}", {{{0, 2, 2, 2}}}, {{{0, 2, 3, 3}}}},
      {"softmax_cross_entropy{}", {{{0, 3}}, {{0}, INT32}}, {{{0}}, {{0, 3}}}},
      {"softmax_cross_entropy_gradient{}", {{{0, 3}}, {{0}, INT32}, {{0}}}, {{{0, 3}}}},
      {"mat_mul{}", {{{0, 2, 3}}, {{0, 3, 1}}}, {{{0, 2, 1}}}},
      {"mat_mul{}", {{{2, 1, 0}}, {{2, 0, 1}}}, {{{2, 1, 1}, FLOAT32, {0, 0}}}},
      {"softmax{}", {{{0, 3}}}, {{{0, 3}}}},
      {"softmax_gradient{}", {{{0, 3}}, {{0, 3}}}, {{{0, 3}}}},
      {"gather{axis:1}", {{{2, 3}, FLOAT32, {1, 2, 3, 4, 5, 6}}, {{0}, INT32}}, {{{2, 0}}}},
      {"gather{}", {{{0, 3}}, {{0}, INT32}}, {{{0, 3}}}},
      {"scatter{combine:SET}",
       {{{2}, FLOAT32, {1, 2}}, {{0}, INT32}, {{0}}},
       {{{2}, FLOAT32, {1, 2}}}},
      {"iota{type:INT32 dims:[2,0] axis:0}", {}, {{{2, 0}, INT32}}},
      {"all_finite{}", {{{0}}, {{2, 0}}}, {{{}, BOOL, {1}}}},
  };
}

class EmptyOpTest : public testing::TestWithParam<DataType> {};
INSTANTIATE_TEST_SUITE_P(Types, EmptyOpTest, testing::Values(FLOAT32, FLOAT16), FloatTypeName);

TEST_P(EmptyOpTest, OfEveryOpThatTakesThem) {
  for (const EmptyCase& c : Cases()) {
    std::string text = c.attributes;
    if (const size_t at = text.find("WINDOW"); at != std::string::npos)
      text.replace(at, 6, kWindow);
    SCOPED_TRACE(text);
    TestIpu ipu;
    const auto add = [&](const Tensor& tensor, const Values& values) {
      return ipu.AddImage(tensor.type == FLOAT32 ? GetParam() : tensor.type, tensor.dims, values);
    };
    for (const Tensor& input : c.inputs)
      absl::StrAppend(&text, " inputs:", add(input, input.values));
    std::vector<uint32_t> outputs;
    for (const Tensor& output : c.outputs) {
      outputs.push_back(add(output, {}));
      absl::StrAppend(&text, " outputs:", outputs.back());
    }
    ipu.Run(text);
    for (size_t i = 0; i < outputs.size(); ++i)
      ExpectRounded(ipu.Read(outputs[i]), c.outputs[i].values, GetParam());
  }
}

TEST_P(EmptyOpTest, BatchNormWithGivenMoments) {
  TestIpu ipu;
  std::string text = "batch_norm_inference{epsilon:1}";
  absl::StrAppend(&text, " inputs:", ipu.AddImage(GetParam(), {0, 2, 3, 3}));
  for (int i = 0; i < 4; ++i) absl::StrAppend(&text, " inputs:", ipu.Add(FLOAT32, {2}, {1, 2}));
  const uint32_t y = ipu.AddImage(GetParam(), {0, 2, 3, 3});
  ipu.Run(absl::StrCat(text, " outputs:", y));
  EXPECT_EQ(ipu.Read(y), Values());
}

TEST(EmptyTest, OptimizersAndRandomValues) {
  TestIpu ipu;
  const uint32_t w = ipu.Add(FLOAT16, {0, 2}), g = ipu.Add(FLOAT32, {0, 2}),
                 hyper = ipu.Add(FLOAT32, {4}, {1, 1, 1, 0}), one = ipu.Add(FLOAT32, {}, {1}),
                 v = ipu.Add(FLOAT32, {0, 2});
  ipu.Run(absl::StrCat("sgd{} inputs:[", absl::StrJoin({w, g, hyper, one, one, v}, ","),
                       "] outputs:[", w, ",", v, "]"));
  const uint32_t seed = ipu.Add(UINT32, {2}, {1, 2}), word = ipu.Add(UINT32, {}, {1});
  ipu.Run(absl::StrCat("random{distribution:NORMAL type:FLOAT16 dims:[0,2]} inputs:[", seed, ",",
                       word, ",", word, "] outputs:", w));
}

// Slices of no elements have a place, too.
TEST(EmptyTest, AStartOutsideFails) {
  TestIpu ipu;
  const uint32_t x = ipu.Add(FLOAT32, {3}, {1, 2, 3}), start = ipu.Add(INT32, {1}, {4}),
                 y = ipu.Add(FLOAT32, {0});
  EXPECT_EQ(ipu.TryRun(absl::StrCat("dynamic_slice{axes:0 size:0} inputs:[", x, ",", start,
                                    "] outputs:", y))
                .message(),
            "start 4 on axis 0 is outside 0 to 3");
  EXPECT_EQ(ipu.TryRun(absl::StrCat("dynamic_update{axes:0} inputs:[", x, ",", y, ",", start,
                                    "] outputs:", x))
                .message(),
            "start 4 on axis 0 is outside 0 to 3");
}

}  // namespace
}  // namespace vpod::engine
