// MobileNetV2 with the structure and the parameter names of torchvision.models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/nn/builder.h"

namespace vpod::models {

struct MobileNetOptions {
  double width = 1;  // factor of the channels
  int64_t classes = 1000;
  float dropout = 0.2f;  // before the last layer, in training
  // For images of 32 × 32: the first convolution, and the first block that would halve the image,
  // have a stride of 1.
  bool small_images = false;
  // Blocks with which the next stage of a pipeline begins, on the next IPU: "features.4". Those
  // that the network does not have are an error of the graph.
  std::vector<std::string> stages;
};

// Images [batch, 3, height, width] to logits [batch, classes].
graph::Tensor MobileNetV2(const nn::Builder& net, graph::Tensor images,
                          const MobileNetOptions& options);

}  // namespace vpod::models
