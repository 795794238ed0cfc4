#include "device/fabric/tree_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace vpod::fabric {
namespace {

// Sums where all inputs are at hand.
void TreeSum(const std::vector<const void*>& inputs, Element input,
             const std::vector<void*>& outputs, Element output, size_t begin, size_t end,
             double scale) {
  const Subtree all{{0, inputs.size()}, inputs, input, 0};
  std::vector<TreeOutput> targets;
  for (void* to : outputs) targets.push_back({to, 0});
  TreeReduce(Operator::kSum, {&all, 1}, targets, output, begin, end, scale);
}

// The definition: split at the largest power of two below n.
double Reference(const std::vector<std::vector<float>>& inputs, size_t element, size_t first,
                 size_t count) {
  if (count == 1) return inputs[first][element];
  size_t left = 1;
  while (left * 2 < count) left *= 2;
  return Reference(inputs, element, first, left) +
         Reference(inputs, element, first + left, count - left);
}

class TreeReduceTest : public testing::TestWithParam<int> {};

TEST_P(TreeReduceTest, FollowsTheCanonicalTree) {
  const size_t replicas = GetParam(), elements = 1300;
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1e6, 1e6);
  std::vector<std::vector<float>> inputs(replicas, std::vector<float>(elements));
  for (auto& input : inputs) {
    for (float& value : input) value = uniform(random) * (random() % 5 == 0 ? 1e-12f : 1.0f);
  }
  std::vector<std::vector<float>> outputs(replicas, std::vector<float>(elements));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t r = 0; r < replicas; ++r) {
    in.push_back(inputs[r].data());
    out.push_back(outputs[r].data());
  }
  // Two ranges, as two threads would take them.
  TreeSum(in, Element::kFloat32, out, Element::kFloat32, 0, 700, 0.5);
  TreeSum(in, Element::kFloat32, out, Element::kFloat32, 700, elements, 0.5);
  for (size_t i = 0; i < elements; ++i) {
    const auto expected = static_cast<float>(Reference(inputs, i, 0, replicas) * 0.5);
    for (size_t r = 0; r < replicas; ++r) ASSERT_EQ(outputs[r][i], expected) << i << " of " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, TreeReduceTest,
                         testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 33, 64));

TEST(TreeReduceTest, AlignedBlocksAreSubtrees) {
  // A machine may reduce its four replicas where they lie: the sum of the partial sums has the same
  // bits.
  std::vector<double> values = {1e16, 1, -1e16, 3, 1e-8, 7, 1e8, 2};
  std::vector<const void*> leaves;
  for (const double& value : values) leaves.push_back(&value);
  float whole = 0;
  TreeSum(leaves, Element::kFloat64, {&whole}, Element::kFloat32, 0, 1, 1);
  const double left = (values[0] + values[1]) + (values[2] + values[3]);
  const double right = (values[4] + values[5]) + (values[6] + values[7]);
  EXPECT_EQ(whole, static_cast<float>(left + right));
}

TEST(TreeReduceTest, SubtreesOfSeveralProcessesGiveTheSameBits) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-1e6, 1e6);
  for (size_t replicas : {2, 3, 7, 16, 21}) {
    const size_t elements = 1100;
    std::vector<std::vector<float>> inputs(replicas, std::vector<float>(elements));
    std::vector<const void*> leaves;
    for (auto& input : inputs) {
      for (float& value : input) value = uniform(random);
      leaves.push_back(input.data());
    }
    std::vector<float> whole(elements);
    TreeSum(leaves, Element::kFloat32, {whole.data()}, Element::kFloat32, 0, elements, 0.25);
    // Replicas dealt to three processes at random; each hands over what it can sum.
    std::vector<size_t> process(replicas);
    for (size_t& each : process) each = random() % 3;
    std::vector<Subtree> subtrees;
    std::vector<std::unique_ptr<std::vector<double>>> sums;
    for (size_t p = 0; p < 3; ++p) {
      std::vector<bool> present(replicas);
      for (size_t r = 0; r < replicas; ++r) present[r] = process[r] == p;
      for (const TreeNode& node : MaximalNodes(present)) {
        const Subtree local{node, {leaves.begin() + node.begin, leaves.begin() + node.end}};
        sums.push_back(std::make_unique<std::vector<double>>(elements - 100));
        PartialReduce(Operator::kSum, {&local, 1}, 100, elements, sums.back()->data());
        subtrees.push_back({node, {sums.back()->data()}, Element::kFloat64, 100});
      }
    }
    std::sort(subtrees.begin(), subtrees.end(),
              [](const auto& a, const auto& b) { return a.node.begin < b.node.begin; });
    std::vector<float> combined(elements - 100);
    const TreeOutput output{combined.data(), 100};
    TreeReduce(Operator::kSum, subtrees, {&output, 1}, Element::kFloat32, 100, elements, 0.25);
    for (size_t i = 100; i < elements; ++i) ASSERT_EQ(combined[i - 100], whole[i]) << replicas;
  }
}

TEST(TreeReduceTest, MaximalNodesOfARaggedTree) {
  // Five replicas: ((0 1) (2 3)) 4.
  EXPECT_EQ(MaximalNodes({true, true, true, true, true}), (std::vector<TreeNode>{{0, 5}}));
  EXPECT_EQ(MaximalNodes({false, true, true, true, true}),
            (std::vector<TreeNode>{{1, 2}, {2, 4}, {4, 5}}));
  EXPECT_TRUE(MaximalNodes({false}).empty());
}

TEST(TreeReduceTest, ReducesInPlaceAndRoundsHalvesOnce) {
  _Float16 a = 2048, b = 1, c = 1, d = 0;
  const std::vector<const void*> in = {&a, &b, &c, &d};
  const std::vector<void*> out = {&a, &b, &c, &d};
  // Added in half precision, 2048 + 1 would lose both ones.
  TreeSum(in, Element::kFloat16, out, Element::kFloat16, 0, 1, 1);
  EXPECT_EQ(static_cast<float>(a), 2050.0f);
  EXPECT_EQ(static_cast<float>(d), 2050.0f);
}

template <class T>
T ReduceOne(Operator op, Element element, const std::vector<T>& values) {
  T result{};
  Subtree all{{0, values.size()}, {}, element, 0};
  for (const T& value : values) all.leaves.push_back(&value);
  const TreeOutput output{&result, 0};
  TreeReduce(op, {&all, 1}, {&output, 1}, element, 0, 1, 1);
  return result;
}

TEST(TreeReduceTest, IntegersWrap) {
  const auto reduce = [](Operator op, const std::vector<int32_t>& values) {
    return ReduceOne(op, Element::kInt32, values);
  };
  EXPECT_EQ(reduce(Operator::kSum, {2147483647, 1, 1}), -2147483647);
  EXPECT_EQ(reduce(Operator::kProduct, {65536, 65537, -1}), -65536);
  EXPECT_EQ(reduce(Operator::kSquareAdd, {65536, -3, 2}), 13);
  EXPECT_EQ(reduce(Operator::kMin, {3, -7, 2147483647}), -7);
  EXPECT_EQ(reduce(Operator::kMax, {3, -7, -2147483647}), 3);
}

TEST(TreeReduceTest, ANanIsTheMinimumAndTheMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Operator op : {Operator::kMin, Operator::kMax}) {
    for (size_t at = 0; at < 5; ++at) {
      std::vector<float> values = {1, -2, 3, -4, 5};
      EXPECT_FALSE(std::isnan(ReduceOne(op, Element::kFloat32, values)));
      values[at] = nan;
      EXPECT_TRUE(std::isnan(ReduceOne(op, Element::kFloat32, values))) << at;
    }
  }
}

}  // namespace
}  // namespace vpod::fabric
