// An encoder of transformer layers with the structure and the parameter names of
// torch.nn.TransformerEncoder, without dropout.
#pragma once

#include <cstdint>

#include "client/nn/builder.h"

namespace vpod::models {

struct TransformerOptions {
  int layers = 2;
  int64_t heads = 4;         // of a layer; they divide the width of the tokens
  int64_t feed_forward = 0;  // its inner width; 0: four times the width
  bool gelu = false;         // instead of ReLU
  bool norm_first = false;   // layer norms before attention and feed-forward instead of behind them
};

// Tokens [batch, tokens, width] to others of the same shape: "layers.0.self_attn.in_proj_weight" …
graph::Tensor TransformerEncoder(const nn::Builder& net, graph::Tensor tokens,
                                 const TransformerOptions& options);

}  // namespace vpod::models
