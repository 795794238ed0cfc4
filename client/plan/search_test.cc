#include "client/plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/plan/split.h"
#include "device/program/executable.h"

namespace vpod::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

PartCosts Parts(std::vector<uint64_t> cycles, uint64_t before = 0, uint64_t after = 0) {
  PartCosts costs{.cycles = std::move(cycles), .before = before, .after = after};
  for (size_t i = 0; i < costs.cycles.size(); ++i)
    costs.parts.push_back("layer1." + std::to_string(i));
  return costs;
}

TEST(SplitTest, TheSlowestStageIsFast) {
  using Split = std::vector<size_t>;
  EXPECT_EQ(BalancedSplit(Parts({1, 1, 1, 1}), 2), (Split{2}));
  EXPECT_EQ(BalancedSplit(Parts({1, 1, 1, 1}), 4), (Split{1, 2, 3}));
  EXPECT_EQ(BalancedSplit(Parts({6, 1, 1, 1}), 2), (Split{1}));
  // Steps before the first part count for its stage, steps after the last one for that of the last.
  EXPECT_EQ(BalancedSplit(Parts({2, 2, 2, 2}, /*before=*/4), 2), (Split{1}));
  EXPECT_EQ(BalancedSplit(Parts({2, 2, 2, 2}, 0, /*after=*/4), 2), (Split{3}));
  PartCosts heads = Parts({2, 2, 2, 2}, 0, 4);
  heads.last_is_first = true;
  EXPECT_EQ(BalancedSplit(heads, 2), (Split{1}));
  // The first stage may have no part; the others have one.
  EXPECT_EQ(BalancedSplit(Parts({2, 2}, /*before=*/4), 2), (Split{0}));
  EXPECT_EQ(BalancedSplit(Parts({1, 1}), 3), (Split{0, 1}));
  EXPECT_EQ(BalancedSplit(Parts({1, 1}), 4).size(), 2u);  // there are not enough parts
}

TEST(SplitTest, EvenStagesAreThoseOfModelsThatAreSplitByThemselves) {
  using Split = std::vector<size_t>;
  PartCosts costs = Parts({9, 1, 1, 1, 1, 1});
  EXPECT_EQ(EvenSplit(costs, 2), (Split{3}));
  EXPECT_EQ(EvenSplit(costs, 4), (Split{1, 3, 4}));
  EXPECT_EQ(EvenSplit(costs, 8), (Split{}));
  costs.last_is_first = true;
  EXPECT_EQ(EvenSplit(costs, 4), (Split{0, 2, 4}));
  for (const char* name : {"bert-tiny", "gpt2", "vit-b16"}) {
    PlanRequest request{.network = {.name = name, .ipus = 4}, .accumulation = 16};
    const auto by_itself = MakePlan(request);
    ASSERT_TRUE(by_itself.ok()) << by_itself.status();
    const auto parts = CostsOfParts(request);
    ASSERT_TRUE(parts.ok()) << parts.status();
    request.network.stages = StagesOf(name, *parts, EvenSplit(*parts, 4));
    const auto even = MakePlan(request);
    ASSERT_TRUE(even.ok()) << even.status();
    EXPECT_EQ(even->executable->proto().SerializeAsString(),
              by_itself->executable->proto().SerializeAsString())
        << name;
  }
}

TEST(SplitTest, PartsOfModels) {
  PlanRequest request{.network = {.name = "resnet18", .image_size = 64}};
  const auto resnet = CostsOfParts(request);
  ASSERT_TRUE(resnet.ok()) << resnet.status();
  EXPECT_EQ(resnet->parts.size(), 8u);
  EXPECT_EQ(resnet->parts[3], "layer2.1");
  // The stem with its gradients takes longer than the head.
  EXPECT_GT(resnet->before, 2 * resnet->after);
  EXPECT_GT(resnet->after, 0u);
  EXPECT_EQ(StagesOf("resnet18", *resnet, {2, 5}),
            (std::vector<std::string>{"layer2.0", "layer3.1"}));
  request.network.name = "bert-tiny";
  const auto bert = CostsOfParts(request);
  ASSERT_TRUE(bert.ok()) << bert.status();
  EXPECT_EQ(bert->parts.size(), 4u);
  EXPECT_TRUE(bert->last_is_first);
  EXPECT_EQ(StagesOf("bert-tiny", *bert, {1}), (std::vector<std::string>{"1", "3"}));
  request.network.name = "mnist";
  EXPECT_FALSE(CostsOfParts(request).ok());
  for (const auto& [name, parts, fifth] : std::vector<std::tuple<const char*, size_t, const char*>>{
           {"gpt2", 12, "h.4"},
           {"vit-b16", 12, "encoder_layer_4"},
           {"mobilenet-v2", 17, "features.5"}}) {
    request.network.name = name;
    const auto costs = CostsOfParts(request);
    ASSERT_TRUE(costs.ok()) << costs.status();
    ASSERT_EQ(costs->parts.size(), parts) << name;
    EXPECT_EQ(StagesOf(name, *costs, {4}), std::vector<std::string>{fifth});
    EXPECT_EQ(costs->last_is_first, request.network.name == "gpt2");
    request.network.ipus = 2;
    request.network.stages = StagesOf(name, *costs, BalancedSplit(*costs, 2));
    request.accumulation = 8;
    const auto plan = MakePlan(request);
    EXPECT_TRUE(plan.ok()) << plan.status();
  }
}

TEST(SearchTest, TheBestFitsAndItsNeighboursAreNotBetter) {
  PlanRequest request{.network = {.name = "resnet18", .image_size = 64}, .pod = 2};
  const auto result = Search(request, 256);
  ASSERT_TRUE(result.ok()) << result.status();
  const Candidate& best = result->best;
  EXPECT_TRUE(best.plan.fits.ok());
  EXPECT_LE(best.plan.global_batch, 256u);
  EXPECT_GT(result->plans, 10u);
  // It can be asked for directly.
  const auto again = MakePlan(best.request);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->timeline().end().value(), best.plan.timeline().end().value());
  ASSERT_GE(result->neighbours.size(), 4u);
  for (const auto& [name, recomputation] : compiler::kRecomputationNames) {
    PlanRequest other = best.request;
    other.recomputation = recomputation;
    const auto plan = MakePlan(other);
    if (plan.ok() && plan->fits.ok()) {
      EXPECT_LE(plan->items_per_second, best.plan.items_per_second) << name;
    }
  }
  // The threads do not decide.
  std::vector<size_t> progress;
  const auto same = Search(request, 256, [&](size_t plans) { progress.push_back(plans); });
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(Describe(same->best.request), Describe(best.request));
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), same->plans);
}

// Balanced stages have the embedding and parts on the first IPU, where little room is left.
TEST(SearchTest, EvenStagesAreNotFaster) {
  PlanRequest request{.network = {.name = "bert-base"}, .pod = 4};
  const auto result = Search(request, 1024);
  ASSERT_TRUE(result.ok()) << result.status();
  request.network.ipus = 4;
  for (int64_t micro_batch : {4, 8, 12, 16}) {
    request.network.micro_batch = micro_batch;
    request.accumulation = static_cast<uint32_t>(1024 / micro_batch);
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    if (plan->fits.ok()) {
      EXPECT_LE(plan->items_per_second, result->best.plan.items_per_second) << micro_batch;
    }
  }
}

// Whatever its number, and with every recomputation.
TEST(SearchTest, NoMicroBatchThatFitsIsFaster) {
  PlanRequest request{.network = {.name = "resnet50"}, .pod = 1};
  request.network.image_type = program::v1::UINT8;
  const auto result = Search(request, 256);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->best.request.recomputation, compiler::Recomputation::kNormOnly);
  for (compiler::Recomputation recomputation :
       {compiler::Recomputation::kNone, compiler::Recomputation::kNormOnly,
        compiler::Recomputation::kStandard}) {
    for (int64_t micro_batch = 5; micro_batch <= 10; ++micro_batch) {
      request.recomputation = recomputation;
      request.network.micro_batch = micro_batch;
      request.accumulation = static_cast<uint32_t>(256 / micro_batch);
      const auto plan = MakePlan(request);
      ASSERT_TRUE(plan.ok()) << plan.status();
      if (!plan->fits.ok()) continue;
      EXPECT_LE(plan->items_per_second, result->best.plan.items_per_second)
          << NameOf(recomputation) << " " << micro_batch;
    }
  }
}

// The streams of a run are limited: then fewer micro-batches make up an update.
TEST(SearchTest, StreamsLimitTheAccumulation) {
  const PlanRequest request{.network = {.name = "mnist"}, .pod = 4};
  const auto result = Search(request, 1 << 24);
  ASSERT_TRUE(result.ok()) << result.status();
  const uint64_t limit = program::Limits().stream_bytes, bytes = result->best.plan.stream_bytes;
  EXPECT_LE(bytes, limit);
  EXPECT_GT(bytes, limit / 10 * 9);
}

TEST(SearchTest, WhatCannotBeFoundSaysWhy) {
  PlanRequest request{.network = {.name = "bert-large", .sequence_length = 512}, .pod = 1};
  request.network.type = program::v1::FLOAT32;
  // It tells of the candidate that needs the least memory, and does not advise what was tried.
  EXPECT_THAT(
      std::string(Search(request, 64).status().message()),
      AllOf(HasSubstr("plans fits. Closest is 1 IPU per replica, micro-batch 1, "),
            HasSubstr("recomputation standard. Out of memory: "), Not(HasSubstr("To try"))));
  request.pod = 2;
  EXPECT_THAT(std::string(Search(request, 64).status().message()),
              HasSubstr("plans with balanced or even stages fits (--stages plans others). Closest "
                        "is 2 IPUs per replica (--stages "));
  request.network.name = "resnet19";
  EXPECT_THAT(std::string(Search(request, 64).status().message()), HasSubstr("unknown model"));
  request = {.network = {.name = "resnet18", .image_size = 64}, .pod = 16};
  EXPECT_EQ(Search(request, 8).status().message(),
            "a global batch of 8 is too small for 16 IPUs, which need at least 16");
}

}  // namespace
}  // namespace vpod::plan
