#include "client/models/bert.h"

#include "absl/strings/str_cat.h"
#include "client/models/language.h"
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

Tensor Layer(const Builder& net, Tensor x, Tensor mask, const BertOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  const Builder attention = net.In("attention"), self = attention.In("self");
  const auto heads_of = [&](const char* name) {
    return nn::SplitHeads(graph, Dense(self, name, x, options.width), options.heads);
  };
  const Tensor queries = heads_of("query"), keys = heads_of("key"), values = heads_of("value");
  const Tensor mixed =
      nn::Attention(self, queries, keys, values, {.mask = mask, .dropout = options.dropout});
  x = AddAndNormalize(attention.In("output"), mixed, x, options);
  const Tensor inner = Dense(net.In("intermediate"), "dense", x, options.feed_forward);
  return AddAndNormalize(net.In("output"), graph.Gelu(inner), x, options);
}

}  // namespace

BertOptions BertTiny() { return {.width = 128, .layers = 2, .heads = 2, .feed_forward = 512}; }
BertOptions BertBase() { return {}; }
BertOptions BertLarge() { return {.width = 1024, .layers = 24, .heads = 16, .feed_forward = 4096}; }

BertOutputs Bert(const Builder& net, const BertInputs& inputs, const BertOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  if (!HeadsDivideWidth(net, "bert", options.heads, options.width)) return {};
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
    if (options.layers_per_ipu > 0) {
      const auto next = 1 + static_cast<uint32_t>(layer / options.layers_per_ipu);
      graph.SetIpu(first + next);
      graph.SetStage(stage + next);
    }
    x = Layer(net.In("encoder").In("layer").In(absl::StrCat(layer)), x, mask, options);
  }
  // The layers that follow make up another stage, on the first IPU.
  graph.SetIpu(first);
  if (options.layers_per_ipu > 0) graph.SetStage(graph.stage() + 1);
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
  Tensor x = net.graph().Gelu(Dense(transform, "dense", bert.hidden, options.width));
  x = transform.LayerNorm("LayerNorm", x, kEpsilon);
  const Tensor bias =
      predictions.Parameter("bias", {options.type, {options.vocabulary}}, FirstValues::Filled(0));
  return predictions.Apply(x, bert.word_embeddings, bias);
}

}  // namespace vpod::models
