#include "device/model/op_prices.h"

namespace vpod::model {

std::vector<PriceDef> LossPrices() {
  return {{Instruction::kSoftmaxCrossEntropy,
           [](const Instruction& instruction, const PriceContext& context) {
             // Maximum, subtraction, exponential, sum, division and logarithm.
             return context.Elementwise(instruction.softmax_cross_entropy().logits(), 25);
           }},
          {Instruction::kSoftmaxCrossEntropyGradient,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(
                 instruction.softmax_cross_entropy_gradient().probabilities(), 6);
           }}};
}

}  // namespace vpod::model
