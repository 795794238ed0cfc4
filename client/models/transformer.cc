#include "client/models/transformer.h"

#include "absl/strings/str_cat.h"

namespace vpod::models {

using graph::Graph;
using graph::Tensor;

namespace {

Tensor FeedForward(const nn::Builder& net, Tensor x, const TransformerOptions& options) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};  // x may be of no type
  const int64_t width = graph.TypeOf(x).dims.back();
  const int64_t inner = options.feed_forward > 0 ? options.feed_forward : 4 * width;
  x = net.Linear("linear1", x, inner);
  x = options.gelu ? graph.Gelu(x) : graph.Relu(x);
  return net.Linear("linear2", x, width);
}

Tensor Layer(const nn::Builder& net, Tensor x, const TransformerOptions& options) {
  Graph& graph = net.graph();
  const auto attention = [&](Tensor t) { return net.SelfAttention("self_attn", t, options.heads); };
  if (options.norm_first) {
    x = graph.Add(x, attention(net.LayerNorm("norm1", x)));
    return graph.Add(x, FeedForward(net, net.LayerNorm("norm2", x), options));
  }
  x = net.LayerNorm("norm1", graph.Add(x, attention(x)));
  return net.LayerNorm("norm2", graph.Add(x, FeedForward(net, x, options)));
}

}  // namespace

Tensor TransformerEncoder(const nn::Builder& net, Tensor tokens,
                          const TransformerOptions& options) {
  for (int i = 0; i < options.layers && net.graph().status().ok(); ++i)
    tokens = Layer(net.In("layers").In(absl::StrCat(i)), tokens, options);
  return tokens;
}

}  // namespace vpod::models
