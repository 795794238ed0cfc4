#include "device/model/op_prices.h"

namespace vpod::model {
namespace {

Cost PoolPrice(uint32_t result, const program::v1::Window& window, const PriceContext& context) {
  Cost cost;
  cost.compute = ElementwiseCycles(context.Elements(result) * window.kernel_h() * window.kernel_w(),
                                   context.Type(result).type, 3);
  return cost;
}

}  // namespace

std::vector<PriceDef> PoolPrices() {
  return {{Instruction::kMaxPool2D,
           [](const Instruction& instruction, const PriceContext& context) {
             return PoolPrice(instruction.outputs(0), instruction.max_pool2d().window(), context);
           }},
          {Instruction::kMaxPool2DGradient,
           [](const Instruction& instruction, const PriceContext& context) {
             return PoolPrice(instruction.inputs(1), instruction.max_pool2d_gradient().window(),
                              context);
           }}};
}

}  // namespace vpod::model
