#include "client/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vpod::plan {
namespace {

using testing::HasSubstr;

PlanRequest ResNet18(uint32_t pod) {
  return {.network = {.name = "resnet18", .micro_batch = 4, .image_size = 64},
          .pod = pod,
          .accumulation = 8};
}

TEST(PlanTest, EveryModelHasAPlan) {
  for (const std::string& name : NetworkNames()) {
    if (name.find("large") != name.npos || name.find("medium") != name.npos) continue;
    SCOPED_TRACE(name);
    const auto plan = MakePlan({.network = {.name = name, .image_size = 64}, .pod = 4});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->replicas, 4u);
    EXPECT_EQ(plan->global_batch, 4u);
    EXPECT_GT(plan->items_per_second, 0);
    ASSERT_EQ(plan->memory.size(), 1u);
    EXPECT_GT(plan->memory[0].value(), 0u);
  }
}

// More replicas do more, but each a little less: they wait for collectives, over racks for longer.
TEST(PlanTest, LargerPodsAreFasterAndLessEfficient) {
  double last = 0, of_one = 0;
  for (uint32_t pod : {1, 16, 64, 256, 65536}) {
    const auto plan = MakePlan(ResNet18(pod));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->global_batch, uint64_t{pod} * 4 * 8);
    if (pod == 1) of_one = plan->items_per_second;
    EXPECT_GT(plan->items_per_second, last);
    EXPECT_LE(plan->items_per_second, of_one * pod);
    last = plan->items_per_second;
  }
}

TEST(PlanTest, BowIsFasterByItsClockButNotItsLinks) {
  PlanRequest request = ResNet18(16);
  const auto m2000 = MakePlan(request);
  request.machine_type = "bow2000";
  const auto bow = MakePlan(request);
  ASSERT_TRUE(m2000.ok() && bow.ok());
  EXPECT_GT(bow->items_per_second, 1.1 * m2000->items_per_second);
  EXPECT_LT(bow->items_per_second, 1.85 / 1.33 * m2000->items_per_second);
}

// The heads of BERT are on its first IPU, as a stage after all others.
TEST(PlanTest, PipelinesOfSeveralIpus) {
  for (const char* name : {"bert-base", "resnet18"}) {
    PlanRequest request = ResNet18(16);
    request.network.name = name;
    request.network.ipus = 4;
    if (request.network.name == "resnet18")
      request.network.stages = {"layer2.0", "layer3.0", "layer4.0"};
    request.accumulation = 64;
    const auto grouped = MakePlan(request);
    request.schedule = compiler::Schedule::kSharded;
    const auto sharded = MakePlan(request);
    ASSERT_TRUE(grouped.ok()) << grouped.status();
    ASSERT_TRUE(sharded.ok()) << sharded.status();
    EXPECT_EQ(grouped->replicas, 4u);
    EXPECT_GT(grouped->items_per_second, 1.2 * sharded->items_per_second) << name;
  }
}

TEST(PlanTest, WhatDoesNotFitSaysSo) {
  PlanRequest request = ResNet18(16);
  request.network.micro_batch = 96;
  request.network.image_size = 224;
  const auto plan = MakePlan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->fits.code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanTest, WrongRequestsAreRefused) {
  const auto refusal = [](void (*change)(PlanRequest&)) {
    PlanRequest request = ResNet18(16);
    change(request);
    return std::string(MakePlan(request).status().message());
  };
  EXPECT_THAT(refusal([](auto& r) { r.network.name = "resnet19"; }),
              HasSubstr("unknown model 'resnet19', must be one of bert-base, "));
  EXPECT_EQ(refusal([](auto& r) {
              r.network.ipus = 4;
              r.network.stages = {"layer3.0"};
            }),
            "model 'resnet18' is split over 2 IPUs, but a replica has 4");
  EXPECT_EQ(refusal([](auto& r) {
              r.network.name = "bert-tiny";
              r.network.ipus = 2;
              r.network.stages = {"1", "9"};
            }),
            "'9' half layers of an IPU, must be 1 to 4");
  EXPECT_EQ(refusal([](auto& r) {
              r.network.name = "vgg16";
              r.network.checkpoints = {"layer1.0"};
            }),
            "model 'vgg16' takes no checkpoints, only residual networks do");
  EXPECT_EQ(refusal([](auto& r) { r.network.ipus = 32; }),
            "a POD of 16 IPUs has no whole number of replicas of 32");
  EXPECT_EQ(refusal([](auto& r) { r.pod = 0; }),
            "a POD of 0 IPUs has no whole number of replicas of 1");
  EXPECT_THAT(refusal([](auto& r) { r.machine_type = "m3000"; }), HasSubstr("m3000"));
  EXPECT_THAT(refusal([](auto& r) { r.accumulation = 0; }), HasSubstr("accumulation"));
  EXPECT_THAT(refusal([](auto& r) { r.network.micro_batch = -1; }), HasSubstr("-1"));
  EXPECT_EQ(refusal([](auto& r) { r.network.stages = {"layer9.0"}; }),
            "no block 'layer9.0' for stage 1 comes after the one before it");
  EXPECT_THAT(refusal([](auto& r) { r.network.ipus = 2; }),
              HasSubstr("model 'resnet18' is split over 1 IPU, but a replica has 2: "));
  EXPECT_THAT(refusal([](auto& r) { r.memory_proportion = 0; }),
              HasSubstr("memory proportion of IPU 0 is 0"));
  EXPECT_THAT(refusal([](auto& r) { r.memory_proportion = 2; }),
              HasSubstr("memory proportion of IPU 0 is 2"));
}

}  // namespace
}  // namespace vpod::plan
