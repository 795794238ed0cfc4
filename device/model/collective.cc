#include "device/program/ops/collective.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "device/arch/hardware.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"

namespace vpod::model {
namespace {

// Steps of a collective as they are planned.
class Phases {
 public:
  // `bytes` pass every link of the ring.
  void Pass(RingPhase ring, double bytes) {
    if (ring.replicas <= 1) return;
    ring.bytes = bytes;
    steps_.push_back({ring});
  }
  // Reduce-scatter, or all-gather, of `bytes` on each replica.
  void Share(const RingPhase& ring, double bytes) {
    const auto n = static_cast<double>(ring.replicas);
    Pass(ring, (n - 1) / n * bytes);
  }
  // Every replica has a part of its own for each of the others.
  void Scatter(const RingPhase& ring, double bytes) {
    const auto n = static_cast<double>(ring.replicas);
    Pass(ring, bytes * std::max(1.0, n / 4) * (n - 1) / n);
  }
  // Additions of a reduce-scatter: each step takes 1/n of the elements.
  void Add(const RingPhase& ring, uint64_t elements) {
    const uint64_t n = ring.replicas;
    if (n <= 1) return;
    PlanStep step = ElementwiseStep(CeilDiv(elements, n), program::v1::FLOAT32, 3);
    step.times = n - 1;
    steps_.push_back(std::move(step));
  }
  std::vector<PlanStep> Take() { return std::move(steps_); }

 private:
  std::vector<PlanStep> steps_;
};

}  // namespace

std::vector<PlanStep> CollectiveSteps(const CollectiveLoad& load, const Topology& topology) {
  const uint64_t members = load.members;
  if (members <= 1) return {};
  const uint32_t ipus = topology.ipus_per_replica;
  const uint64_t rack = std::max<uint64_t>(1, topology.ipus_per_domain / ipus);  // replicas
  // Members of a group in one rack, and racks that a group spans.
  const uint64_t inner = std::clamp<uint64_t>(rack / load.stride, 1, members);
  const uint64_t racks = CeilDiv(members, inner);
  const RingPhase ild{
      .links = RingPhase::Links::kIpu,
      .replicas = inner,
      .stride = load.stride,
      .synced_ipus = static_cast<uint32_t>(std::min<uint64_t>(members * load.stride, rack)) * ipus};
  const RingPhase gateway{.links = RingPhase::Links::kGateway,
                          .replicas = racks,
                          .synced_ipus = topology.ipus_per_domain};
  const auto bytes = static_cast<double>(load.bytes);
  const auto part = bytes / static_cast<double>(inner);
  Phases phases;
  const auto reduce_scatter = [&] {
    phases.Share(ild, bytes);
    phases.Add(ild, load.elements);
    phases.Share(gateway, part);
    phases.Add(gateway, load.elements / inner);
  };
  const auto all_gather = [&] {
    phases.Share(gateway, part);
    phases.Share(ild, bytes);
  };
  const std::map<program::OpKind, std::function<void()>> plans = {
      {Instruction::kAllReduce,
       [&] {
         reduce_scatter();
         all_gather();
       }},
      {Instruction::kReduceScatter, reduce_scatter},
      {Instruction::kAllGather, all_gather},
      {Instruction::kAllToAll,
       [&] {
         phases.Scatter(ild, bytes);
         phases.Scatter(gateway, bytes);
       }},
      {Instruction::kBroadcast, [&] {
         // Pipelined.
         phases.Pass(gateway, part);
         phases.Pass(ild, bytes);
       }}};
  plans.at(load.kind)();
  return phases.Take();
}

namespace {

TilePlan CollectivePlan(const Instruction& instruction, const PlanContext& context) {
  const program::Collective op = *program::CollectiveOf(instruction);
  // Groups are alike; that they make up the job is checked elsewhere.
  const program::GroupMembers group =
      program::MembersOf(*op.group, context.topology().num_replicas, 0);
  CollectiveLoad load{.kind = op.kind, .members = group.size, .stride = group.stride};
  for (uint32_t tensor : op.carried()) {
    load.bytes += context.Type(tensor).bytes();
    load.elements += context.Elements(tensor);
  }
  return {CollectiveSteps(load, context.topology())};
}

}  // namespace

std::vector<PlanDef> CollectivePlans() {
  return {{Instruction::kAllReduce, CollectivePlan},
          {Instruction::kReduceScatter, CollectivePlan},
          {Instruction::kAllGather, CollectivePlan},
          {Instruction::kAllToAll, CollectivePlan},
          {Instruction::kBroadcast, CollectivePlan}};
}

}  // namespace vpod::model
