// Residual networks with the structure and the parameter names of torchvision.models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/nn/builder.h"

namespace vpod::models {

struct ResNetOptions {
  std::vector<int> blocks = {2, 2, 2, 2};  // of the four layers
  bool bottleneck = false;                 // blocks of three convolutions instead of two
  uint32_t groups = 1;                     // of the 3 × 3 convolution of a bottleneck
  int64_t width_per_group = 64;
  int64_t classes = 1000;
  // For images of 32 × 32: the first convolution is 3 × 3 with stride 1, and no pooling follows.
  bool small_images = false;
  // Blocks with which the next stage of a pipeline begins, on the next IPU: "layer2.0". Unknown
  // ones are an error of the graph.
  std::vector<std::string> stages;
  // Blocks whose outputs are kept where activations are computed again (Graph::Checkpoint).
  std::vector<std::string> checkpoints;
};

ResNetOptions ResNet18();
ResNetOptions ResNet34();
ResNetOptions ResNet50();
ResNetOptions ResNet101();
ResNetOptions ResNext101_32x8d();

// Images [batch, 3, height, width] to logits [batch, classes].
graph::Tensor ResNet(const nn::Builder& net, graph::Tensor images, const ResNetOptions& options);

}  // namespace vpod::models
