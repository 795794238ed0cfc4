#include "client/models/gpt2.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/models/language.h"
#include "client/models/stages.h"
#include "client/nn/activations.h"
#include "client/nn/attention.h"

namespace vpod::models {

using graph::Graph;
using graph::Tensor;
using nn::Builder;
using nn::FirstValues;

namespace {

constexpr double kDeviation = 0.02;  // of first weights

Tensor Dense(const Builder& net, absl::string_view name, Tensor x, int64_t outputs,
             double deviation = kDeviation) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const Builder layer = net.In(name);
  const Graph::Scope scope = layer.EnterScope();
  const graph::TensorType type = graph.TypeOf(x);
  const Tensor weights = layer.Parameter("weight", {type.type, {type.dims.back(), outputs}},
                                         FirstValues::Normal(deviation));
  const Tensor bias = layer.Parameter("bias", {type.type, {outputs}}, FirstValues::Filled(0));
  return net.Apply(x, weights, bias, /*transposed=*/false);
}

Tensor Block(const Builder& net, Tensor x, Tensor mask, const Gpt2Options& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  // Each block adds to the residuals twice; this keeps their variance.
  const double residual = kDeviation / std::sqrt(2.0 * options.layers);
  const Builder attention = net.In("attn"), mlp = net.In("mlp");
  Tensor y = Dense(attention, "c_attn", net.LayerNorm("ln_1", x), 3 * options.width);
  y = nn::PackedSelfAttention(attention, y, options.heads,
                              {.mask = mask, .dropout = options.dropout});
  y = Dense(attention, "c_proj", y, options.width, residual);
  x = graph.Add(x, net.Dropout(y, options.dropout));
  y = Dense(mlp, "c_fc", net.LayerNorm("ln_2", x), 4 * options.width);
  y = Dense(mlp, "c_proj", nn::TanhGelu(graph, y), options.width, residual);
  return graph.Add(x, net.Dropout(y, options.dropout));
}

}  // namespace

Gpt2Options Gpt2Small() { return {}; }
Gpt2Options Gpt2Medium() { return {.width = 1024, .layers = 24, .heads = 16}; }
Gpt2Options Gpt2Large() { return {.width = 1280, .layers = 36, .heads = 20}; }
Gpt2Options Gpt2Xl() { return {.width = 1600, .layers = 48, .heads = 25}; }

Gpt2Outputs Gpt2(const Builder& net, Tensor tokens, const Gpt2Options& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  if (!HeadsDivideWidth(net, "gpt2", options.heads, options.width)) return {};
  const Tensor words =
      net.Parameter("wte.weight", {options.type, {options.vocabulary, options.width}},
                    FirstValues::Normal(kDeviation));
  const Tensor positions = PositionEmbedding(
      net, "wpe.weight", {options.type, {options.positions, options.width}}, tokens);
  if (!graph.status().ok()) return {};
  Tensor x = graph.Add(graph.Gather(words, tokens, 0), positions);
  x = net.Dropout(x, options.dropout);
  const Tensor mask = nn::CausalMask(graph, options.type, graph.TypeOf(tokens).dims[1]);
  Stages stages(graph, options.stages);
  for (int block = 0; block < options.layers; ++block) {
    stages.Enter(absl::StrCat("h.", block));
    x = Block(net.In("h").In(absl::StrCat(block)), x, mask, options);
  }
  if (!stages.End()) return {};
  stages.ReturnToFirst();
  return {net.LayerNorm("ln_f", x), words};
}

Tensor Gpt2ForLanguage(const Builder& net, Tensor tokens, const Gpt2Options& options) {
  const Gpt2Outputs gpt2 = Gpt2(net.In("transformer"), tokens, options);
  const Graph::Scope scope = net.EnterScope();
  return net.Apply(gpt2.hidden, gpt2.word_embeddings, {});
}

}  // namespace vpod::models
