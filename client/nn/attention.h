// Scaled dot-product attention and the masks that are added to its scores.
#pragma once

#include <cstdint>

#include "client/nn/builder.h"

namespace vpod::nn {

struct AttentionOptions {
  Tensor mask;        // added to the scores, and broadcast to [batch, heads, queries, keys]
  float dropout = 0;  // of the weights, in training
};

// [batch, tokens, width] to [batch, heads, tokens, width / heads]. Heads divide the width.
Tensor SplitHeads(Graph& graph, Tensor x, int64_t heads);

// For each query the mean of the values, weighted with the softmax of its products with the keys
// over the root of the head's width. Takes what SplitHeads gives; joins the heads of the result:
// [batch, tokens, width].
Tensor Attention(const Builder& net, Tensor queries, Tensor keys, Tensor values,
                 const AttentionOptions& options = {});

// The same of one projection [batch, tokens, 3 × width]: queries, then keys, then values.
Tensor PackedSelfAttention(const Builder& net, Tensor projected, int64_t heads,
                           const AttentionOptions& options = {});

// A mask of this float type, [tokens, tokens], that hides from each token those behind it.
Tensor CausalMask(Graph& graph, program::v1::DataType type, int64_t tokens);
// A mask [batch, 1, 1, tokens] that hides the tokens for which `attended`, [batch, tokens] of any
// type, is 0; it is 1 for the others.
Tensor PaddingMask(Graph& graph, program::v1::DataType type, Tensor attended);

}  // namespace vpod::nn
