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
             const program::v1::MaxPool2d& op = instruction.max_pool2d();
             return PoolPrice(op.output(), op.window(), context);
           }},
          {Instruction::kMaxPool2DGradient,
           [](const Instruction& instruction, const PriceContext& context) {
             const program::v1::MaxPool2dGradient& op = instruction.max_pool2d_gradient();
             return PoolPrice(op.output_gradient(), op.window(), context);
           }}};
}

}  // namespace vpod::model
