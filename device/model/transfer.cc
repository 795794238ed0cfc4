#include <algorithm>
#include <cmath>

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

Cost InterIpuCopyCost(uint64_t bytes, uint32_t from_ipu, uint32_t to_ipu,
                      const Topology& topology) {
  Cost cost;
  cost.exchange =
      Cycles(arch::kCollectiveStepCycles) +
      ToCycles(static_cast<double>(bytes) / arch::IpuLinkBytesPerSecond(from_ipu, to_ipu),
               topology.clock_hz);
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
      {Instruction::kSend,
       [](const Instruction& instruction, const PriceContext& context) {
         const program::v1::Send& op = instruction.send();
         return InterIpuCopyCost(context.Type(op.tensor()).bytes(), context.ipu(), op.to_ipu(),
                                 context.topology());
       }},
      {Instruction::kReceive,
       [](const Instruction& instruction, const PriceContext& context) {
         const program::v1::Receive& op = instruction.receive();
         return InterIpuCopyCost(context.Type(op.tensor()).bytes(), op.from_ipu(), context.ipu(),
                                 context.topology());
       }},
  };
}

}  // namespace vpod::model
