// Tests what Lower refuses, and the types and shapes that it gives. tests/conformance/aten compares
// values.
#include "client/aten/lower.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vpod::aten {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::TensorType;
namespace v1 = program::v1;

class LowerTest : public ::testing::Test {
 protected:
  Tensor Input(v1::DataType type, graph::Dims dims) {
    return graph_.Input("input" + std::to_string(graph_.inputs().size()), {type, std::move(dims)});
  }

  // The type of output 0.
  std::string TypeOf(absl::string_view name, std::vector<Argument> arguments) {
    const auto outputs = Lower(graph_, name, std::move(arguments));
    if (!outputs.ok()) return std::string(outputs.status().message());
    return graph_.TypeOf(outputs->at(0)).ToString();
  }

  absl::Status Refusal(absl::string_view name, std::vector<Argument> arguments) {
    const absl::Status status = Lower(graph_, name, std::move(arguments)).status();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(graph_.status(), absl::OkStatus()) << "the graph must go on";
    return status;
  }

  Graph graph_;
};

TEST_F(LowerTest, RefusesOperatorsByName) {
  const Tensor x = Input(v1::FLOAT32, {4});
  EXPECT_EQ(Refusal("frobnicate.default", {x}),
            absl::UnimplementedError(
                "aten::frobnicate.default is not among the operators that are known"));
  EXPECT_EQ(Refusal("nonzero.default", {x}),
            absl::UnimplementedError(
                "aten::nonzero.default has a result whose shape depends on its elements"));
  EXPECT_EQ(Refusal("relu", {x}).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Refusal("", {x}).code(), absl::StatusCode::kUnimplemented);
  const Tensor mask = Input(v1::BOOL, {4});
  EXPECT_EQ(Refusal("index.Tensor", {x, std::vector<Tensor>{mask}}).code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(LowerTest, RefusesArgumentsThatDoNotFit) {
  const Tensor x = Input(v1::FLOAT32, {4, 3});
  EXPECT_EQ(Refusal("relu.default", {}).message(),
            "aten::relu.default needs argument 0 of its parameters (tensor)");
  EXPECT_EQ(Refusal("relu.default", {x, int64_t{1}}).message(),
            "aten::relu.default has 2 arguments, must have at most 1");
  EXPECT_EQ(Refusal("relu.default", {1.5}).message(),
            "aten::relu.default: argument 0 does not fit the parameters (tensor)");
  EXPECT_EQ(Refusal("relu.default", {Tensor{}}).message(),
            "aten::relu.default: argument 0 does not fit the parameters (tensor)");
  EXPECT_EQ(Refusal("select.int", {x, 0.5, int64_t{0}}).message(),
            "aten::select.int: argument 1 does not fit the parameters (tensor, int, int)");
}

TEST_F(LowerTest, RefusesWhatTheOperatorCannotDo) {
  const Tensor x = Input(v1::FLOAT32, {4, 3}), scalar = Input(v1::FLOAT32, {});
  EXPECT_EQ(Refusal("transpose.int", {x, int64_t{0}, int64_t{2}}).message(),
            "aten::transpose.int: dimension 2 must be -2 to 1");
  EXPECT_EQ(Refusal("select.int", {x, int64_t{1}, int64_t{3}}).message(),
            "aten::select.int: index 3 must be -3 to 2");
  EXPECT_EQ(Refusal("select.int", {scalar, int64_t{0}, int64_t{0}}).message(),
            "aten::select.int: a scalar has no parts");
  EXPECT_EQ(Refusal("view.default", {x, std::vector<int64_t>{5, -1}}).message(),
            "aten::view.default: 12 elements have no shape [5,-1]");
  EXPECT_EQ(Refusal("slice.Tensor", {x, int64_t{0}, int64_t{0}, int64_t{4}, int64_t{0}}).message(),
            "aten::slice.Tensor: step 0 must be 1 or more");
  EXPECT_EQ(Refusal("as_strided.default",
                    {x, std::vector<int64_t>{5}, std::vector<int64_t>{3}, int64_t{0}})
                .message(),
            "aten::as_strided.default: element 12 is not one of the 12");
  EXPECT_EQ(Refusal("normal_.default", {x, 0.0, -1.0}).message(),
            "aten::normal_.default: the deviation is -1, must be 0 or more and finite");
  EXPECT_EQ(Refusal("normal_.default", {x, std::nan(""), 1.0}).message(),
            "aten::normal_.default: the mean is nan, must be finite");
  EXPECT_EQ(Refusal("uniform_.default", {x, 1.0, 0.0}).message(),
            "aten::uniform_.default: the range is 1 to 0, must not fall and must be finite");
  EXPECT_EQ(Refusal("kthvalue.default", {x, int64_t{4}}).message(),
            "aten::kthvalue.default: number 4 must be 1 to 3");
  EXPECT_EQ(Refusal("glu.default", {x}).message(),
            "aten::glu.default: dimension 1 of float32[4,3] must have two halves");
  EXPECT_EQ(Refusal("_cdist_forward.default", {x, x, -1.0, {}}).message(),
            "aten::_cdist_forward.default: norm -1 must be 0 or more");
  EXPECT_EQ(Refusal("trace.default", {scalar}).message(),
            "aten::trace.default: float32[] is not a matrix");
  EXPECT_EQ(Refusal("linalg_cross.default", {x, x, int64_t{0}}).message(),
            "aten::linalg_cross.default: float32[4,3] must have 3 elements along dimension 0 of 2");
  // The graph's own message names the operator as the scope.
  EXPECT_NE(Refusal("mm.default", {x, x}).message().find("aten::mm.default"), std::string::npos);
  EXPECT_EQ(Refusal("zeros.default", {std::vector<int64_t>{2}, int64_t{9}}).code(),
            absl::StatusCode::kUnimplemented);
}

TEST_F(LowerTest, PromotesLikePyTorch) {
  const Tensor half = Input(v1::FLOAT16, {2}), single = Input(v1::FLOAT32, {2}),
               scalar = Input(v1::FLOAT32, {}), integers = Input(v1::INT32, {2}),
               bytes = Input(v1::UINT8, {2}), small = Input(v1::INT8, {2}),
               flags = Input(v1::BOOL, {2});
  EXPECT_EQ(TypeOf("add.Tensor", {half, single}), "float32[2]");
  EXPECT_EQ(TypeOf("add.Tensor", {half, scalar}), "float16[2]") << "dimensions come before scalars";
  EXPECT_EQ(TypeOf("add.Tensor", {half, 0.5}), "float16[2]");
  EXPECT_EQ(TypeOf("add.Tensor", {integers, 0.5}), "float32[2]");
  EXPECT_EQ(TypeOf("add.Tensor", {integers, half}), "float16[2]");
  EXPECT_EQ(TypeOf("add.Tensor", {bytes, int64_t{1}}), "uint8[2]");
  EXPECT_EQ(TypeOf("add.Tensor", {bytes, small}), "int16[2]");
  EXPECT_EQ(TypeOf("add.Tensor", {bytes, integers}), "int32[2]");
  EXPECT_EQ(TypeOf("mul.Tensor", {flags, half}), "float16[2]");
  EXPECT_EQ(TypeOf("div.Tensor", {integers, integers}), "float32[2]");
  EXPECT_EQ(TypeOf("exp.default", {integers}), "float32[2]");
  EXPECT_EQ(TypeOf("sum.default", {flags}), "int32[]");
  EXPECT_EQ(TypeOf("add_.Tensor", {half, single}), "float16[2]") << "in place";
}

TEST_F(LowerTest, GivesTheTypesThatPyTorchDoes) {
  const Tensor half = Input(v1::FLOAT16, {2, 3}), integers = Input(v1::INT32, {2, 3});
  const std::vector<int64_t> last = {1};
  EXPECT_EQ(TypeOf("logsumexp.default", {half, last}), "float16[2]");
  EXPECT_EQ(TypeOf("logsumexp.default", {integers, last}), "float32[2]");
  EXPECT_EQ(TypeOf("logcumsumexp.default", {half, int64_t{1}}), "float16[2,3]");
  EXPECT_EQ(TypeOf("count_nonzero.default", {half}), "int32[]");
  EXPECT_EQ(TypeOf("trace.default", {Input(v1::UINT8, {2, 3})}), "int32[]");
  EXPECT_EQ(TypeOf("xlogy.Scalar_Self", {int64_t{2}, integers}), "float32[2,3]");
  EXPECT_EQ(TypeOf("clamp.Tensor", {integers, half, {}}), "float16[2,3]");
  EXPECT_EQ(TypeOf("floor_divide.default", {integers, half}), "float16[2,3]");
  const auto norm = [&](Tensor x, Argument type) {
    return TypeOf("linalg_vector_norm.default", {x, int64_t{2}, last, false, std::move(type)});
  };
  EXPECT_EQ(norm(half, {}), "float16[2]");
  EXPECT_EQ(norm(half, int64_t{6}), "float32[2]");
  EXPECT_EQ(norm(half, int64_t{3}),
            "aten::linalg_vector_norm.default: type int32 must be float16 or float32");
}

TEST_F(LowerTest, RefusesSequencesAndBagsThatDoNotFit) {
  const Tensor scores = Input(v1::FLOAT32, {5, 2, 4}), labels = Input(v1::INT32, {3}),
               lengths = Input(v1::INT32, {2}), table = Input(v1::FLOAT32, {6, 2});
  const std::vector<int64_t> inputs = {5, 5}, targets = {2, 2};
  EXPECT_EQ(Refusal("_ctc_loss.default", {scores, labels, inputs, targets}).message(),
            "aten::_ctc_loss.default: the lengths of the targets add up to more than the 3 labels "
            "there are");
  EXPECT_EQ(Refusal("_ctc_loss.Tensor", {scores, labels, lengths, lengths}).message(),
            "aten::_ctc_loss.Tensor: targets in one dimension need lengths that are not elements "
            "of a tensor");
  EXPECT_EQ(Refusal("_ctc_loss.default", {scores, labels, inputs, targets, int64_t{4}}).message(),
            "aten::_ctc_loss.default: blank 4 must be 0 to 3");
  const auto bags = [&](bool by_frequency, int64_t mode) {
    const Tensor weights = Input(v1::FLOAT32, {3});
    return std::string(Refusal("_embedding_bag.default",
                               {table, labels, lengths, by_frequency, mode, false, weights})
                           .message());
  };
  EXPECT_EQ(
      bags(true, 0),
      "aten::_embedding_bag.default: gradients scaled by the frequency of rows are not known");
  EXPECT_EQ(bags(false, 1), "aten::_embedding_bag.default: only a sum has weights of the indices");
  EXPECT_EQ(bags(false, 3), "aten::_embedding_bag.default: mode 3 must be 0 to 2");
}

TEST_F(LowerTest, NoGradientFlowsThroughDetach) {
  const Tensor x = Input(v1::FLOAT32, {3}), y = Input(v1::FLOAT32, {3});
  const auto detached = Lower(graph_, "detach.default", {x});
  ASSERT_TRUE(detached.ok()) << detached.status();
  EXPECT_EQ(graph_.TypeOf(detached->at(0)), graph_.TypeOf(x));
  const Tensor product = graph_.Multiply(detached->at(0), y);
  const auto gradients = graph_.GradientsOfUses(graph_.Sum(product), {x, y});
  EXPECT_TRUE(gradients[0].empty());
  EXPECT_EQ(gradients[1].size(), 1u);
}

// So that a norm can take it over: a cast between them would be in the way.
TEST_F(LowerTest, ReluIsOneOperationInEachType) {
  for (const v1::DataType type : {v1::FLOAT16, v1::FLOAT32, v1::INT32}) {
    const Tensor x = Input(type, {3});
    const size_t before = graph_.nodes().size();
    const auto result = Lower(graph_, "relu.default", {x});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(graph_.nodes().size(), before + 1);
    EXPECT_EQ(graph_.TypeOf(result->at(0)), graph_.TypeOf(x));
  }
}

// PyTorch's ReLU6 is a hardtanh.
TEST_F(LowerTest, HardTanhHasNoCasts) {
  for (const v1::DataType type : {v1::FLOAT16, v1::FLOAT32}) {
    const Tensor x = Input(type, {3});
    const size_t before = graph_.nodes().size();
    const auto result = Lower(graph_, "hardtanh.default", {x, int64_t{0}, int64_t{6}});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(graph_.nodes().size(), before + 1);
    EXPECT_EQ(graph_.nodes().back().instruction.unary().operator_(), v1::RELU6);
    for (const auto& [name, arguments] : std::vector<std::pair<std::string, std::vector<Argument>>>{
             {"hardtanh.default", {x}},
             {"hardtanh.default", {x, 0.0, 1.0}},
             {"hardtanh.default", {x, -1.0, 6.0}},
             {"hardtanh_backward.default", {x, x, 0.0, 6.0}}})
      EXPECT_EQ(TypeOf(name, arguments), graph_.TypeOf(x).ToString());
  }
  EXPECT_EQ(TypeOf("hardtanh.default", {Input(v1::INT32, {3}), int64_t{0}, int64_t{6}}),
            "int32[3]");
  for (const graph::Node& node : graph_.nodes()) EXPECT_FALSE(node.instruction.has_cast());
}

// Tensors of the largest rank have no dimension to spare.
TEST_F(LowerTest, WorksAtTheLargestRank) {
  const graph::Dims dims = {2, 1, 2, 1, 3, 1, 1, 2};
  const Tensor x = Input(v1::FLOAT16, dims);
  EXPECT_EQ(TypeOf("repeat.default", {x, std::vector<int64_t>{1, 2, 3, 1, 2, 1, 4, 2}}),
            "float16[2,2,6,1,6,1,4,4]");
  EXPECT_EQ(TypeOf("repeat.default", {x, std::vector<int64_t>{1, 2, 0, 1, 2, 1, 4, 2}}),
            "float16[2,2,0,1,6,1,4,4]");
  EXPECT_EQ(Refusal("repeat.default", {x, std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1, -1}}).message(),
            "aten::repeat.default: repetition -1 must be 0 to 2147483648");
  const std::vector<int64_t> many(8, 1 << 30);
  EXPECT_FALSE(Refusal("repeat.default", {x, many}).ok());
  const graph::Dims whole = {2, 1, 2, 1, 6, 1, 1, 2};
  const auto slice_backward = [&](int64_t start, int64_t step, Tensor gradient) {
    return TypeOf("slice_backward.default", {gradient, whole, int64_t{4}, start, int64_t{6}, step});
  };
  EXPECT_EQ(slice_backward(1, 2, x), "float16[2,1,2,1,6,1,1,2]");
  EXPECT_EQ(slice_backward(3, 1, x), "float16[2,1,2,1,6,1,1,2]");
  EXPECT_EQ(slice_backward(0, 1, x),
            "aten::slice_backward.default: the gradient is float16[2,1,2,1,3,1,1,2], must have the "
            "shape of the slice");
  EXPECT_EQ(slice_backward(1, 2, Input(v1::INT32, dims)),
            "aten::slice_backward.default: the gradient is int32[2,1,2,1,3,1,1,2], must have "
            "floats");
  const Tensor part = Input(v1::FLOAT32, {2, 1, 2, 1, 1, 1, 2});
  EXPECT_EQ(TypeOf("select_backward.default", {part, whole, int64_t{4}, int64_t{-1}}),
            "float32[2,1,2,1,6,1,1,2]");
}

TEST_F(LowerTest, WritesByAMask) {
  const Tensor x = Input(v1::FLOAT32, {4, 3, 2}), value = Input(v1::FLOAT32, {}),
               rows = Input(v1::FLOAT32, {5, 3, 2}), mask = Input(v1::BOOL, {4}),
               middle = Input(v1::BOOL, {3});
  const auto put = [&](std::vector<Tensor> indices, Tensor values) {
    return TypeOf("index_put.default", {x, std::move(indices), values});
  };
  EXPECT_EQ(put({mask}, value), "float32[4,3,2]");
  EXPECT_EQ(put({mask}, rows), "float32[4,3,2]") << "one for each true element";
  EXPECT_EQ(put({Tensor{}, middle}, value), "float32[4,3,2]");
  EXPECT_EQ(put({middle}, value),
            "aten::index_put.default: the mask bool[3] does not fit dimension 0 of float32[4,3,2]");
  EXPECT_EQ(put({mask}, Input(v1::FLOAT32, {6, 1, 1, 1})),
            "aten::index_put.default: the values float32[6,1,1,1] do not fit float32[4,3,2]");
  EXPECT_EQ(Refusal("index.Tensor", {x, std::vector<Tensor>{Input(v1::UINT8, {4})}}).code(),
            absl::StatusCode::kUnimplemented)
      << "PyTorch takes bytes for a mask";
}

TEST_F(LowerTest, WritesByAMaskBesideAnIndex) {
  const Tensor x = Input(v1::FLOAT32, {4, 3, 2}), value = Input(v1::FLOAT32, {}),
               mask = Input(v1::BOOL, {4}), plane = Input(v1::BOOL, {4, 3}),
               columns = Input(v1::INT32, {5}), column = Input(v1::INT32, {});
  const auto put = [&](std::vector<Tensor> indices, Tensor values) {
    return TypeOf("index_put.default", {x, std::move(indices), values});
  };
  EXPECT_EQ(put({mask, column}, value), "float32[4,3,2]");
  EXPECT_EQ(put({mask, columns}, Input(v1::FLOAT32, {5, 2})), "float32[4,3,2]");
  EXPECT_EQ(put({mask, Tensor{}, column}, Input(v1::FLOAT32, {2, 3})), "float32[4,3,2]");
  EXPECT_EQ(put({plane, column}, Input(v1::FLOAT32, {7})), "float32[4,3,2]");
  EXPECT_EQ(put({mask, Input(v1::UINT8, {3})}, value), "float32[4,3,2]");
  EXPECT_EQ(put({column, Input(v1::BOOL, {2, 2})}, value),
            "aten::index_put.default: the mask bool[2,2] does not fit dimension 1 of "
            "float32[4,3,2]");
  EXPECT_EQ(put({plane, column, column}, value),
            "aten::index_put.default: has more indices than dimensions of float32[4,3,2]");
  // The expansion's own message.
  EXPECT_NE(put({mask, columns}, Input(v1::FLOAT32, {4, 2})).find("[4,2]"), std::string::npos);
}

TEST_F(LowerTest, RefusesWritesThatDoNotFit) {
  const Tensor x = Input(v1::FLOAT32, {4, 3}), part = Input(v1::FLOAT32, {2, 3}),
               index = Input(v1::INT32, {2});
  const auto scatter = [&](int64_t end) {
    return TypeOf("slice_scatter.default", {x, part, int64_t{0}, int64_t{1}, end});
  };
  EXPECT_EQ(scatter(3), "float32[4,3]");
  EXPECT_EQ(scatter(4),
            "aten::slice_scatter.default: the source is float32[2,3], must have the dimensions "
            "[3,3] of the part");
  EXPECT_EQ(TypeOf("index_copy.default", {x, int64_t{0}, index, Input(v1::FLOAT32, {3, 2})}),
            "aten::index_copy.default: the source is float32[3,2], must have the dimensions [2,3]");
  EXPECT_EQ(TypeOf("scatter_reduce.two",
                   {x, int64_t{0}, Input(v1::INT32, {2, 3}), part, std::string("median")}),
            "aten::scatter_reduce.two: reduction 'median' must be one of sum, prod, mean, amax, "
            "amin");
}

TEST_F(LowerTest, TakesScaleFactors) {
  const Tensor x = Input(v1::FLOAT16, {1, 2, 5});
  const auto resized = [&](Argument size, Argument scales) {
    return TypeOf("upsample_nearest1d.vec", {x, std::move(size), std::move(scales)});
  };
  EXPECT_EQ(resized({}, std::vector<double>{1.5}), "float16[1,2,7]");
  EXPECT_EQ(resized({}, std::vector<int64_t>{2}), "float16[1,2,10]") << "whole numbers, too";
  EXPECT_EQ(resized(std::vector<int64_t>{3}, {}), "float16[1,2,3]");
  EXPECT_EQ(resized({}, {}),
            "aten::upsample_nearest1d.vec: needs either an output size or scale factors");
  EXPECT_EQ(resized({}, std::vector<double>{0.1}),
            "aten::upsample_nearest1d.vec: scale factor 0.1 gives no image");
}

TEST_F(LowerTest, ShufflesChannels) {
  const Tensor x = Input(v1::FLOAT16, {2, 6, 3, 5});
  EXPECT_EQ(TypeOf("channel_shuffle.default", {x, int64_t{3}}), "float16[2,6,3,5]");
  EXPECT_EQ(TypeOf("channel_shuffle.default", {x, int64_t{4}}),
            "aten::channel_shuffle.default: groups 4 must be 1 or more, and divide 6 channels");
  EXPECT_EQ(TypeOf("channel_shuffle.default", {x, int64_t{0}}),
            "aten::channel_shuffle.default: groups 0 must be 1 or more, and divide 6 channels");
  EXPECT_EQ(TypeOf("native_channel_shuffle.default", {Input(v1::FLOAT16, {2, 6}), int64_t{3}}),
            "aten::native_channel_shuffle.default: float16[2,6] must have 3 dimensions or more");
  // PyTorch has no gradient of it.
  const auto shuffled = Lower(graph_, "channel_shuffle.default", {x, int64_t{2}});
  ASSERT_TRUE(shuffled.ok()) << shuffled.status();
  const Tensor loss = graph_.Sum(graph_.Cast(shuffled->at(0), v1::FLOAT32));
  EXPECT_EQ(graph_.GradientsOfUses(loss, {x})[0].size(), 1u);
}

TEST_F(LowerTest, SamplesVolumes) {
  const Tensor volumes = Input(v1::FLOAT16, {2, 3, 4, 5, 6}),
               grid = Input(v1::FLOAT32, {2, 7, 8, 9, 3});
  const auto sampled = [&](Tensor at, int64_t interpolation, int64_t padding) {
    return TypeOf("grid_sampler_3d.default", {volumes, at, interpolation, padding, false});
  };
  EXPECT_EQ(sampled(grid, 0, 0), "float16[2,3,7,8,9]");
  EXPECT_EQ(sampled(grid, 1, 2), "float16[2,3,7,8,9]");
  EXPECT_EQ(
      sampled(grid, 2, 0),
      "aten::grid_sampler_3d.default: has interpolation 2 and padding 0, must be 0 to 1 and 0 "
      "to 2");
  EXPECT_EQ(
      sampled(Input(v1::FLOAT32, {2, 7, 8, 9, 2}), 0, 0),
      "aten::grid_sampler_3d.default: has images float16[2,3,4,5,6] and a grid "
      "float32[2,7,8,9,2], must have floats [n, channels, depth, height, width] and [n, depth, "
      "height, width, 3]");
  const Tensor matrices = Input(v1::FLOAT32, {2, 3, 4});
  const auto places = [&](std::vector<int64_t> size) {
    return TypeOf("affine_grid_generator.default", {matrices, std::move(size), false});
  };
  EXPECT_EQ(places({2, 1, 4, 5, 6}), "float32[2,4,5,6,3]");
  EXPECT_EQ(
      places({2, 1, 5, 6}),
      "aten::affine_grid_generator.default: the matrices are float32[2,3,4], must be [n, 2, 3] "
      "for images of four dimensions, or [n, 3, 4] for volumes of five");
}

TEST_F(LowerTest, DrawsIntegersOfRangesThatItHas) {
  const std::vector<int64_t> size = {3};
  EXPECT_EQ(TypeOf("randint.low", {int64_t{-5}, int64_t{5}, size, int64_t{4}}), "int32[3]");
  EXPECT_EQ(TypeOf("randint.low", {int64_t{5}, int64_t{5}, size, int64_t{4}}),
            "aten::randint.low: integers from 5 to below 5 must be one or more, of 31 bits");
  EXPECT_FALSE(Refusal("randint.default", {int64_t{1} << 32, size, int64_t{4}}).ok());
}

TEST_F(LowerTest, LeavesOutWhatTheMaskDoes) {
  const Tensor dy = Input(v1::FLOAT32, {1, 2, 4, 4}), x = Input(v1::FLOAT32, {1, 3, 4, 4}),
               weights = Input(v1::FLOAT32, {2, 3, 1, 1});
  const std::vector<int64_t> one = {1, 1}, none = {0, 0};
  const auto outputs = Lower(graph_, "convolution_backward.default",
                             {dy, x, weights, std::vector<int64_t>{2}, one, none, one, false, none,
                              int64_t{1}, std::vector<int64_t>{0, 1, 1}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 3u);
  EXPECT_FALSE(outputs->at(0).valid());
  EXPECT_EQ(graph_.TypeOf(outputs->at(1)).ToString(), "float32[2,3,1,1]");
  EXPECT_EQ(graph_.TypeOf(outputs->at(2)).ToString(), "float32[2]");
}

TEST_F(LowerTest, ListsItsOperators) {
  const std::vector<Operator> operators = Operators();
  EXPECT_GT(operators.size(), 110u);
  for (const Operator& each : operators)
    EXPECT_NE(each.name.find('.'), std::string::npos) << each.name;
}

}  // namespace
}  // namespace vpod::aten
