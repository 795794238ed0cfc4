#include "device/model/memory_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace vpod::model
