#include "device/arch/hardware.h"
#include "device/model/ceil_div.h"
#include "device/model/op_prices.h"

namespace vpod::model {

namespace {

// Elements that change their place: read, brought to another tile, written.
Cost MovePrice(const Instruction& instruction, const PriceContext& context) {
  Cost cost = context.Elementwise(instruction.outputs(0), 2);
  cost += ExchangePhase(CeilDiv(context.Type(instruction.outputs(0)).bytes(), arch::kTilesPerIpu));
  return cost;
}

}  // namespace

std::vector<PriceDef> DataMovementPrices() {
  return {{Instruction::kFill,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.outputs(0), 1);
           }},
          {Instruction::kCopy,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.outputs(0), 2);
           }},
          {Instruction::kCast,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.outputs(0), 3);
           }},
          {Instruction::kTranspose, MovePrice},
          {Instruction::kSlice, MovePrice},
          {Instruction::kExpand, MovePrice},
          {Instruction::kPad, MovePrice},
          {Instruction::kConcat, MovePrice}};
}

}  // namespace vpod::model
