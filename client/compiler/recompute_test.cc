// Activations that are computed again are those that were kept, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/compiler/pipeline_test_util.h"

namespace vpod::compiler {
namespace {

constexpr Recomputation kRecomputations[] = {Recomputation::kStandard, Recomputation::kNormOnly,
                                             Recomputation::kPipeline, Recomputation::kAll};

TEST(RecomputeTest, ChangesNoResult) {
  for (v1::DataType type : {FLOAT32, FLOAT16}) {
    for (Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (const auto& [stages, ipus] : {std::pair{1u, 1u}, {4u, 4u}, {4u, 2u}}) {
        const Network network = Layers(type, stages, ipus);
        for (Schedule schedule : {Schedule::kSharded, Schedule::kGrouped, Schedule::kInterleaved}) {
          // Several stages of an IPU that round draw their numbers in the first.
          if (rounding == Rounding::kStochastic && stages != ipus) continue;
          CompileOptions options{.ipus_per_replica = ipus, .schedule = schedule};
          options.rounding = rounding;
          const Result kept = Train(network, options, 8);
          for (Recomputation recomputation : kRecomputations) {
            SCOPED_TRACE(absl::StrCat(v1::DataType_Name(type), ", rounding ",
                                      static_cast<int>(rounding), ", ", stages, " stages on ", ipus,
                                      ", schedule ", static_cast<int>(schedule), ", recomputation ",
                                      static_cast<int>(recomputation)));
            options.recomputation = recomputation;
            const Result again = Train(network, options, 8);
            EXPECT_EQ(again.losses, kept.losses);
            EXPECT_EQ(again.weights, kept.weights);
          }
        }
      }
    }
  }
}

// The names of the operations that a kind of recomputation computes again.
std::set<std::string> ComputedAgain(Recomputation recomputation) {
  const Network network = Layers(FLOAT32, 1, 1);
  CompileOptions options;
  options.recomputation = recomputation;
  options.fusion = false;
  options.programs = {{.name = "train", .loss = network.loss, .optimizer = SgdOptions{}}};
  const auto compiled = Compile(network.graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  v1::Origins origins;
  EXPECT_TRUE(origins.ParseFromString(compiled->executable->OriginBytes()));
  std::set<std::string> names;
  for (const v1::Origin& origin : origins.origins()) {
    if (origin.phase() == v1::Origin::RECOMPUTE) names.insert(origin.op());
  }
  return names;
}

TEST(RecomputeTest, EachKindComputesOtherOperationsAgain) {
  using testing::Contains;
  using testing::Not;
  EXPECT_TRUE(ComputedAgain(Recomputation::kNone).empty());
  EXPECT_EQ(ComputedAgain(Recomputation::kNormOnly), (std::set<std::string>{"layer_norm", "relu"}));
  EXPECT_FALSE(ComputedAgain(Recomputation::kStandard).empty());
  // Up to the last checkpoint, behind which come softmax and the loss.
  EXPECT_THAT(ComputedAgain(Recomputation::kPipeline), Contains("layer_norm"));
  EXPECT_THAT(ComputedAgain(Recomputation::kPipeline), Contains("random"));
  EXPECT_THAT(ComputedAgain(Recomputation::kPipeline), Contains("softmax"));  // of layer 1
  EXPECT_THAT(ComputedAgain(Recomputation::kAll), Contains("layer_norm"));
}

}  // namespace
}  // namespace vpod::compiler
