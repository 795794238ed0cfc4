// EfficientNet with the structure and the parameter names of torchvision.models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/nn/builder.h"

namespace vpod::models {

struct EfficientNetOptions {
  // Factors of the channels and of the blocks of a stage, compared with B0.
  double width = 1, depth = 1;
  int64_t classes = 1000;
  float dropout = 0.2f;  // before the last layer, in training
  // The probability with which the last block leaves out its residual for an image, in training; it
  // falls evenly to 0 for the first block.
  float stochastic_depth = 0.2f;
  // For images of 32 × 32: the first convolution, and the first block that would halve the image,
  // have a stride of 1.
  bool small_images = false;
  int64_t expansion = 6;   // how much wider blocks but the first are inside
  int64_t group_size = 1;  // channels of a group of the convolutions in the middle
  // Blocks with which the next stage of a pipeline begins, on the next IPU: "features.2.0". Those
  // that the network does not have are an error of the graph.
  std::vector<std::string> stages;
};

EfficientNetOptions EfficientNetB0();
EfficientNetOptions EfficientNetB4();
// With groups of 16 channels and less expansion: Masters et al., "Making EfficientNet more
// efficient", 2021.
EfficientNetOptions EfficientNetB4Group16();

// Images [batch, 3, height, width] to logits [batch, classes].
graph::Tensor EfficientNet(const nn::Builder& net, graph::Tensor images,
                           const EfficientNetOptions& options);

}  // namespace vpod::models
