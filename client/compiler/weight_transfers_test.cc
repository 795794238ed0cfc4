// Weights move whole, and nothing else does.
#include "client/compiler/weight_transfers.h"

#include <gtest/gtest.h>

#include "client/compiler/compiler.h"
#include "client/compiler/memory_trials.h"
#include "client/graph/graph.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

// The transfers of a program that trains a square matrix.
WeightTransfers TransfersOf(int64_t size, Optimizer optimizer, bool off_chip = false) {
  Graph g;
  const Tensor x = g.Input("x", {FLOAT32, {4, size}});
  const Tensor weight = g.Variable("w", {FLOAT32, {size, size}}, graph::InitialValue::Filled(1));
  const Tensor loss = g.Mean(g.MatMul(x, weight));
  g.Output("loss", loss);
  CompileOptions options{.off_chip_weights = off_chip};
  options.programs = {{.name = "train", .loss = loss, .optimizer = std::move(optimizer)}};
  const auto compiled = Compile(g, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return PriceWeightTransfers(*compiled->executable, TopologyOf(options));
}

TEST(WeightTransfersTest, CyclesGrowWithTheBytesInBothDirections) {
  const WeightTransfers one = TransfersOf(512, SgdOptions{}),
                        four = TransfersOf(1024, SgdOptions{}),
                        sixteen = TransfersOf(2048, SgdOptions{});
  for (const auto direction : {&WeightTransfers::from_host, &WeightTransfers::to_host}) {
    const auto first = (four.*direction - one.*direction).value();
    const auto second = (sixteen.*direction - four.*direction).value();
    EXPECT_GT(first, 0u);
    EXPECT_NEAR(static_cast<double>(second), 4.0 * static_cast<double>(first), 8.0);
  }
  EXPECT_EQ(four.total(), four.from_host + four.to_host);
}

TEST(WeightTransfersTest, TheStateOfTheOptimiserStays) {
  EXPECT_EQ(TransfersOf(512, AdamOptions{}).total(), TransfersOf(512, SgdOptions{}).total());
}

TEST(WeightTransfersTest, WeightsInStreamingMemoryStay) {
  const WeightTransfers small = TransfersOf(512, SgdOptions{}, true);
  EXPECT_EQ(small.total(), TransfersOf(1024, SgdOptions{}, true).total());
  EXPECT_LT(small.total(), TransfersOf(512, SgdOptions{}).total());
}

}  // namespace
}  // namespace vpod::compiler
