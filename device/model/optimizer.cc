#include "device/model/op_prices.h"

namespace vpod::model {

std::vector<PriceDef> OptimizerPrices() {
  return {{Instruction::kAccumulate,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.accumulate().gradient(), 3);
           }},
          {Instruction::kSgd, [](const Instruction& instruction, const PriceContext& context) {
             const program::v1::Sgd& op = instruction.sgd();
             return context.Elementwise(op.weights(), op.has_velocity() ? 9 : 3);
           }}};
}

}  // namespace vpod::model
