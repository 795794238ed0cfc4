#include "client/plan/executable_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/plan/networks.h"
#include "client/plan/phases.h"
#include "client/plan/plan.h"

namespace vpod::plan {
namespace {

// The request of a small model.
PlanRequest Request(uint32_t ipus) {
  return {.network = {.name = ipus == 1 ? "mnist" : "bert-tiny", .micro_batch = 4, .ipus = ipus},
          .accumulation = 8};
}

// Its executable for all replicas of a POD.
std::shared_ptr<const program::Executable> ExecutableOf(const PlanRequest& request, uint32_t pod) {
  const Network network = *BuildNetwork(request.network);
  compiler::CompileOptions options{.ipus_per_replica = request.network.ipus,
                                   .total_replicas = pod / request.network.ipus,
                                   .schedule = request.schedule,
                                   .programs = {{.name = "train",
                                                 .accumulation = request.accumulation,
                                                 .loss = network.loss,
                                                 .optimizer = request.optimizer},
                                                {.name = "infer", .device_iterations = 3}}};
  return compiler::Compile(network.graph, options)->executable;
}

TEST(ExecutablePlanTest, TakesWhatThePlanOfItsModelTakes) {
  for (uint32_t ipus : {1, 2}) {
    PlanRequest request = Request(ipus);
    for (uint32_t pod : {4, 64, 256}) {
      const auto executable = ExecutableOf(request, pod);
      for (const char* machine : {"m2000", "bow2000"}) {
        request.pod = pod;
        request.machine_type = machine;
        const auto plan = PlanExecutable(*executable, pod, machine);
        const auto of_model = MakePlan(request);
        ASSERT_TRUE(plan.ok()) << plan.status();
        ASSERT_TRUE(of_model.ok()) << of_model.status();
        EXPECT_EQ(plan->replicas, of_model->replicas);
        EXPECT_TRUE(plan->fits.ok());
        ASSERT_EQ(plan->runs.size(), 2u);
        const RunPlan& train = plan->runs[0];
        EXPECT_EQ(train.program, "train");
        EXPECT_EQ(train.timeline.end(), of_model->timeline().end());
        EXPECT_EQ(train.items, of_model->global_batch);
        EXPECT_DOUBLE_EQ(train.items_per_second(), of_model->items_per_second);
        EXPECT_EQ(plan->runs[1].items, plan->replicas * 12);
        EXPECT_TRUE(train.has_collectives);
        EXPECT_FALSE(plan->runs[1].has_collectives);
        EXPECT_LT(plan->runs[1].seconds, train.seconds);
      }
    }
  }
}

TEST(ExecutablePlanTest, CountsWhatPassesLinks) {
  const auto train = [](uint32_t ipus, uint32_t pod) {
    return PlanExecutable(*ExecutableOf(Request(ipus), pod), pod, "m2000")->runs[0];
  };
  // A ring of 16 passes more of the gradients than one of 4, racks are joined by GW-Links.
  const RunPlan small = train(1, 4), rack = train(1, 16), racks = train(1, 256);
  EXPECT_GT(small.timeline.over_ipu_links().value(), 0u);
  EXPECT_GT(rack.timeline.over_ipu_links(), small.timeline.over_ipu_links());
  EXPECT_EQ(rack.timeline.over_gw_links().value(), 0u);
  EXPECT_GT(racks.timeline.over_gw_links().value(), 0u);
  EXPECT_LT(racks.timeline.over_gw_links(), racks.timeline.over_ipu_links());
  // Alone, IPUs of a replica send activations and gradients to each other, and nothing else does.
  EXPECT_EQ(train(1, 1).timeline.over_ipu_links().value(), 0u);
  EXPECT_GT(train(2, 2).timeline.over_ipu_links().value(), 0u);
}

// Each step is for something, and all of them are counted.
TEST(PhasesTest, AddUpToTheCyclesOfTheRun) {
  for (uint32_t ipus : {1, 2}) {
    PlanRequest request = Request(ipus);
    request.recomputation = compiler::Recomputation::kAll;
    const auto plan = MakePlan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto phases = PhasesOf(*plan->executable, 0, plan->topology);
    ASSERT_EQ(phases.size(), ipus);
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      const PhaseCycles& of = phases[ipu];
      EXPECT_EQ(of.forward + of.backward + of.recomputation + of.update + of.other,
                plan->timeline().ipus[ipu].cost.total());
      for (model::Cycles cycles : {of.forward, of.backward, of.recomputation, of.update})
        EXPECT_GT(cycles, model::Cycles());
    }
  }
}

TEST(ExecutablePlanTest, WrongPodsAreRefused) {
  const auto executable = ExecutableOf(Request(2), 4);
  EXPECT_EQ(PlanExecutable(*executable, 8, "m2000").status().message(),
            "a POD of 8 IPUs has 4 replicas, but the executable is for 2");
  EXPECT_EQ(PlanExecutable(*executable, 3, "m2000").status().message(),
            "a POD of 3 IPUs has no whole number of replicas of 2");
  EXPECT_FALSE(PlanExecutable(*executable, 0, "m2000").ok());
  EXPECT_THAT(std::string(PlanExecutable(*executable, 4, "m3000").status().message()),
              testing::HasSubstr("m3000"));
}

class ShardedExecutableTest : public testing::Test {
 protected:
  static std::shared_ptr<const program::Executable> Sharded(uint32_t replicas) {
    const PlanRequest request = Request(1);
    const Network network = *BuildNetwork(request.network);
    compiler::CompileOptions options{.total_replicas = replicas};
    options.tensor_shards = 4;
    options.programs = {{.name = "train", .loss = network.loss, .optimizer = request.optimizer}};
    return compiler::Compile(network.graph, options)->executable;
  }
};

TEST_F(ShardedExecutableTest, IsForTheReplicasThatItWasCompiledFor) {
  EXPECT_EQ(ShardsOf(*ExecutableOf(Request(1), 1)), 1u);
  for (uint32_t replicas : {4, 8}) {
    const auto executable = Sharded(replicas);
    EXPECT_EQ(ShardsOf(*executable), 4u);
    EXPECT_TRUE(PlanExecutable(*executable, replicas, "m2000").ok());
    EXPECT_EQ(PlanExecutable(*executable, 2, "m2000").status().message(),
              "a POD of 2 IPUs has 2 replicas, but 4 share the state of the optimiser");
    EXPECT_EQ(
        CheckPod(*executable, 64).message(),
        absl::StrCat("a POD of 64 IPUs has 64 replicas, but the executable is for ", replicas));
  }
}

}  // namespace
}  // namespace vpod::plan
