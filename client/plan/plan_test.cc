#include "client/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

// The heads of BERT and GPT-2 are on their first IPU, as a stage after all others.
TEST(PlanTest, PipelinesOfSeveralIpus) {
  const std::pair<const char*, std::vector<std::string>> splits[] = {
      {"bert-base", {}},
      {"gpt2", {}},
      {"gpt2", {"h.0", "h.4", "h.8"}},
      {"mobilenet-v2", {"features.3", "features.7", "features.13"}},
      {"resnet18", {"layer2.0", "layer3.0", "layer4.0"}},
      {"vit-b16", {}},
      {"vit-b16", {"encoder_layer_3", "encoder_layer_6", "encoder_layer_9"}}};
  for (const auto& [name, stages] : splits) {
    PlanRequest request = ResNet18(16);
    request.network.name = name;
    request.network.ipus = 4;
    request.network.stages = stages;
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

// Without stages, their blocks are dealt to as many IPUs as a replica has.
TEST(PlanTest, TransformersAreDealtEvenly) {
  for (const char* name : {"bert-base", "gpt2", "vit-b16"}) {
    PlanRequest request = ResNet18(16);
    request.network.name = name;
    request.accumulation = 64;
    model::Bytes most(uint64_t{1} << 40);  // on an IPU
    for (uint32_t ipus : {2, 4, 8}) {
      request.network.ipus = ipus;
      const auto plan = MakePlan(request);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->replicas, 16 / ipus);
      EXPECT_EQ(plan->memory.size(), ipus);
      for (const model::IpuTime& ipu : plan->timeline().ipus) EXPECT_GT(ipu.cost.flops, 0) << name;
      const model::Bytes on_one = *std::max_element(plan->memory.begin(), plan->memory.end());
      EXPECT_LE(on_one, most) << name << " " << ipus;
      most = on_one;
    }
  }
}

// Each variable, its state and its accumulator have a remote buffer.
TEST(PlanTest, LargeModelsMayBePhased) {
  const auto plan = MakePlan({.network = {.name = "bert-large"},
                              .pod = 4,
                              .accumulation = 2,
                              .schedule = compiler::Schedule::kPhased,
                              .optimizer = compiler::LambOptions{}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->executable->proto().ipus(0).remote_buffers_size(), 1024);
}

TEST(PlanTest, APartOfThePodMayBePlanned) {
  PlanRequest request = ResNet18(16);
  request.replicas = 2;
  const auto part = MakePlan(request), two = MakePlan(ResNet18(2));
  ASSERT_TRUE(part.ok() && two.ok()) << part.status() << two.status();
  EXPECT_EQ(part->replicas, 2u);
  EXPECT_EQ(part->items_per_second, two->items_per_second);
  request.replicas = 17;
  EXPECT_EQ(MakePlan(request).status().message(),
            "a POD of 16 IPUs has 16 replicas of 1 IPU, not 17");
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
            "stages of model 'bert-tiny' are the numbers of half layers on each IPU, as 1,3: '9' "
            "must be 1 to 4");
  EXPECT_EQ(refusal([](auto& r) {
              r.network.name = "bert-tiny";
              r.network.ipus = 8;
            }),
            "model 'bert-tiny' has 4 half layers, too few for 8 IPUs");
  EXPECT_EQ(refusal([](auto& r) {
              r.network.name = "vit-b16";
              r.network.ipus = 16;
            }),
            "model 'vit-b16' has 12 blocks, too few for 16 IPUs");
  EXPECT_EQ(refusal([](auto& r) {
              r.network.name = "vgg16";
              r.network.checkpoints = {"layer1.0"};
            }),
            "model 'vgg16' takes no checkpoints, only these do: resnet101, resnet18, resnet34, "
            "resnet50, resnext101");
  EXPECT_THAT(refusal([](auto& r) {
                r.network.name = "vgg16";
                r.network.stages = {"features.5"};
              }),
              HasSubstr("model 'vgg16' takes no stages, only these do: bert-base, "));
  EXPECT_THAT(
      refusal([](auto& r) {
        r.network.name = "vgg16";
        r.network.ipus = 2;
      }),
      HasSubstr("model 'vgg16' is not split: a replica has 1 IPU, not 2; these are: bert-"));
  EXPECT_EQ(
      refusal([](auto& r) { r.network.predictions = 20; }),
      "model 'resnet18' takes no predictions, only these do: bert-base, bert-large, bert-tiny");
  EXPECT_EQ(refusal([](auto& r) {
              r.network.name = "bert-tiny";
              r.network.predictions = 129;
            }),
            "predictions are 129, must be 1 to the 128 tokens of a sequence");
  EXPECT_EQ(refusal([](auto& r) { r.network.ipus = 32; }),
            "a POD of 16 IPUs has no whole number of replicas of 32");
  EXPECT_EQ(refusal([](auto& r) { r.pod = 0; }),
            "a POD of 0 IPUs has no whole number of replicas of 1");
  EXPECT_THAT(refusal([](auto& r) { r.machine_type = "m3000"; }), HasSubstr("m3000"));
  EXPECT_THAT(refusal([](auto& r) { r.accumulation = 0; }), HasSubstr("accumulation"));
  EXPECT_THAT(refusal([](auto& r) { r.network.micro_batch = -1; }), HasSubstr("-1"));
  EXPECT_EQ(refusal([](auto& r) { r.network.stages = {"layer9.0"}; }),
            "there is no block 'layer9.0' for a stage to begin with, the blocks are layer1.0 to "
            "layer1.1, layer2.0 to layer2.1, layer3.0 to layer3.1, layer4.0 to layer4.1");
  EXPECT_EQ(
      refusal([](auto& r) {
        r.network.ipus = 4;
        r.network.stages = {"layer3.0", "layer2.0"};
      }),
      "block 'layer2.0' is not behind block 'layer3.0', with which the stage before it begins");
  EXPECT_EQ(refusal([](auto& r) { r.network.checkpoints = {"layer1.9"}; }),
            "there is no block 'layer1.9' for a checkpoint, the blocks are layer1.0 to layer1.1, "
            "layer2.0 to layer2.1, layer3.0 to layer3.1, layer4.0 to layer4.1");
  EXPECT_EQ(refusal([](auto& r) { r.network.ipus = 2; }),
            "model 'resnet18' needs stages to be split over 2 IPUs; these need none: bert-base, "
            "bert-large, bert-tiny, gpt2, gpt2-large, gpt2-medium, gpt2-xl, mnist, vit-b16");
  EXPECT_THAT(refusal([](auto& r) { r.memory_proportion = 0; }),
              HasSubstr("memory proportion of IPU 0 is 0"));
  EXPECT_THAT(refusal([](auto& r) { r.memory_proportion = 2; }),
              HasSubstr("memory proportion of IPU 0 is 2"));
}

TEST(PlanTest, MnistIsOnOneIpuOrOnFour) {
  PlanRequest request{.network = {.name = "mnist", .micro_batch = 8}, .pod = 4, .accumulation = 64};
  const auto one = MakePlan(request);
  ASSERT_TRUE(one.ok()) << one.status();
  request.network.ipus = 4;
  const auto four = MakePlan(request);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ(four->timeline().ipus.size(), 4u);
  EXPECT_LT(four->timeline().end(), one->timeline().end());
}

// By erf it takes longer than by tanh, if there are many values.
TEST(PlanTest, GeluOfBert) {
  PlanRequest request{.network = {.name = "bert-tiny", .micro_batch = 64, .sequence_length = 512},
                      .pod = 4};
  const auto exact = MakePlan(request);
  ASSERT_TRUE(exact.ok()) << exact.status();
  request.network.tanh_gelu = true;
  const auto tanh = MakePlan(request);
  ASSERT_TRUE(tanh.ok()) << tanh.status();
  EXPECT_LT(tanh->timeline().end(), exact->timeline().end());
}

}  // namespace
}  // namespace vpod::plan
