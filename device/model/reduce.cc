#include <algorithm>

#include "device/arch/hardware.h"
#include "device/model/ceil_div.h"
#include "device/model/op_prices.h"

namespace vpod::model {

Cost ReduceCost(uint64_t inputs, uint64_t outputs, program::v1::DataType type) {
  const uint64_t vector = type == program::v1::FLOAT16 ? 8 : 4;
  const uint64_t per_tile = CeilDiv(inputs, arch::kTilesPerIpu);
  const uint64_t outputs_per_tile = std::max<uint64_t>(1, CeilDiv(outputs, arch::kTilesPerIpu));
  const uint64_t depth = CeilDiv(per_tile, outputs_per_tile);
  const uint64_t loops = CeilDiv(CeilDiv(outputs_per_tile, vector), arch::kWorkersPerTile);
  Cost cost;
  cost.compute = Cycles(33 + arch::kWorkersPerTile * (20 + loops * (depth + 8)));
  cost += ExchangePhase(per_tile * program::SizeOf(type));
  return cost;
}

namespace {

Cost ReducePrice(uint32_t input, uint32_t output, const PriceContext& context) {
  return ReduceCost(context.Elements(input), context.Elements(output), context.Type(input).type);
}

}  // namespace

std::vector<PriceDef> ReducePrices() {
  return {
      {Instruction::kReduce,
       [](const Instruction& instruction, const PriceContext& context) {
         return ReducePrice(instruction.reduce().input(), instruction.reduce().output(), context);
       },
       arch::kReduceVertexCodeBytes},
      {Instruction::kArgMax,
       [](const Instruction& instruction, const PriceContext& context) {
         return ReducePrice(instruction.arg_max().input(), instruction.arg_max().output(), context);
       },
       arch::kReduceVertexCodeBytes}};
}

}  // namespace vpod::model
