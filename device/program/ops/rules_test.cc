#include "device/program/ops/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vpod::program {
namespace {

using testing::HasSubstr;

TensorType Float(Dims dims) { return {v1::FLOAT32, std::move(dims)}; }
TensorType Half(Dims dims) { return {v1::FLOAT16, std::move(dims)}; }
TensorType Int(Dims dims) { return {v1::INT32, std::move(dims)}; }
TensorType Bool(Dims dims) { return {v1::BOOL, std::move(dims)}; }

template <class T>
void ExpectIs(const absl::StatusOr<T>& actual, const T& expected) {
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_EQ(*actual, expected);
}

template <class T>
void ExpectRefused(const absl::StatusOr<T>& actual, const std::string& part) {
  EXPECT_EQ(actual.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(actual.status().message()), HasSubstr(part));
}

TEST(TensorTypeTest, SizesAndNamesOfEveryType) {
  EXPECT_EQ(Float({2, 3}).bytes(), 24u);
  EXPECT_EQ(Half({2, 3}).bytes(), 12u);
  EXPECT_EQ(Bool({5}).bytes(), 5u);
  EXPECT_EQ(Float({}).elements(), 1);
  EXPECT_EQ(Float({16, 28, 28, 1}).ToString(), "float32[16,28,28,1]");
  EXPECT_EQ(Half({}).ToString(), "float16[]");
  EXPECT_EQ(Name(v1::UINT32), "uint32");
  EXPECT_EQ(SizeOf(static_cast<v1::DataType>(99)), 0u);
}

TEST(TensorTypeTest, WideAccumulatorTakesEightBytesAnElement) {
  v1::Tensor tensor;
  tensor.set_type(v1::FLOAT32);
  tensor.add_dims(3);
  EXPECT_EQ(ArenaBytes(tensor), 12u);
  tensor.set_wide_accumulator(true);
  EXPECT_EQ(ArenaBytes(tensor), 24u);
}

TEST(TensorTypeTest, CheckRefusesWhatNoDeviceHolds) {
  EXPECT_TRUE(Check(Float({})).ok());
  EXPECT_TRUE(Check(Float(Dims(kMaxRank, 1))).ok());
  EXPECT_TRUE(Check(Float({kMaxElements})).ok());
  EXPECT_FALSE(Check({static_cast<v1::DataType>(10), {1}}).ok());
  EXPECT_FALSE(Check({v1::DATA_TYPE_UNSPECIFIED, {1}}).ok());
  EXPECT_FALSE(Check(Float(Dims(kMaxRank + 1, 1))).ok());
  EXPECT_TRUE(Check(Float({0})).ok());
  EXPECT_TRUE(Check(Float({kMaxElements, 0, 1})).ok());
  EXPECT_FALSE(Check(Float({kMaxElements, 0, 2})).ok());
  EXPECT_FALSE(Check(Float({-1, -1})).ok());
  EXPECT_FALSE(Check(Float({0, -1})).ok());
  EXPECT_FALSE(Check(Float({kMaxElements + 1})).ok());
  EXPECT_FALSE(Check(Float({1 << 16, 1 << 16})).ok());
  // Products beyond 64 bits must not wrap into the allowed range.
  EXPECT_FALSE(Check(Float({int64_t{1} << 31, int64_t{1} << 31, int64_t{1} << 31})).ok());
  EXPECT_FALSE(Check(Float({INT64_MAX, INT64_MAX})).ok());
  EXPECT_FALSE(Check(Float({INT64_MIN})).ok());
}

TEST(BroadcastTest, FollowsTheRulesOfNumPy) {
  ExpectIs(BroadcastDims({}, {}), Dims{});
  ExpectIs(BroadcastDims({3}, {}), Dims{3});
  ExpectIs(BroadcastDims({2, 3}, {3}), (Dims{2, 3}));
  ExpectIs(BroadcastDims({2, 1}, {1, 3}), (Dims{2, 3}));
  ExpectIs(BroadcastDims({5, 1, 4}, {7, 1}), (Dims{5, 7, 4}));
  ExpectIs(BroadcastDims({0}, {1}), Dims{0});
  ExpectIs(BroadcastDims({2, 1}, {0}), (Dims{2, 0}));
  ExpectRefused(BroadcastDims({0}, {2}), "shapes [0] and [2] do not broadcast");
  ExpectRefused(BroadcastDims({2}, {3}), "shapes [2] and [3] do not broadcast");
  ExpectRefused(BroadcastDims({2, 3}, {2}), "do not broadcast");
}

TEST(UnaryTypeTest, TakesTheTypesOfEachOperator) {
  for (int op = v1::NEGATE; op <= v1::UnaryOperator_MAX; ++op) {
    const auto function = static_cast<v1::UnaryOperator>(op);
    const bool bits = op == v1::BITWISE_NOT, logical = op == v1::LOGICAL_NOT;
    const bool whole = bits || op == v1::NEGATE || op == v1::ABSOLUTE || op == v1::SQUARE ||
                       op == v1::RELU || op == v1::SIGN;
    EXPECT_EQ(UnaryType(function, Float({2, 3})).ok(), !logical && !bits) << op;
    EXPECT_EQ(UnaryType(function, Half({})).ok(), !logical && !bits) << op;
    EXPECT_EQ(UnaryType(function, Int({2})).ok(), whole) << op;
    EXPECT_EQ(UnaryType(function, Bool({2})).ok(), logical) << op;
    EXPECT_EQ(UnaryType(function, {v1::UINT8, {2}}).ok(), whole) << op;
    EXPECT_EQ(UnaryType(function, {v1::INT16, {2}}).ok(), whole) << op;
  }
  ExpectIs(UnaryType(v1::TANH, Half({2, 3})), Half({2, 3}));
  ExpectRefused(UnaryType(v1::TANH, Int({2})), "TANH does not take int32[2]");
}

TEST(UnaryTypeTest, RefusesUnknownOperatorsAndBadShapes) {
  ExpectRefused(UnaryType(v1::UNARY_OPERATOR_UNSPECIFIED, Float({2})), "unknown unary operator 0");
  ExpectRefused(UnaryType(static_cast<v1::UnaryOperator>(v1::UnaryOperator_MAX + 1), Float({2})),
                absl::StrCat("unknown unary operator ", v1::UnaryOperator_MAX + 1));
  ExpectRefused(UnaryType(static_cast<v1::UnaryOperator>(-1), Float({2})),
                "unknown unary operator");
  ExpectRefused(UnaryType(v1::NEGATE, Float({-1})), "dimensions [-1] are outside 0 to");
}

TEST(BinaryTypeTest, ArithmeticKeepsTheTypeAndComparisonsGiveBool) {
  ExpectIs(BinaryType(v1::ADD, Float({2, 3}), Float({3})), Float({2, 3}));
  ExpectIs(BinaryType(v1::DIVIDE, Int({2}), Int({})), Int({2}));
  ExpectIs(BinaryType(v1::MAXIMUM, Half({2, 1}), Half({1, 3})), Half({2, 3}));
  ExpectIs(BinaryType(v1::LESS, Float({2, 1}), Float({1, 3})), Bool({2, 3}));
  ExpectIs(BinaryType(v1::GREATER_EQUAL, TensorType{v1::UINT32, {4}}, TensorType{v1::UINT32, {4}}),
           Bool({4}));
  ExpectIs(BinaryType(v1::LOGICAL_AND, Bool({2}), Bool({})), Bool({2}));
  ExpectIs(BinaryType(v1::TANH_GRADIENT, Half({2, 3}), Half({2, 3})), Half({2, 3}));
  ExpectIs(BinaryType(v1::POWER, Int({2}), Int({})), Int({2}));
  ExpectIs(BinaryType(v1::ATAN2, Half({2}), Half({})), Half({2}));
  ExpectIs(BinaryType(v1::SHIFT_LEFT, Int({2}), Int({})), Int({2}));
}

TEST(BinaryTypeTest, RefusesWhatDoesNotFit) {
  ExpectRefused(BinaryType(v1::ADD, Float({2}), Half({2})),
                "ADD does not take float32[2] and float16[2]");
  ExpectRefused(BinaryType(v1::ADD, Bool({2}), Bool({2})), "ADD does not take");
  ExpectRefused(BinaryType(v1::ADD, TensorType{v1::UINT8, {2}}, TensorType{v1::INT8, {2}}),
                "ADD does not take");
  ExpectRefused(BinaryType(v1::EQUAL, Bool({2}), Bool({2})), "EQUAL does not take");
  ExpectRefused(BinaryType(v1::LOGICAL_OR, Float({2}), Float({2})), "LOGICAL_OR does not take");
  ExpectRefused(BinaryType(v1::RELU_GRADIENT, Int({2}), Int({2})), "RELU_GRADIENT does not take");
  ExpectRefused(BinaryType(v1::ATAN2, Int({2}), Int({2})), "must be two of one float type");
  ExpectRefused(BinaryType(v1::BITWISE_AND, Float({2}), Float({2})),
                "must be two of one type of integers");
  // The gradients do not broadcast.
  ExpectRefused(BinaryType(v1::RELU_GRADIENT, Float({2, 3}), Float({3})),
                "RELU_GRADIENT does not take");
  ExpectRefused(BinaryType(v1::ADD, Float({2}), Float({3})), "do not broadcast");
  ExpectRefused(BinaryType(v1::BINARY_OPERATOR_UNSPECIFIED, Float({2}), Float({2})), "unknown");
  ExpectRefused(BinaryType(static_cast<v1::BinaryOperator>(99), Float({2}), Float({2})),
                "unknown binary operator 99");
  ExpectRefused(BinaryType(static_cast<v1::BinaryOperator>(-5), Float({2}), Float({2})), "unknown");
  // Each operand fits, the result does not.
  ExpectRefused(BinaryType(v1::ADD, Float({1 << 16, 1}), Float({1, 1 << 16})), "dimensions");
}

TEST(ReduceTypeTest, DropsTheAxes) {
  const std::vector<uint32_t> none, all{0, 1, 2}, outer{0, 2};
  ExpectIs(ReduceType(v1::SUM, Float({2, 3, 4}), outer), Float({3}));
  ExpectIs(ReduceType(v1::MEAN, Half({2, 3, 4}), all), Half({}));
  ExpectIs(ReduceType(v1::MAX, Int({2, 3, 4}), none), Int({2, 3, 4}));
  ExpectIs(ReduceType(v1::SUM, Float({}), none), Float({}));
}

TEST(ReduceTypeTest, RefusesBadAxesTypesAndOperators) {
  const std::vector<uint32_t> first{0}, twice{0, 0}, descending{1, 0}, outside{2};
  ExpectRefused(ReduceType(v1::SUM, Float({2, 3}), twice),
                "axes [0,0] of float32[2,3] must be 0 to 1 in ascending order");
  ExpectRefused(ReduceType(v1::SUM, Float({2, 3}), descending),
                "in ascending order, without repetition");
  ExpectRefused(ReduceType(v1::SUM, Float({2, 3}), outside), "axes [2]");
  ExpectRefused(ReduceType(v1::SUM, Float({}), first), "axes [0]");
  ExpectRefused(ReduceType(v1::MEAN, Int({2}), first), "MEAN does not reduce int32[2]");
  ExpectRefused(ReduceType(v1::SUM, Bool({2}), first), "SUM does not reduce bool[2]");
  ExpectRefused(ReduceType(v1::REDUCE_OPERATOR_UNSPECIFIED, Float({2}), first), "unknown reduce");
  ExpectRefused(ReduceType(v1::SQUARE_ADD, Float({2}), first), "unknown reduce");
}

// Sums and means of nothing are numbers, or not a number; nothing has no largest element.
TEST(ReduceTypeTest, OfNoElements) {
  const std::vector<uint32_t> first{0}, last{1};
  for (v1::ReduceOperator op : {v1::SUM, v1::MEAN, v1::MAX, v1::MIN, v1::PRODUCT})
    ExpectIs(ReduceType(op, Float({0, 3}), last), Float({0}));
  ExpectIs(ReduceType(v1::PRODUCT, Float({0, 3}), first), Float({3}));
  ExpectIs(ReduceType(v1::SUM, Float({0, 3}), first), Float({3}));
  ExpectIs(ReduceType(v1::MEAN, Float({0, 3}), first), Float({3}));
  ExpectRefused(ReduceType(v1::MAX, Float({0, 3}), first),
                "MAX needs an element, and axes [0] of float32[0,3] hold none");
  ExpectRefused(ReduceType(v1::MIN, Int({0, 0}), last),
                "MIN needs an element, and axes [1] of int32[0,0] hold none");
  ExpectIs(ArgMaxType(Float({0, 3})), Int({0}));
  ExpectRefused(ArgMaxType(Float({3, 0})),
                "arg-max needs an element, and the last axis of float32[3,0] holds none");
}

TEST(ArgMaxTypeTest, DropsTheLastAxis) {
  ExpectIs(ArgMaxType(Float({2, 3})), Int({2}));
  ExpectIs(ArgMaxType(Half({7})), Int({}));
  ExpectRefused(ArgMaxType(Float({})), "arg-max does not take float32[]");
  ExpectRefused(ArgMaxType(Int({3})), "arg-max does not take int32[3]");
}

TEST(MatMulTypeTest, TransposesEitherSide) {
  ExpectIs(MatMulType(Float({2, 3}), Float({3, 4}), false, false), Float({2, 4}));
  ExpectIs(MatMulType(Float({3, 2}), Float({3, 4}), true, false), Float({2, 4}));
  ExpectIs(MatMulType(Float({2, 3}), Float({4, 3}), false, true), Float({2, 4}));
  ExpectIs(MatMulType(Half({3, 2}), Half({4, 3}), true, true), Half({2, 4}));
  ExpectIs(MatMulType(Float({5, 6, 2, 3}), Float({5, 6, 4, 3}), false, true), Float({5, 6, 2, 4}));
}

TEST(MatMulTypeTest, RefusesOtherRanksTypesAndLengths) {
  ExpectRefused(MatMulType(Float({2, 3}), Float({4, 3}), false, false),
                "matmul does not take float32[2,3] and float32[4,3]");
  ExpectRefused(MatMulType(Float({3, 2}), Float({4, 3}), true, false), "float32[3,2] transposed");
  ExpectRefused(MatMulType(Float({3}), Float({3, 4}), false, false), "matmul");
  ExpectRefused(MatMulType(Float({1, 2, 3}), Float({3, 4}), false, false), "matmul");
  ExpectRefused(MatMulType(Float({5, 2, 3}), Float({1, 3, 4}), false, false),
                "with equal dimensions before these");
  ExpectRefused(MatMulType(Float({2, 3}), Half({3, 4}), false, false), "matmul");
  ExpectRefused(MatMulType(Int({2, 3}), Int({3, 4}), false, false), "matmul");
  ExpectRefused(MatMulType(Float({1 << 16, 1}), Float({1, 1 << 16}), false, false), "dimensions");
}

v1::SlidingWindow Sliding(std::vector<uint32_t> kernel, uint32_t stride = 1, uint32_t dilation = 1,
                          uint32_t before = 0, uint32_t after = 0) {
  v1::SlidingWindow window;
  for (uint32_t size : kernel) {
    window.add_kernel(size);
    window.add_stride(stride);
    window.add_dilation(dilation);
    window.add_pad_before(before);
    window.add_pad_after(after);
  }
  return window;
}

TEST(ConvolutionTypeTest, SlidesTheKernelOverOneToThreeDimensions) {
  ExpectIs(ConvolutionType(Float({2, 3, 8, 9}), Float({5, 3, 3, 3}), Sliding({3, 3}), 1),
           Float({2, 5, 6, 7}));
  ExpectIs(ConvolutionType(Half({2, 6, 9}), Half({6, 2, 3}), Sliding({3}, 2, 2, 4, 1), 3),
           Half({2, 6, 5}));
  ExpectIs(
      ConvolutionType(Float({1, 1, 4, 5, 6}), Float({2, 1, 1, 2, 3}), Sliding({1, 2, 3}, 3), 1),
      Float({1, 2, 2, 2, 2}));
}

TEST(ConvolutionTypeTest, RefusesWhatDoesNotFit) {
  const TensorType image = Float({2, 4, 8, 8}), weights = Float({6, 4, 3, 3});
  const auto type = [&](const TensorType& x, const TensorType& w, const v1::SlidingWindow& window,
                        uint32_t groups = 1) { return ConvolutionType(x, w, window, groups); };
  const v1::SlidingWindow window = Sliding({3, 3});
  ExpectRefused(type(Float({2, 4}), weights, window), "the image is float32[2,4]");
  ExpectRefused(type(Int({2, 4, 8, 8}), weights, window), "the image is int32[2,4,8,8]");
  ExpectRefused(type(Float({1, 1, 1, 1, 1, 1}), weights, window), "the image is");
  ExpectRefused(type(image, Half({6, 4, 3, 3}), window), "must be float32[6,4,3,3]");
  ExpectRefused(type(image, Float({6, 3, 3, 3}), window), "must be float32[6,4,3,3]");
  ExpectRefused(type(image, Float({6, 4, 3, 2}), window), "must be float32[6,4,3,3]");
  ExpectRefused(type(image, Float({}), window), "must be float32[0,4,3,3]");
  ExpectRefused(type(image, weights, window, 0), "groups is 0, must divide the 4 channels");
  ExpectRefused(type(image, weights, window, 3), "groups is 3, must divide the 4 channels");
  ExpectRefused(type(image, Float({6, 1, 3, 3}), window, 4), "must divide the 6 outputs");
  ExpectRefused(type(image, Float({6, 4, 3}), Sliding({3})), "needs 2 entries");
  ExpectRefused(type(image, weights, Sliding({3, 3}, 0)), "stride along spatial dimension 0 is 0");
  ExpectRefused(type(image, weights, Sliding({3, 3}, 1, 0)),
                "dilation along spatial dimension 0 is 0");
  ExpectRefused(type(image, weights, Sliding({3, 3}, 1, 4)), "of 8");
  ExpectRefused(type(image, weights, Sliding({3, 3}, 1, 4294967295)),
                "dilation along spatial dimension 0 is 4294967295, must be 1 to");
  ExpectRefused(type(image, weights, Sliding({3, 3}, 1, 1, 3)), "is 3+0, must be 0 to 2");
  ExpectRefused(type(image, weights, Sliding({3, 3}, 1, 1, 0, 3)), "is 0+3, must be 0 to 2");
}

TEST(PooledTypeTest, KeepsTheChannels) {
  ExpectIs(PooledType(Float({2, 3, 8, 6}), Sliding({2, 2}, 2)), Float({2, 3, 4, 3}));
  ExpectRefused(PooledType(Int({2, 3, 8, 6}), Sliding({2, 2}, 2)), "the image is int32");
  ExpectRefused(PooledType(Float({2, 3, 8, 6}), Sliding({0, 2})),
                "kernel along spatial dimension 0 is 0");
}

TEST(PooledTypeTest, RefusesAResultThatPaddingBlowsUp) {
  // Every element lies under many windows; the result is far larger than the image.
  const uint32_t kernel = 1u << 31, pad = kernel - 1;
  ExpectRefused(PooledType(Float({1, 64, 8, 8}), Sliding({kernel, kernel}, 1, 1, pad, pad)),
                "dimensions");
}

TEST(ImagesTest, OnlyTheBatchMayBeNothing) {
  ExpectIs(PooledType(Float({0, 3, 8, 6}), Sliding({2, 2}, 2)), Float({0, 3, 4, 3}));
  ExpectIs(ConvolutionType(Float({0, 4, 8, 8}), Float({6, 4, 3, 3}), Sliding({3, 3}), 1),
           Float({0, 6, 6, 6}));
  ExpectRefused(PooledType(Float({2, 0, 8, 6}), Sliding({2, 2}, 2)),
                "the image is float32[2,0,8,6]; only the batch may be 0");
  ExpectRefused(ConvolutionType(Float({2, 4, 0, 8}), Float({6, 4, 3, 3}), Sliding({3, 3}), 1),
                "only the batch may be 0");
  ExpectRefused(ConvolutionType(Float({2, 4, 8, 8}), Float({0, 4, 3, 3}), Sliding({3, 3}), 1),
                "the weight tensor is float32[0,4,3,3] and has no outputs");
}

TEST(SoftmaxCrossEntropyTypeTest, GivesALossForEachRow) {
  ExpectIs(SoftmaxCrossEntropyType(Float({4, 10}), Int({4})), Float({4}));
  ExpectIs(SoftmaxCrossEntropyType(Half({4, 10}), Int({4})), Half({4}));
  ExpectRefused(SoftmaxCrossEntropyType(Float({4}), Int({4})),
                "cross-entropy does not take logits");
  ExpectRefused(SoftmaxCrossEntropyType(Int({4, 10}), Int({4})), "logits int32[4,10]");
  ExpectRefused(SoftmaxCrossEntropyType(Float({4, 10}), Int({5})), "labels int32[5]");
  ExpectRefused(SoftmaxCrossEntropyType(Float({4, 10}), Int({4, 1})), "labels int32[4,1]");
  ExpectRefused(SoftmaxCrossEntropyType(Float({4, 10}), Float({4})), "labels float32[4]");
  ExpectIs(SoftmaxCrossEntropyType(Float({0, 10}), Int({0})), Float({0}));
  ExpectRefused(SoftmaxCrossEntropyType(Float({4, 0}), Int({4})),
                "the logits are float32[4,0] and have no classes");
}

}  // namespace
}  // namespace vpod::program
