// Parts that several of torchvision's models have.
#pragma once

#include <cstdint>

#include "client/nn/builder.h"

namespace vpod::models {

// A convolution without bias, layer "0" of `net`, padded so that a stride of 1 keeps the size, and
// its batch norm, layer "1".
graph::Tensor ConvolveAndNormalize(const nn::Builder& net, graph::Tensor x, int64_t outputs,
                                   uint32_t kernel, uint32_t stride = 1, int64_t groups = 1);

// Channels of a network that is wider or narrower by a factor: a multiple of 8 near to the product,
// and not less than nine tenths of it.
int64_t Scaled(int64_t channels, double factor);

}  // namespace vpod::models
