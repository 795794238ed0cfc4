#include "device/model/op_prices.h"

namespace vpod::model {

std::vector<PriceDef> OptimizerPrices() {
  return {{Instruction::kAccumulate,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.inputs(1), 3);
           }},
          {Instruction::kSgd, [](const Instruction& instruction, const PriceContext& context) {
             const bool has_velocity = instruction.inputs_size() > 3;
             return context.Elementwise(instruction.inputs(0), has_velocity ? 9 : 3);
           }}};
}

}  // namespace vpod::model
