// Classifiers of sequences: recurrent layers, and a linear layer of their last output.
#pragma once

#include <cstdint>

#include "client/nn/recurrent.h"

namespace vpod::models {

struct RecurrentClassifierOptions {
  // The sequences are tokens below `vocabulary`, which get vectors of `embedding` elements; 0: they
  // are features already.
  int64_t vocabulary = 0;
  int64_t embedding = 128;
  int64_t hidden = 128;
  nn::RecurrentOptions recurrent;
  int64_t classes = 10;
  program::v1::DataType type = program::v1::FLOAT32;  // of the embedding
};

// INT32 tokens [batch, time] or features [batch, time, features] to logits [batch, classes]:
// "embedding.weight", "lstm.weight_ih_l0" or "gru.weight_ih_l0" …, "fc.weight", "fc.bias".
graph::Tensor LstmClassifier(const nn::Builder& net, graph::Tensor sequences,
                             const RecurrentClassifierOptions& options);
graph::Tensor GruClassifier(const nn::Builder& net, graph::Tensor sequences,
                            const RecurrentClassifierOptions& options);

}  // namespace vpod::models
