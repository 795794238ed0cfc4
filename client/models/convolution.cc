#include "client/models/convolution.h"

namespace vpod::models {

graph::Tensor ConvolveAndNormalize(const nn::Builder& net, graph::Tensor x, int64_t outputs,
                                   uint32_t kernel, uint32_t stride, int64_t groups) {
  x = net.Convolution("0", x, outputs,
                      {.kernel = kernel,
                       .stride = stride,
                       .padding = kernel / 2,
                       .groups = static_cast<uint32_t>(groups),
                       .bias = false,
                       .init = nn::ConvolutionOptions::Init::kNormalFanOut});
  return net.BatchNorm("1", x);
}

}  // namespace vpod::models
