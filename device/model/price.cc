#include <algorithm>
#include <cmath>
#include <map>

#include "device/arch/hardware.h"
#include "device/model/op_plans.h"
#include "device/program/op.h"

namespace vpod::model {
namespace {

Cycles ToCycles(double seconds, const Topology& topology) {
  return Cycles(static_cast<uint64_t>(std::ceil(seconds * topology.clock_hz)));
}

// 7.1
Cost PriceStep(const ComputeSet& set, const Topology&) {
  Cost cost;
  for (const TileWork& tile : set.classes) {
    cost.compute = std::max(
        cost.compute,
        Cycles(tile.supervisor_cycles + arch::kWorkersPerTile * tile.worker_cycles) * tile.calls);
  }
  return cost;
}

// 7.1, F10
Cost PriceStep(const TileExchange& exchange, const Topology&) {
  uint64_t bytes = 0;
  for (const TileTraffic& tile : exchange.classes) bytes = std::max(bytes, tile.bytes);
  const double transfer = std::ceil(static_cast<double>(bytes) / arch::kExchangeBytesPerCycle);
  Cost cost;
  cost.exchange = Cycles(arch::kExchangeFixedCycles + static_cast<uint64_t>(transfer));
  cost.sync = Cycles(arch::kInternalSyncCycles);
  return cost;
}

// F2, F19, 3.3
Cost PriceStep(const StreamTransfer& transfer, const Topology& topology) {
  const double rate =
      std::min(arch::kHostBytesPerSecond, arch::kHostBytesPerSecondPerTile * transfer.tiles);
  // The gateway's DDR serves all IPUs of the machine, and a host byte crosses it twice.
  const double shared = arch::kDdrBytesPerSecond / 2 / transfer.sharing_ipus;
  Cost cost;
  cost.exchange = ToCycles(
      static_cast<double>(transfer.bytes) / std::min(rate, shared) + arch::kStreamRequestSeconds,
      topology);
  cost.sync = arch::ExternalSyncCycles(topology.ipus_per_replica, topology.clock_hz) +
              HostSyncCycles(topology);
  (transfer.to_host ? cost.to_host : cost.from_host) = Bytes(transfer.bytes);
  return cost;
}

// F2, F3, F19: the IPUs of the machine share its memory.
Cost PriceStep(const RemoteTransfer& transfer, const Topology& topology) {
  const double rate =
      std::min({arch::kHostBytesPerSecond, arch::kHostBytesPerSecondPerTile * transfer.tiles,
                arch::kDdrBytesPerSecond / transfer.sharing_ipus});
  Cost cost;
  cost.exchange =
      ToCycles(static_cast<double>(transfer.bytes) / rate + arch::kStreamRequestSeconds, topology);
  cost.sync = arch::ExternalSyncCycles(topology.ipus_per_replica, topology.clock_hz);
  (transfer.store ? cost.to_streaming_memory : cost.from_streaming_memory) = Bytes(transfer.bytes);
  cost.with_streaming_memory = cost.exchange + cost.sync;
  return cost;
}

// 3.2
Cost PriceStep(const InterIpuExchange& exchange, const Topology& topology) {
  std::map<uint32_t, double> sending, receiving;  // seconds, by IPU
  Cost cost;
  for (const InterIpuMove& move : exchange.moves) {
    const double seconds =
        static_cast<double>(move.bytes) / arch::IpuLinkBytesPerSecond(move.from_ipu, move.to_ipu);
    sending[move.from_ipu] += seconds;
    if (move.from_ipu == exchange.ipu) cost.over_ipu_links += Bytes(move.bytes);
    receiving[move.to_ipu] += seconds;
  }
  double longest = 0;
  for (const auto* ends : {&sending, &receiving}) {
    for (const auto& [ipu, seconds] : *ends) longest = std::max(longest, seconds);
  }
  cost.exchange = Cycles(arch::kCollectiveStepCycles) + ToCycles(longest, topology);
  cost.sync = arch::ExternalSyncCycles(topology.ipus_per_replica, topology.clock_hz);
  return cost;
}

// Section 4, F11, F16, F17
Cost PriceStep(const RingPhase& ring, const Topology& topology) {
  const bool gateway = ring.links == RingPhase::Links::kGateway;
  // Both ports of a machine, shared by its IPUs.
  const double bytes_per_second =
      gateway ? 2 * arch::kGwPortBytesPerSecond / arch::kIpusPerMachine
              : arch::RingBytesPerSecond(topology.ipus_per_replica * ring.stride);
  const double hop_seconds = gateway ? arch::kGwHopSeconds : arch::kLinkHopSeconds;
  Cycles step_sync = arch::ExternalSyncCycles(ring.synced_ipus, topology.clock_hz);
  if (gateway) step_sync += ToCycles(2 * hop_seconds, topology);  // to the other rack and back
  const uint64_t steps = ring.replicas - 1;
  Cost cost;
  cost.exchange =
      ToCycles(ring.bytes / bytes_per_second + static_cast<double>(steps) * hop_seconds, topology) +
      Cycles(steps * arch::kCollectiveStepCycles);
  cost.sync = step_sync * steps;
  (gateway ? cost.over_gw_links : cost.over_ipu_links) =
      Bytes(static_cast<uint64_t>(std::ceil(ring.bytes)));
  return cost;
}

}  // namespace

Cycles HostSyncCycles(const Topology& topology) {
  return ToCycles(arch::kHostSyncSeconds, topology);
}

Cost PriceOfStep(const PlanStep& step, const Topology& topology) {
  return std::visit([&](const auto& work) { return PriceStep(work, topology); }, step.work) *
         step.times;
}

Cost PricePlan(const TilePlan& plan, const Topology& topology) {
  Cost cost;
  uint64_t program_steps = 0;
  for (const PlanStep& step : plan.steps) {
    if (IsProgramStep(step)) program_steps += step.times;
    cost += PriceOfStep(step, topology);
  }
  cost.compute += Cycles(arch::kControlCyclesPerStep) * std::max<uint64_t>(1, program_steps);
  return cost;
}

Cost& Cost::operator+=(const Cost& other) {
  compute += other.compute;
  exchange += other.exchange;
  sync += other.sync;
  from_host += other.from_host;
  to_host += other.to_host;
  flops += other.flops;
  over_ipu_links += other.over_ipu_links;
  over_gw_links += other.over_gw_links;
  from_streaming_memory += other.from_streaming_memory;
  to_streaming_memory += other.to_streaming_memory;
  with_streaming_memory += other.with_streaming_memory;
  return *this;
}

Cost operator*(Cost cost, uint64_t times) {
  return {.compute = cost.compute * times,
          .exchange = cost.exchange * times,
          .sync = cost.sync * times,
          .from_host = cost.from_host * times,
          .to_host = cost.to_host * times,
          .flops = cost.flops * static_cast<double>(times),
          .over_ipu_links = cost.over_ipu_links * times,
          .over_gw_links = cost.over_gw_links * times,
          .from_streaming_memory = cost.from_streaming_memory * times,
          .to_streaming_memory = cost.to_streaming_memory * times,
          .with_streaming_memory = cost.with_streaming_memory * times};
}

Cost Price(const Instruction& instruction, const PlanContext& context) {
  Cost cost = PricePlan(Plan(instruction, context), context.topology());
  program::Types inputs, outputs;
  for (uint32_t tensor : instruction.inputs()) inputs.push_back(context.Type(tensor));
  for (uint32_t tensor : instruction.outputs()) outputs.push_back(context.Type(tensor));
  cost.flops = program::Flops(instruction, inputs, outputs);
  return cost;
}

Cost PriceProgram(const program::v1::Executable& executable, uint32_t program, uint32_t ipu,
                  const Topology& topology) {
  Cost total;
  const PlanContext context(executable, ipu, topology);
  const program::v1::Program& entry = executable.programs(static_cast<int>(program));
  const program::v1::Ipu& text = executable.ipus(static_cast<int>(ipu));
  program::ForEachInstruction(
      text, program::PlannedExecutions(text, entry.functions(static_cast<int>(ipu))),
      [&](const Instruction& instruction, uint64_t times) {
        total += Price(instruction, context) * times;
      });
  return total;
}

}  // namespace vpod::model
