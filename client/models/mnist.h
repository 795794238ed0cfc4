// The network of PopTorch's pipelining tutorial, with its parameter names.
#pragma once

#include "client/nn/builder.h"

namespace vpod::models {

// Images [batch, 1, 28, 28] to logits [batch, 10].
graph::Tensor Mnist(const nn::Builder& net, graph::Tensor images);
// The same with each layer on an IPU of its own, as a stage of a pipeline: four from the graph's
// on.
graph::Tensor MnistOfFourStages(const nn::Builder& net, graph::Tensor images);

}  // namespace vpod::models
