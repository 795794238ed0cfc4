#include "device/model/op_prices.h"

namespace vpod::model {
namespace {

// A convolution is the matmul of its unrolled windows (all three passes).
Cost Conv2dPrice(const Instruction& instruction, const PriceContext& context) {
  const program::v1::Conv2d& op = instruction.conv2d();
  const program::TensorType a = context.Type(instruction.inputs(0)),
                            b = context.Type(instruction.inputs(1)),
                            output = context.Type(instruction.outputs(0));
  const auto multiply = [](const program::Dims& d, size_t first, size_t last) {
    uint64_t n = 1;
    for (size_t i = first; i < last; ++i) n *= static_cast<uint64_t>(d[i]);
    return n;
  };
  if (op.pass() == program::v1::Conv2d::INPUT_GRADIENT) {
    return MatMulCost(multiply(a.dims, 0, 3), static_cast<uint64_t>(a.dims[3]),
                      multiply(b.dims, 0, 3), a.type);
  }
  return MatMulCost(multiply(output.dims, 0, 3), multiply(b.dims, 0, 3), output.dims[3], a.type);
}

}  // namespace

std::vector<PriceDef> Conv2dPrices() {
  return {{Instruction::kConv2D, Conv2dPrice, arch::kAmpVertexCodeBytes}};
}

}  // namespace vpod::model
