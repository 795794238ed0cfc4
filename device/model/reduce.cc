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

Cost ReducePrice(const Instruction& instruction, const PriceContext& context) {
  const program::TensorType input = context.Type(instruction.inputs(0));
  return ReduceCost(static_cast<uint64_t>(input.elements()),
                    context.Elements(instruction.outputs(0)), input.type);
}

}  // namespace

std::vector<PriceDef> ReducePrices() {
  return {{Instruction::kReduce, ReducePrice, arch::kReduceVertexCodeBytes},
          {Instruction::kArgMax, ReducePrice, arch::kReduceVertexCodeBytes}};
}

}  // namespace vpod::model
