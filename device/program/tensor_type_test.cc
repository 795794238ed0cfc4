#include "device/program/tensor_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vpod::program {
namespace {

using testing::HasSubstr;

v1::Tensor Strided(const Dims& dims, const Dims& strides) {
  v1::Tensor tensor;
  tensor.set_type(v1::FLOAT32);
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.mutable_strides()->Add(strides.begin(), strides.end());
  return tensor;
}

TEST(StridesTest, TwoOrders) {
  EXPECT_EQ(RowMajorStrides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(ChannelsLastStrides({2, 3, 4, 5}), (Dims{60, 1, 15, 3}));
  EXPECT_EQ(ChannelsLastStrides({2, 3, 4}), (Dims{12, 1, 3}));
  EXPECT_EQ(ChannelsLastStrides({2, 3}), RowMajorStrides({2, 3}));
  EXPECT_EQ(RowMajorStrides({}), Dims());
}

TEST(StridesTest, DimensionsOfOneLieAnyhow) {
  EXPECT_TRUE(LiesAs(Strided({2, 3, 1, 1}, {3, 1, 3, 3}), RowMajorStrides({2, 3, 1, 1})));
  EXPECT_FALSE(LiesAs(Strided({2, 3, 2, 1}, {6, 1, 3, 3}), RowMajorStrides({2, 3, 2, 1})));
}

TEST(StridesTest, BytesReachToTheLastElement) {
  EXPECT_EQ(ArenaBytes(Strided({2, 3}, {10, 2})), 4u * (10 + 4 + 1));
  EXPECT_EQ(ArenaBytes(Strided({100, 3}, {0, 1})), 4u * 3);
  EXPECT_EQ(ArenaBytes(Strided({2, 3}, {})), 4u * 6);
}

TEST(StridesTest, NoElementsTakeNoBytesAndLieAsAnybodyWants) {
  EXPECT_EQ(ArenaBytes(Strided({2, 0, 3}, {})), 0u);
  EXPECT_TRUE(LiesAs(Strided({2, 0, 3}, {}), ChannelsLastStrides({2, 0, 3})));
  EXPECT_TRUE(LiesAs(Strided({2, 0, 3}, {}), {5, 5, 5}));
  EXPECT_TRUE(CheckStrides(Strided({2, 0, 3}, {})).ok());
  EXPECT_THAT(std::string(CheckStrides(Strided({2, 0, 3}, {5, 5, 5})).message()),
              HasSubstr("say nothing of a tensor without elements"));
}

TEST(StridesTest, ElementsThatLieOnEachOtherAreFound) {
  EXPECT_TRUE(ElementsLieApart(Strided({2, 3}, {})));
  EXPECT_TRUE(ElementsLieApart(Strided({3, 2}, {1, 3})));
  EXPECT_TRUE(ElementsLieApart(Strided({1, 3}, {0, 1})));
  EXPECT_FALSE(ElementsLieApart(Strided({2, 3}, {0, 1})));
  EXPECT_FALSE(ElementsLieApart(Strided({2, 3}, {2, 1})));
  EXPECT_FALSE(ElementsLieApart(Strided({2, 3}, {2, 2})));
}

TEST(StridesTest, DenseTensorsHaveNoGaps) {
  EXPECT_TRUE(IsDense(Strided({2, 3}, {})));
  EXPECT_TRUE(IsDense(Strided({3, 2}, {1, 3})));
  EXPECT_TRUE(IsDense(Strided({4, 1, 2, 2}, {1, 0, 8, 4})));
  EXPECT_FALSE(IsDense(Strided({3, 2}, {1, 4})));
  EXPECT_FALSE(IsDense(Strided({2, 3}, {0, 1})));
}

TEST(StridesTest, WeightsLieWithTheOutputsInnermost) {
  EXPECT_EQ(OutputsLastStrides({5, 4, 3, 2}), (Dims{1, 5, 40, 20}));
  EXPECT_EQ(OutputsLastStrides({5, 4}), (Dims{4, 1}));
}

TEST(StridesTest, RefusesWhatIsNoLayout) {
  const auto message = [](const v1::Tensor& tensor) {
    return std::string(CheckStrides(tensor).message());
  };
  EXPECT_EQ(message(Strided({2, 3}, {})), "");
  EXPECT_EQ(message(Strided({2, 3}, {1, 2})), "");
  EXPECT_THAT(message(Strided({2, 3}, {3})), HasSubstr("one for each dimension"));
  EXPECT_THAT(message(Strided({2, 3}, {-3, 1})), HasSubstr("outside 0 to 2147483648"));
  EXPECT_THAT(message(Strided({2, 3}, {int64_t{1} << 40, 1})), HasSubstr("outside"));
  EXPECT_THAT(message(Strided({20, 3}, {1 << 30, 1})), HasSubstr("span more than"));
  EXPECT_THAT(message(Strided({2, 3}, {3, 1})), HasSubstr("are those of a row-major tensor"));
}

}  // namespace
}  // namespace vpod::program
