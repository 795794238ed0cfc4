// Recurrent layers with the parameters of torch.nn.LSTM and torch.nn.GRU: "weight_ih_l0",
// "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", then "l1" …, and "…_reverse" of the other direction.
// The first state is zero. Steps are unrolled: a graph grows with the length of its sequences.
//
//   Tensor features = nn::Lstm(net, "lstm", x, 128, {.layers = 2}).last;
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "client/nn/builder.h"

namespace vpod::nn {

struct RecurrentOptions {
  int layers = 1;
  bool bidirectional = false;
  float dropout = 0;  // of what a layer gives to the next, in training
};

// A direction's numbers lie behind those of the direction before it in the last dimension.
struct Recurrent {
  Tensor output;  // of the last layer: [batch, time, directions × hidden]
  Tensor last;    // the output at the last step: [batch, directions × hidden]
  // After the last step that a direction makes, of all layers and directions:
  // [layers × directions, batch, hidden].
  Tensor hidden;
  Tensor cell;  // of LSTM only
};

// Sequences [batch, time, features], as PyTorch takes them with batch_first.
Recurrent Lstm(const Builder& net, absl::string_view name, Tensor x, int64_t hidden,
               const RecurrentOptions& options = {});
Recurrent Gru(const Builder& net, absl::string_view name, Tensor x, int64_t hidden,
              const RecurrentOptions& options = {});

}  // namespace vpod::nn
