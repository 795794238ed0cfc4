#include "client/models/language.h"

#include "absl/strings/str_cat.h"

namespace vpod::models {

using graph::Graph;
using graph::Tensor;

Tensor PositionEmbedding(const nn::Builder& net, absl::string_view name,
                         const graph::TensorType& table, Tensor tokens) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const graph::TensorType type = graph.TypeOf(tokens);
  if (type.rank() != 2 || type.dims[1] > table.dims[0]) {
    return graph.Fail(absl::InvalidArgumentError(
        absl::StrCat("the tokens are ", type.ToString(), ", must be [batch, tokens] with at most ",
                     table.dims[0], " tokens, for which there are positions")));
  }
  const Tensor all = net.Parameter(name, table, nn::FirstValues::Normal(0.02));
  return graph.Slice(all, {0, 0}, {type.dims[1], table.dims[1]});
}

bool HeadsDivideWidth(const nn::Builder& net, absl::string_view model, int64_t heads,
                      int64_t width) {
  if (heads >= 1 && width % heads == 0) return true;
  net.graph().Fail(absl::InvalidArgumentError(absl::StrCat(
      model, " has ", heads, " heads, must be 1 or more that divide the width ", width)));
  return false;
}

}  // namespace vpod::models
