#include <algorithm>
#include <cmath>
#include <map>

#include "device/arch/hardware.h"
#include "device/model/op_prices.h"

namespace vpod::model {
namespace {

Cycles ToCycles(double seconds, double clock_hz) {
  return Cycles(static_cast<uint64_t>(std::ceil(seconds * clock_hz)));
}

}  // namespace

Cost ExchangePhase(uint64_t bytes_per_tile) {
  const double transfer =
      std::ceil(static_cast<double>(bytes_per_tile) / arch::kExchangeBytesPerCycle);
  Cost cost;
  cost.exchange = Cycles(arch::kExchangeFixedCycles + static_cast<uint64_t>(transfer));
  cost.sync = Cycles(arch::kInternalSyncCycles);
  return cost;
}

Cycles HostSyncCycles(const Topology& topology) {
  return ToCycles(arch::kHostSyncSeconds, topology.clock_hz);
}

Cost StreamCost(uint64_t bytes, uint32_t tiles, const Topology& topology) {
  const double rate = std::min(arch::kHostBytesPerSecond, arch::kHostBytesPerSecondPerTile * tiles);
  // The gateway's DDR serves all four IPUs of the machine, and a host byte crosses it twice.
  const double shared = arch::kDdrBytesPerSecond / 2 / arch::kIpusPerMachine;
  Cost cost;
  cost.exchange =
      ToCycles(static_cast<double>(bytes) / std::min(rate, shared) + arch::kStreamRequestSeconds,
               topology.clock_hz);
  cost.sync = arch::ExternalSyncCycles(topology.ipus_per_replica, topology.clock_hz) +
              HostSyncCycles(topology);
  return cost;
}

Cost InterIpuExchangeCost(const std::vector<InterIpuMove>& moves, const Topology& topology) {
  std::map<uint32_t, double> sending, receiving;  // seconds, by IPU
  for (const InterIpuMove& move : moves) {
    const double seconds =
        static_cast<double>(move.bytes) / arch::IpuLinkBytesPerSecond(move.from_ipu, move.to_ipu);
    sending[move.from_ipu] += seconds;
    receiving[move.to_ipu] += seconds;
  }
  double longest = 0;
  for (const auto* ends : {&sending, &receiving}) {
    for (const auto& [ipu, seconds] : *ends) longest = std::max(longest, seconds);
  }
  Cost cost;
  cost.exchange = Cycles(arch::kCollectiveStepCycles) + ToCycles(longest, topology.clock_hz);
  cost.sync = arch::ExternalSyncCycles(topology.ipus_per_replica, topology.clock_hz);
  return cost;
}

namespace {

Bytes StreamBytes(uint32_t stream, const PriceContext& context) {
  return Bytes(program::TypeOf(context.executable().streams(static_cast<int>(stream))).bytes());
}

Cost StreamPrice(uint32_t stream, const PriceContext& context) {
  const uint32_t tiles = context.executable().streams(static_cast<int>(stream)).tiles();
  return StreamCost(StreamBytes(stream, context).value(), tiles == 0 ? arch::kTilesPerIpu : tiles,
                    context.topology());
}

}  // namespace

std::vector<PriceDef> TransferPrices() {
  return {
      {Instruction::kStreamIn,
       [](const Instruction& instruction, const PriceContext& context) {
         Cost cost = StreamPrice(instruction.stream_in().stream(), context);
         cost.from_host = StreamBytes(instruction.stream_in().stream(), context);
         return cost;
       }},
      {Instruction::kStreamOut,
       [](const Instruction& instruction, const PriceContext& context) {
         Cost cost = StreamPrice(instruction.stream_out().stream(), context);
         cost.to_host = StreamBytes(instruction.stream_out().stream(), context);
         return cost;
       }},
      {Instruction::kExchange,
       [](const Instruction& instruction, const PriceContext& context) {
         const program::v1::Executable& executable = context.executable();
         std::vector<InterIpuMove> moves;
         for (const auto& move :
              executable.exchanges(static_cast<int>(instruction.exchange().exchange())).moves()) {
           const auto& tensor = executable.ipus(static_cast<int>(move.from_ipu()))
                                    .tensors(static_cast<int>(move.from_tensor()));
           moves.push_back({program::TypeOf(tensor).bytes(), move.from_ipu(), move.to_ipu()});
         }
         return InterIpuExchangeCost(moves, context.topology());
       }},
  };
}

}  // namespace vpod::model
