// The network of PopTorch's pipelining tutorial, with its parameter names.
#pragma once

#include "client/nn/builder.h"

namespace vpod::models {

// Images [batch, 1, 28, 28] to logits [batch, 10].
graph::Tensor Mnist(const nn::Builder& net, graph::Tensor images);

}  // namespace vpod::models
