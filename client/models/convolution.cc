#include "client/models/convolution.h"

#include <algorithm>

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

int64_t Scaled(int64_t channels, double factor) {
  const double exact = static_cast<double>(channels) * factor;
  const int64_t multiple = std::max<int64_t>(8, static_cast<int64_t>(exact + 4) / 8 * 8);
  return static_cast<double>(multiple) < 0.9 * exact ? multiple + 8 : multiple;
}

}  // namespace vpod::models
