#include "device/model/op_prices.h"

namespace vpod::model {
namespace {

// A pass over x for the moments (or for the two sums of the gradient), their reduction, and a pass
// that multiplies and adds.
Cost NormalizePrice(const Instruction& instruction, const PriceContext& context) {
  const uint32_t x = instruction.inputs(0);
  const uint64_t channels = context.Elements(instruction.outputs(1));
  Cost cost = context.Elementwise(x, 6);
  cost += ReduceCost(context.Elements(x), 2 * channels, context.Type(x).type);
  cost += context.Elementwise(x, 6);
  return cost;
}

}  // namespace

std::vector<PriceDef> BatchNormPrices() {
  return {{Instruction::kBatchNorm, NormalizePrice},
          {Instruction::kBatchNormInference,
           [](const Instruction& instruction, const PriceContext& context) {
             return context.Elementwise(instruction.inputs(0), 6);
           }},
          {Instruction::kBatchNormGradient, NormalizePrice}};
}

}  // namespace vpod::model
