// BERT with the parameter names of the widely used implementation in PyTorch. Unlike there, the
// vector of the padding token is a vector like the others: it is drawn, and trained.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/nn/builder.h"

namespace vpod::models {

struct BertOptions {
  int64_t vocabulary = 30522, positions = 512, token_types = 2;
  int64_t width = 768;
  int layers = 12;
  int64_t heads = 12;                                 // they divide the width
  int64_t feed_forward = 3072;                        // its inner width
  float dropout = 0.1f;                               // in training
  std::optional<float> attention_dropout;             // of attention; as `dropout` if it is not set
  program::v1::DataType type = program::v1::FLOAT32;  // of the parameters
  // This many layers go on each of the IPUs that follow the graph's, as the next stages of a
  // pipeline; the graph's IPU has the rest, before and behind them. 0: the graph's IPU has all.
  int layers_per_ipu = 0;
  // Or halves of layers, attention and feed-forward, on the graph's IPU and on each that follows,
  // as stages, the first may have none; what is behind the last layer makes up another stage, on
  // the graph's IPU. An error of the graph unless they are twice as many as layers.
  std::vector<int> half_layers;
  bool tanh_gelu = false;  // nn::TanhGelu, as PopART's Gelu; else the exact one
  // Tokens of each sequence, from the first on, for which BertForMaskedLanguage gives logits; 0:
  // all. Data are often arranged so that the masked ones come first.
  int64_t predictions = 0;
};

BertOptions BertTiny();
BertOptions BertBase();
BertOptions BertLarge();

// INT32 [batch, tokens].
struct BertInputs {
  graph::Tensor tokens;
  graph::Tensor token_types;  // 0 for all tokens if invalid
  // 1 for tokens that are attended to, 0 for padding; all are attended to if invalid.
  graph::Tensor attended;
};

struct BertOutputs {
  graph::Tensor hidden;           // [batch, tokens, width]
  graph::Tensor word_embeddings;  // the parameter, [vocabulary, width]
};

// The encoder: "embeddings.word_embeddings.weight", "encoder.layer.0.attention.self.query.weight" …
BertOutputs Bert(const nn::Builder& net, const BertInputs& inputs, const BertOptions& options);

// The first token through "pooler.dense" and tanh: [batch, width].
graph::Tensor BertPooler(const nn::Builder& net, graph::Tensor hidden);

// Logits [batch, classes] from the pooled encoder "bert" by "classifier".
graph::Tensor BertForClassification(const nn::Builder& net, const BertInputs& inputs,
                                    const BertOptions& options, int64_t classes);

// Logits [batch, tokens or predictions, vocabulary] from the encoder "bert" without pooler: by
// "cls.predictions.transform", the word embeddings and "cls.predictions.bias".
graph::Tensor BertForMaskedLanguage(const nn::Builder& net, const BertInputs& inputs,
                                    const BertOptions& options);

}  // namespace vpod::models
