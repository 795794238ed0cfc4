// Vision transformers with the structure and the parameter names of torchvision.models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/nn/builder.h"

namespace vpod::models {

struct VisionTransformerOptions {
  uint32_t patch = 16;  // pixels of an edge; it divides the edges of the images
  int64_t width = 768;
  int layers = 12;
  int64_t heads = 12;  // they divide the width
  int64_t mlp = 3072;  // its inner width
  float dropout = 0;   // in training
  int64_t classes = 1000;
  // Layers with which the next stage of a pipeline begins, on the next IPU: "encoder_layer_4".
  // Layers that the model does not have are an error of the graph.
  std::vector<std::string> stages;
};

VisionTransformerOptions VitB16();

// Images [batch, 3, height, width] to logits [batch, classes]. The positions that the model learns
// are those of the patches of images of this size.
graph::Tensor VisionTransformer(const nn::Builder& net, graph::Tensor images,
                                const VisionTransformerOptions& options);

}  // namespace vpod::models
