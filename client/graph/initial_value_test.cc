#include "client/graph/initial_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace vpod::graph {
namespace {

using program::TensorType;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;
using program::v1::INT8;
using program::v1::UINT32;
using Floats = std::vector<float>;

TEST(InitialValueTest, GivenAndFilledValuesAreTheseValues) {
  EXPECT_EQ(InitialValue({1, 2}).Values({FLOAT32, {2}}), (Floats{1, 2}));
  EXPECT_EQ(InitialValue::Filled(3).Values({FLOAT32, {2, 1}}), (Floats{3, 3}));
  EXPECT_EQ(InitialValue::Filled(-3).Bytes({INT8, {2}}), "\xfd\xfd");
  EXPECT_EQ(InitialValue({1}).Bytes({FLOAT16, {1}}), std::string("\0\x3c", 2));
}

// A float has 24 bits.
TEST(InitialValueTest, IntegersOf32BitsAreExact) {
  const auto bytes = [](auto... values) {
    std::string all;
    for (const auto value : {values...})
      all.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return all;
  };
  const std::vector<double> odd = {16777217, 2147483647, -2147483648.0};
  const TensorType three{INT32, {3}};
  ASSERT_TRUE(InitialValue(odd).Check(three).ok());
  EXPECT_EQ(InitialValue(odd).Bytes(three), bytes(16777217, 2147483647, -2147483647 - 1));
  EXPECT_EQ(InitialValue(odd).CountFor(three), 3);
  ASSERT_TRUE(InitialValue(std::vector<double>{4294967295}).Check({UINT32, {1}}).ok());
  EXPECT_EQ(InitialValue(std::vector<double>{4294967295}).Bytes({UINT32, {1}}), bytes(~0u));
  EXPECT_FALSE(InitialValue(std::vector<double>{4294967296}).Check({UINT32, {1}}).ok());
  EXPECT_FALSE(InitialValue(std::vector<double>{2147483648}).Check({INT32, {1}}).ok());
  EXPECT_EQ(InitialValue::Filled(16777217).Bytes({INT32, {2}}), bytes(16777217, 16777217));
  ASSERT_TRUE(InitialValue::Filled(4294967295).Check({UINT32, {1}}).ok());
  EXPECT_EQ(InitialValue::Filled(4294967295).Bytes({UINT32, {1}}), bytes(~0u));
  // Doubles for floats are rounded.
  EXPECT_EQ(InitialValue(std::vector<double>{0.5, 2}).Values({FLOAT32, {2}}), (Floats{0.5, 2}));
  EXPECT_EQ(InitialValue(std::vector<double>{1}).Bytes({FLOAT16, {1}}), std::string("\0\x3c", 2));
}

TEST(InitialValueTest, RandomValuesFollowFromTheSeed) {
  const TensorType type{FLOAT32, {100, 100}};
  const Floats uniform = InitialValue::Uniform(0.5, 7).Values(type);
  EXPECT_EQ(InitialValue::Uniform(0.5, 7).Values(type), uniform);
  EXPECT_NE(InitialValue::Uniform(0.5, 8).Values(type), uniform);
  const auto [least, most] = std::minmax_element(uniform.begin(), uniform.end());
  EXPECT_GE(*least, -0.5f);
  EXPECT_LE(*most, 0.5f);
  EXPECT_NEAR(*most - *least, 1, 0.01);
  const Floats normal = InitialValue::Normal(2, 7).Values(type);
  const double squares = std::inner_product(normal.begin(), normal.end(), normal.begin(), 0.0);
  EXPECT_NEAR(std::sqrt(squares / 1e4), 2, 0.1);
}

TEST(InitialValueTest, WithoutDeviationAllAreZero) {
  EXPECT_EQ(InitialValue::Normal(0, 7).Values({FLOAT32, {2}}), (Floats{0, 0}));
}

TEST(InitialValueTest, SaysWhatIsWrong) {
  const TensorType two{FLOAT32, {2}};
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(InitialValue::Normal(-1, 1).Check(two).message(),
            "random initial values with a deviation of -1, must be 0 or more and finite");
  EXPECT_EQ(InitialValue::Uniform(infinity, 1).Check(two).message(),
            "random initial values with a bound of inf, must be 0 or more and finite");
  EXPECT_EQ(InitialValue({1, 2, 3}).Check(two).message(), "3 initial values, must have 2");
  EXPECT_EQ(InitialValue::Normal(1, 1).Check({INT8, {2}}).message(),
            "an initial value that int8 cannot hold");
}

TEST(InitialValueTest, FitsTypesThatHoldThem) {
  const TensorType two{FLOAT32, {2}};
  EXPECT_TRUE(InitialValue({1, 2}).Check(two).ok());
  EXPECT_FALSE(InitialValue({1, 2, 3}).Check(two).ok());
  EXPECT_FALSE(InitialValue(Floats()).Check(two).ok());
  EXPECT_FALSE(InitialValue({1, 200}).Check({INT8, {2}}).ok());
  EXPECT_FALSE(InitialValue::Filled(0.5).Check({INT8, {2}}).ok());
  EXPECT_TRUE(InitialValue::Filled(5).Check({INT8, {2}}).ok());
  EXPECT_FALSE(InitialValue::Uniform(1, 1).Check({INT8, {2}}).ok());
  EXPECT_TRUE(InitialValue::Normal(1, 1).Check({FLOAT16, {2}}).ok());
  EXPECT_TRUE(InitialValue::Uniform(0, 1).Check(two).ok());
  EXPECT_FALSE(InitialValue::Uniform(-1, 1).Check(two).ok());
  EXPECT_FALSE(InitialValue::Normal(std::numeric_limits<double>::quiet_NaN(), 1).Check(two).ok());
}

TEST(InitialValueTest, EqualRecipesAreEqual) {
  EXPECT_EQ(InitialValue({1, 2}), InitialValue({1, 2}));
  EXPECT_FALSE(InitialValue({1, 2}) == InitialValue({1, 3}));
  EXPECT_FALSE(InitialValue({1}) == InitialValue::Filled(1));
  EXPECT_FALSE(InitialValue::Normal(1, 1) == InitialValue::Normal(1, 2));
}

}  // namespace
}  // namespace vpod::graph
