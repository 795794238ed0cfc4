#include <utility>

#include "device/arch/hardware.h"
#include "device/model/op_plans.h"

namespace vpod::model {

PlanStep TileExchangeStep(uint64_t bytes_per_tile, uint64_t fragments) {
  return TileExchangeStep(
      {.bytes = bytes_per_tile, .fragments = fragments, .sent_bytes = bytes_per_tile});
}

PlanStep TileExchangeStep(const TileTraffic& each_tile) {
  TileTraffic traffic = each_tile;
  traffic.tiles = arch::kTilesPerIpu;
  return {TileExchange{{traffic}}};
}

namespace {

TilePlan StreamPlan(bool to_host, uint32_t index, const PlanContext& context) {
  const program::v1::Stream& stream = context.executable().streams(static_cast<int>(index));
  return {{{StreamTransfer{.to_host = to_host,
                           .bytes = program::TypeOf(stream).bytes(),
                           .tiles = stream.tiles() == 0 ? arch::kTilesPerIpu : stream.tiles(),
                           .sharing_ipus = context.streaming_ipus()}}}};
}

TilePlan RemotePlan(bool store, uint32_t tensor, const PlanContext& context) {
  return {{{RemoteTransfer{.store = store,
                           .bytes = context.Type(tensor).bytes(),
                           .sharing_ipus = context.remote_ipus()}}}};
}

TilePlan ExchangePlan(const Instruction& instruction, const PlanContext& context) {
  const program::v1::Executable& executable = context.executable();
  InterIpuExchange exchange{.moves = {}, .ipu = context.ipu()};
  for (const auto& move :
       executable.exchanges(static_cast<int>(instruction.exchange().exchange())).moves()) {
    const auto& tensor = executable.ipus(static_cast<int>(move.from_ipu()))
                             .tensors(static_cast<int>(move.from_tensor()));
    exchange.moves.push_back({program::TypeOf(tensor).bytes(), move.from_ipu(), move.to_ipu()});
  }
  return {{{std::move(exchange)}}};
}

}  // namespace

std::vector<PlanDef> TransferPlans() {
  return {{Instruction::kStreamIn,
           [](const Instruction& instruction, const PlanContext& context) {
             return StreamPlan(false, instruction.stream_in().stream(), context);
           },
           ResultsLie::kInPlace},
          {Instruction::kStreamOut,
           [](const Instruction& instruction, const PlanContext& context) {
             return StreamPlan(true, instruction.stream_out().stream(), context);
           }},
          {Instruction::kRemoteLoad,
           [](const Instruction& instruction, const PlanContext& context) -> TilePlan {
             return RemotePlan(false, instruction.outputs(0), context);
           },
           ResultsLie::kInPlace},
          {Instruction::kRemoteStore,
           [](const Instruction& instruction, const PlanContext& context) -> TilePlan {
             return RemotePlan(true, instruction.inputs(0), context);
           }},
          {Instruction::kExchange, ExchangePlan}};
}

}  // namespace vpod::model
