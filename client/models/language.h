// Parts that language models have in common.
#pragma once

#include <cstdint>

#include "client/nn/builder.h"

namespace vpod::models {

// The first vectors of a learned table [positions, width], one for each of `tokens`
// [batch, tokens]: [tokens, width]. The table's values are normal with a deviation of 0.02.
graph::Tensor PositionEmbedding(const nn::Builder& net, absl::string_view name,
                                const graph::TensorType& table, graph::Tensor tokens);

// Whether a model can have these heads; its graph refuses it otherwise.
bool HeadsDivideWidth(const nn::Builder& net, absl::string_view model, int64_t heads,
                      int64_t width);

}  // namespace vpod::models
