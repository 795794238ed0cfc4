#include "client/nn/attention.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace vpod::nn {

using program::v1::INT32;

namespace {

// Added to a score, makes its weight 0 in the softmax; float16 holds it.
constexpr double kHidden = -10000;

}  // namespace

Tensor SplitHeads(Graph& graph, Tensor x, int64_t heads) {
  if (!graph.status().ok()) return {};
  const graph::Dims dims = graph.TypeOf(x).dims;
  if (dims.size() != 3 || heads < 1 || dims[2] % heads != 0) {
    return graph.Fail(absl::InvalidArgumentError(absl::StrCat(
        "heads need [batch, tokens, width] and a width that their number divides, and have ",
        graph.TypeOf(x).ToString(), " and ", heads)));
  }
  return graph.Transpose(graph.Reshape(x, {dims[0], dims[1], heads, dims[2] / heads}),
                         {0, 2, 1, 3});
}

Tensor Attention(const Builder& net, Tensor queries, Tensor keys, Tensor values,
                 const AttentionOptions& options) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const graph::TensorType type = graph.TypeOf(queries);
  const int64_t heads = type.dims[1], head = type.dims[3];
  const Tensor scale = graph.Constant({type.type, {}}, 1 / std::sqrt(static_cast<double>(head)));
  Tensor scores = graph.MatMul(graph.Multiply(queries, scale), keys, /*transpose_a=*/false,
                               /*transpose_b=*/true);
  if (options.mask.valid()) scores = graph.Add(scores, options.mask);
  const Tensor weights = net.Dropout(graph.Softmax(scores, 3), options.dropout);
  const Tensor mixed = graph.Transpose(graph.MatMul(weights, values), {0, 2, 1, 3});
  return graph.Reshape(mixed, {type.dims[0], type.dims[2], heads * head});
}

Tensor PackedSelfAttention(const Builder& net, Tensor projected, int64_t heads,
                           const AttentionOptions& options) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const graph::Dims dims = graph.TypeOf(projected).dims;
  if (dims.size() != 3 || heads < 1 || dims[2] % 3 != 0 || dims[2] / 3 % heads != 0) {
    return graph.Fail(absl::InvalidArgumentError(absl::StrCat(
        "packed self-attention needs [batch, tokens, 3 * width] and a number of heads that divides "
        "the width, and has ",
        graph.TypeOf(projected).ToString(), " and ", heads)));
  }
  const int64_t batch = dims[0], tokens = dims[1], head = dims[2] / 3 / heads;
  const Tensor parts =
      graph.Transpose(graph.Reshape(projected, {batch, tokens, 3, heads, head}), {2, 0, 3, 1, 4});
  const auto part = [&](int64_t i) {
    return graph.Reshape(graph.Slice(parts, {i, 0, 0, 0, 0}, {1, batch, heads, tokens, head}),
                         {batch, heads, tokens, head});
  };
  return Attention(net, part(0), part(1), part(2), options);
}

Tensor CausalMask(Graph& graph, program::v1::DataType type, int64_t tokens) {
  const graph::TensorType numbers{INT32, {tokens, tokens}};
  const Tensor behind =
      graph.Binary(program::v1::GREATER, graph.Iota(numbers, 1), graph.Iota(numbers, 0));
  return graph.Select(behind, graph.Constant({type, {}}, kHidden), graph.Constant({type, {}}, 0));
}

Tensor PaddingMask(Graph& graph, program::v1::DataType type, Tensor attended) {
  if (!graph.status().ok()) return {};
  const graph::Dims dims = graph.TypeOf(attended).dims;
  if (dims.size() != 2) {
    return graph.Fail(absl::InvalidArgumentError("a padding mask needs [batch, tokens] and has " +
                                                 graph.TypeOf(attended).ToString()));
  }
  const auto number = [&](double value) { return graph.Constant({type, {}}, value); };
  const Tensor hidden = graph.Binary(program::v1::SUBTRACT, number(1), graph.Cast(attended, type));
  return graph.Reshape(graph.Multiply(hidden, number(kHidden)), {dims[0], 1, 1, dims[1]});
}

}  // namespace vpod::nn
