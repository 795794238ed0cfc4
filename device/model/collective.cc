#include "device/program/ops/collective.h"

#include <algorithm>
#include <cmath>

#include "device/arch/hardware.h"
#include "device/model/ceil_div.h"
#include "device/model/op_prices.h"

namespace vpod::model {
namespace {

// Replicas that pass data around a ring of links.
struct Ring {
  uint64_t replicas = 1;
  double bytes_per_second = 0;
  double step_seconds = 0;
  Cycles step_sync;
};

// One phase: `volume` bytes pass every link of the ring in replicas - 1 steps.
Cost Phase(const Ring& ring, double volume, const Topology& topology) {
  Cost cost;
  if (ring.replicas <= 1) return cost;
  const uint64_t steps = ring.replicas - 1;
  const double seconds =
      volume / ring.bytes_per_second + static_cast<double>(steps) * ring.step_seconds;
  cost.exchange = Cycles(static_cast<uint64_t>(std::ceil(seconds * topology.clock_hz)) +
                         steps * arch::kCollectiveStepCycles);
  cost.sync = ring.step_sync * steps;
  return cost;
}

// Reduce-scatter, or all-gather, of `bytes` on each replica.
Cost Share(const Ring& ring, double bytes, const Topology& topology) {
  const auto n = static_cast<double>(ring.replicas);
  return Phase(ring, (n - 1) / n * bytes, topology);
}

// Additions of a reduce-scatter: each step takes 1/n of the elements.
Cost Additions(const Ring& ring, uint64_t elements) {
  Cost cost;
  const uint64_t n = ring.replicas;
  cost.compute = ElementwiseCycles(CeilDiv(elements, n), program::v1::FLOAT32, 3) * (n - 1);
  return cost;
}

}  // namespace

Cost CollectiveCost(const CollectiveLoad& load, const Topology& topology) {
  const uint64_t members = load.members;
  if (members <= 1) return {};
  const uint32_t ipus = topology.ipus_per_replica;
  const uint64_t rack = std::max<uint64_t>(1, topology.ipus_per_domain / ipus);  // replicas
  // Members of a group in one rack, and racks that a group spans.
  const uint64_t inner = std::clamp<uint64_t>(rack / load.stride, 1, members);
  const uint64_t racks = CeilDiv(members, inner);
  const Ring ild{inner, arch::kRingBytesPerSecond, arch::kLinkHopSeconds,
                 arch::ExternalSyncCycles(
                     static_cast<uint32_t>(std::min<uint64_t>(members * load.stride, rack)) * ipus,
                     topology.clock_hz)};
  // Both ports of a machine, shared by its IPUs; a sync goes to the other rack and back.
  const Ring gateway{
      racks, 2 * arch::kGwPortBytesPerSecond / arch::kIpusPerMachine, arch::kGwHopSeconds,
      arch::ExternalSyncCycles(arch::kMaxIpusPerLinkDomain, topology.clock_hz) +
          Cycles(static_cast<uint64_t>(std::ceil(2 * arch::kGwHopSeconds * topology.clock_hz)))};
  const auto bytes = static_cast<double>(load.bytes);
  const auto part = bytes / static_cast<double>(inner);
  const auto across = [&](const Ring& ring, double volume) {
    return volume * std::max(1.0, static_cast<double>(ring.replicas) / 4) *
           static_cast<double>(ring.replicas - 1) / static_cast<double>(ring.replicas);
  };
  Cost cost;
  switch (load.kind) {
    case Instruction::kAllReduce:
      cost += Share(ild, bytes, topology);
      cost += Share(gateway, part, topology) * 2;
      cost += Share(ild, bytes, topology);
      cost += Additions(ild, load.elements);
      cost += Additions(gateway, load.elements / inner);
      break;
    case Instruction::kReduceScatter:
      cost += Share(ild, bytes, topology);
      cost += Share(gateway, part, topology);
      cost += Additions(ild, load.elements);
      cost += Additions(gateway, load.elements / inner);
      break;
    case Instruction::kAllGather:
      cost += Share(gateway, part, topology);
      cost += Share(ild, bytes, topology);
      break;
    case Instruction::kAllToAll:
      cost += Phase(ild, across(ild, bytes), topology);
      cost += Phase(gateway, across(gateway, bytes), topology);
      break;
    default:  // a broadcast, pipelined
      cost += Phase(gateway, part, topology);
      cost += Phase(ild, bytes, topology);
  }
  return cost;
}

namespace {

Cost CollectivePrice(const Instruction& instruction, const PriceContext& context) {
  const program::Collective op = *program::CollectiveOf(instruction);
  // Groups are alike; that they make up the job is checked elsewhere.
  const program::GroupMembers group =
      program::MembersOf(*op.group, context.topology().num_replicas, 0);
  CollectiveLoad load{.kind = op.kind, .members = group.size, .stride = group.stride};
  for (uint32_t tensor : op.kind == Instruction::kAllGather ? *op.outputs : *op.inputs) {
    load.bytes += context.Type(tensor).bytes();
    load.elements += context.Elements(tensor);
  }
  return CollectiveCost(load, context.topology());
}

}  // namespace

std::vector<PriceDef> CollectivePrices() {
  return {{Instruction::kAllReduce, CollectivePrice},
          {Instruction::kReduceScatter, CollectivePrice},
          {Instruction::kAllGather, CollectivePrice},
          {Instruction::kAllToAll, CollectivePrice},
          {Instruction::kBroadcast, CollectivePrice}};
}

}  // namespace vpod::model
