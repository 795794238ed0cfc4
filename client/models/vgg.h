// VGG networks with the structure and the parameter names of torchvision.models.
#pragma once

#include <cstdint>
#include <vector>

#include "client/nn/builder.h"

namespace vpod::models {

struct VggOptions {
  std::vector<int> convolutions = {2, 2, 3, 3, 3};  // of each stage; a pooling follows
  // Channels of the first stage; each stage has twice as many as the one before, up to eight times
  // these.
  int64_t width = 64;
  int64_t pooled = 7;     // pixels of an edge of what the first linear layer sees
  int64_t hidden = 4096;  // width of the first two linear layers
  float dropout = 0.5f;   // behind them, in training
  int64_t classes = 1000;
};

VggOptions Vgg16();

// Images [batch, 3, height, width] to logits [batch, classes].
graph::Tensor Vgg(const nn::Builder& net, graph::Tensor images, const VggOptions& options);

}  // namespace vpod::models
