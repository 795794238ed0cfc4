#include "device/model/op_prices.h"

namespace vpod::model {

std::vector<PriceDef> LossPrices() {
  return {{Instruction::kSoftmaxCrossEntropy,
           [](const Instruction& instruction, const PriceContext& context) {
             // Maximum, subtraction, exponential, sum, division and logarithm.
             return context.Elementwise(instruction.inputs(0), 25);
           }},
          {Instruction::kSoftmaxCrossEntropyGradient,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.inputs(0), 6);
           }}};
}

}  // namespace vpod::model
