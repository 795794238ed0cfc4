#include "device/model/memory_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace vpod::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MemoryAdviceTest, FeaturesFollowFromOperations) {
  ProgramFeatures features{.ipus_per_replica = 2};
  features.Add({.ipu = 1, .is_product = true});
  EXPECT_FALSE(features.trains || features.recomputes || features.is_pipeline);
  features.Add({.ipu = 1, .trains = true});
  EXPECT_TRUE(features.trains);
  features.Add({.ipu = 0, .is_recomputed = true});
  EXPECT_TRUE(features.recomputes);
  EXPECT_THAT(features.recomputes_products, IsEmpty());
  features.Add({.ipu = 1, .is_product = true, .is_recomputed = true});
  EXPECT_THAT(features.recomputes_products, ElementsAre(1));
}

TEST(MemoryAdviceTest, StashesOfSeveralIpusAreThoseOfAPipeline) {
  ProgramFeatures alone{.ipus_per_replica = 1}, pipeline{.ipus_per_replica = 2};
  for (ProgramFeatures* features : {&alone, &pipeline}) {
    features->Add({.stores = true});
    EXPECT_FALSE(features->stores_activations);
    features->Add({.is_stash = true, .stores = true});
    EXPECT_TRUE(features->stores_activations);
  }
  EXPECT_FALSE(alone.is_pipeline);
  EXPECT_TRUE(pipeline.is_pipeline);
}

// A verdict with advice.
MemoryVerdict Full(std::vector<MemoryAdvice> advice) {
  return {.fits = false, .why = "It is too large.", .advice = std::move(advice)};
}

TEST(MemoryAdviceTest, AdviceWithoutAnOptionIsLeftOut) {
  OptionNames names = NoOptions();
  names.float16 = "--half";
  const MemoryVerdict verdict = Full({MemoryAdvice::kTensorShards, MemoryAdvice::kFloat16});
  EXPECT_EQ(TextOf(MemoryAdvice::kTensorShards, names), "");
  EXPECT_EQ(OutOfMemoryMessage(verdict, names, [](const auto&) { return TrialResult::kFits; }),
            "It is too large. To try: float16 (--half): fits.");
  EXPECT_EQ(UntriedOutOfMemoryMessage(verdict, names, "it takes too long"),
            "It is too large. To try: float16 (--half). None of this was tried, because it takes "
            "too long.");
  EXPECT_EQ(UntriedOutOfMemoryMessage(verdict, NoOptions(), "it takes too long"),
            "It is too large.");
}

TEST(MemoryAdviceTest, AdviceFollowsWhyAProgramDoesNotFit) {
  const MemoryVerdict verdict = Full({MemoryAdvice::kFloat16});
  OptionNames names;
  names.float16 = "--half";
  EXPECT_EQ(AdviceIn(UntriedOutOfMemoryMessage(verdict, names, "it takes too long"), verdict),
            "To try: float16 (--half). None of this was tried, because it takes too long.");
  EXPECT_EQ(AdviceIn(verdict.why, verdict), "");
}

TEST(MemoryAdviceTest, NamesAreKeptInLists) {
  OptionNames names = NoOptions();
  names.ipus_without_pipeline = "--ipus";
  std::vector<std::string> list = ListOf(names);
  EXPECT_EQ(ListOf(OptionNamesIn(list)), list);
  EXPECT_EQ(list.back(), "--ipus");
  list.push_back("of a later version");
  EXPECT_EQ(ListOf(OptionNamesIn(list)), ListOf(names));
  EXPECT_EQ(ListOf(OptionNamesIn({})), ListOf(OptionNames()));
  EXPECT_EQ(OptionNamesIn({"--half"}).accumulation, OptionNames().accumulation);
}

}  // namespace
}  // namespace vpod::model
