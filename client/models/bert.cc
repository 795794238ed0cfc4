#include "client/models/bert.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/models/language.h"
#include "client/nn/activations.h"
#include "client/nn/attention.h"

namespace vpod::models {

using graph::Graph;
using graph::Tensor;
using nn::Builder;
using nn::FirstValues;

namespace {

constexpr float kEpsilon = 1e-12f;
constexpr double kDeviation = 0.02;  // of first weights

Tensor Dense(const Builder& net, absl::string_view name, Tensor x, int64_t outputs) {
  return net.Linear(name, x, outputs,
                    {.weights = FirstValues::Normal(kDeviation), .bias = FirstValues::Filled(0)});
}

// The rows of a table that INT32 indices name.
Tensor Rows(const Builder& net, Tensor table, Tensor indices) {
  return net.graph().Gather(table, indices, 0);
}

// The end of both halves of a layer: x, projected to the width of what goes past, and that.
Tensor AddAndNormalize(const Builder& net, Tensor x, Tensor past, const BertOptions& options) {
  const Graph::Scope scope = net.EnterScope();
  x = net.Dropout(Dense(net, "dense", x, options.width), options.dropout);
  return net.LayerNorm("LayerNorm", net.graph().Add(x, past), kEpsilon);
}

// The IPU, counted from the graph's, of a half of a layer.
uint32_t IpuOfHalf(const BertOptions& options, int half) {
  if (options.half_layers.empty())
    return options.layers_per_ipu == 0
               ? 0
               : 1 + static_cast<uint32_t>(half / 2 / options.layers_per_ipu);
  uint32_t ipu = 0;
  for (int behind = options.half_layers[0]; behind <= half; behind += options.half_layers[++ipu]) {
  }
  return ipu;
}

Tensor Gelu(Graph& graph, Tensor x, const BertOptions& options) {
  return options.tanh_gelu ? nn::TanhGelu(graph, x) : graph.Gelu(x);
}

// `enter` is called before each half.
template <class Enter>
Tensor Layer(const Builder& net, Tensor x, Tensor mask, const BertOptions& options,
             const Enter& enter) {
  enter(0);
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  const Builder attention = net.In("attention"), self = attention.In("self");
  const auto heads_of = [&](const char* name) {
    return nn::SplitHeads(graph, Dense(self, name, x, options.width), options.heads);
  };
  const Tensor queries = heads_of("query"), keys = heads_of("key"), values = heads_of("value");
  const Tensor mixed =
      nn::Attention(self, queries, keys, values,
                    {.mask = mask, .dropout = options.attention_dropout.value_or(options.dropout)});
  x = AddAndNormalize(attention.In("output"), mixed, x, options);
  enter(1);
  const Tensor inner = Dense(net.In("intermediate"), "dense", x, options.feed_forward);
  return AddAndNormalize(net.In("output"), Gelu(graph, inner, options), x, options);
}

}  // namespace

BertOptions BertTiny() { return {.width = 128, .layers = 2, .heads = 2, .feed_forward = 512}; }
BertOptions BertBase() { return {}; }
BertOptions BertLarge() { return {.width = 1024, .layers = 24, .heads = 16, .feed_forward = 4096}; }

BertOutputs Bert(const Builder& net, const BertInputs& inputs, const BertOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  if (!HeadsDivideWidth(net, "bert", options.heads, options.width)) return {};
  const int halves = std::accumulate(options.half_layers.begin(), options.half_layers.end(), 0);
  if (!options.half_layers.empty() && halves != 2 * options.layers) {
    graph.Fail(absl::InvalidArgumentError(absl::StrCat(
        "bert has ", 2 * options.layers, " half layers, ", halves, " are dealt to IPUs")));
    return {};
  }
  const Builder embeddings = net.In("embeddings");
  const auto table = [&](const char* name, int64_t count) {
    return embeddings.Parameter(absl::StrCat(name, ".weight"),
                                {options.type, {count, options.width}},
                                FirstValues::Normal(kDeviation));
  };
  const Tensor words = table("word_embeddings", options.vocabulary);
  const Tensor positions =
      PositionEmbedding(embeddings, "position_embeddings.weight",
                        {options.type, {options.positions, options.width}}, inputs.tokens);
  if (!graph.status().ok()) return {};
  const Tensor token_types = inputs.token_types.valid()
                                 ? inputs.token_types
                                 : graph.Constant(graph.TypeOf(inputs.tokens), 0);
  const Tensor types = table("token_type_embeddings", options.token_types);
  Tensor x = graph.Add(Rows(net, words, inputs.tokens), Rows(net, types, token_types));
  x = embeddings.LayerNorm("LayerNorm", graph.Add(x, positions), kEpsilon);
  x = net.Dropout(x, options.dropout);
  Tensor mask;
  if (inputs.attended.valid()) mask = nn::PaddingMask(graph, options.type, inputs.attended);
  const uint32_t first = graph.ipu(), stage = graph.stage();
  for (int layer = 0; layer < options.layers; ++layer) {
    x = Layer(net.In("encoder").In("layer").In(absl::StrCat(layer)), x, mask, options,
              [&](int half) {
                const uint32_t next = IpuOfHalf(options, 2 * layer + half);
                graph.SetIpu(first + next);
                graph.SetStage(stage + next);
              });
  }
  // The rest makes up another stage, on the first IPU.
  const bool is_split = graph.ipu() != first;
  graph.SetIpu(first);
  if (is_split) graph.SetStage(graph.stage() + 1);
  return {x, words};
}

Tensor BertPooler(const Builder& net, Tensor hidden) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const graph::Dims dims = graph.TypeOf(hidden).dims;
  const Tensor first =
      graph.Reshape(graph.Slice(hidden, {0, 0, 0}, {dims[0], 1, dims[2]}), {dims[0], dims[2]});
  return graph.Unary(program::v1::TANH, Dense(net.In("pooler"), "dense", first, dims[2]));
}

Tensor BertForClassification(const Builder& net, const BertInputs& inputs,
                             const BertOptions& options, int64_t classes) {
  const Builder bert = net.In("bert");
  const Tensor pooled = BertPooler(bert, Bert(bert, inputs, options).hidden);
  return Dense(net, "classifier", net.Dropout(pooled, options.dropout), classes);
}

Tensor BertForMaskedLanguage(const Builder& net, const BertInputs& inputs,
                             const BertOptions& options) {
  const BertOutputs bert = Bert(net.In("bert"), inputs, options);
  const Builder predictions = net.In("cls").In("predictions"),
                transform = predictions.In("transform");
  const Graph::Scope scope = predictions.EnterScope();
  Tensor hidden = bert.hidden;
  if (options.predictions > 0 && net.graph().status().ok()) {
    graph::Dims dims = net.graph().TypeOf(hidden).dims;
    dims[1] = std::min(dims[1], options.predictions);
    hidden = net.graph().Slice(hidden, {0, 0, 0}, dims);
  }
  Tensor x = Gelu(net.graph(), Dense(transform, "dense", hidden, options.width), options);
  x = transform.LayerNorm("LayerNorm", x, kEpsilon);
  const Tensor bias =
      predictions.Parameter("bias", {options.type, {options.vocabulary}}, FirstValues::Filled(0));
  return predictions.Apply(x, bert.word_embeddings, bias);
}

}  // namespace vpod::models
