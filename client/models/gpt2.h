// GPT-2 with the parameter names of its published weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/nn/builder.h"

namespace vpod::models {

struct Gpt2Options {
  int64_t vocabulary = 50257, positions = 1024;
  int64_t width = 768;
  int layers = 12;
  int64_t heads = 12;                                 // they divide the width
  float dropout = 0.1f;                               // in training
  program::v1::DataType type = program::v1::FLOAT32;  // of the parameters
  // Blocks with which the next stage of a pipeline begins, on the next IPU: "h.4". What is behind
  // the last block makes up another stage, on the graph's IPU, which has the word embeddings.
  // Blocks that the model does not have are an error of the graph.
  std::vector<std::string> stages;
};

Gpt2Options Gpt2Small();
Gpt2Options Gpt2Medium();
Gpt2Options Gpt2Large();
Gpt2Options Gpt2Xl();

struct Gpt2Outputs {
  graph::Tensor hidden;           // [batch, tokens, width]
  graph::Tensor word_embeddings;  // the parameter, [vocabulary, width]
};

// INT32 tokens [batch, tokens], each of which attends to itself and those before: "wte.weight",
// "h.0.attn.c_attn.weight" … Weights of layers are [inputs, outputs].
Gpt2Outputs Gpt2(const nn::Builder& net, graph::Tensor tokens, const Gpt2Options& options);

// Logits [batch, tokens, vocabulary] of the token behind each, from the model "transformer" by its
// word embeddings.
graph::Tensor Gpt2ForLanguage(const nn::Builder& net, graph::Tensor tokens,
                              const Gpt2Options& options);

}  // namespace vpod::models
