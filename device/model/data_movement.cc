#include "device/model/op_prices.h"

namespace vpod::model {

std::vector<PriceDef> DataMovementPrices() {
  return {{Instruction::kFill,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.outputs(0), 1);
           }},
          {Instruction::kCopy,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.outputs(0), 2);
           }},
          {Instruction::kCast, [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.outputs(0), 3);
           }}};
}

}  // namespace vpod::model
