#include <vector>

#include "absl/strings/str_cat.h"
#include "client/nn/builder.h"

namespace vpod::nn {
namespace {

using graph::InitialValue;
using program::v1::FLOAT32;

// By the moments of the batches of so many consecutive replicas, which are as large as each other.
// In float32; gradients follow through the collectives.
Graph::Normalized NormalizeOver(uint32_t replicas, Graph& graph, Tensor x, Tensor scale,
                                Tensor offset, float epsilon) {
  const graph::TensorType type = graph.TypeOf(x);
  program::v1::ReplicaGroup group;
  group.set_kind(program::v1::ReplicaGroup::CONSECUTIVE);
  group.set_size(replicas);
  graph::Dims along(type.dims.size(), 1);  // the channels of x
  along[1] = type.dims[1];
  std::vector<uint32_t> others;
  for (uint32_t axis = 0; axis < type.dims.size(); ++axis) {
    if (axis != 1) others.push_back(axis);
  }
  const auto mean_of = [&](Tensor values) {
    const Tensor local = graph.Reduce(program::v1::MEAN, values, others);
    return graph.AllReduce(program::v1::MEAN, local, group);
  };
  const Tensor wide = graph.Cast(x, FLOAT32), mean = mean_of(wide),
               centred = graph.Binary(program::v1::SUBTRACT, wide, graph.Reshape(mean, along)),
               variance = mean_of(graph.Multiply(centred, centred)),
               deviation =
                   graph.Add(variance, graph.Constant({FLOAT32, {}}, static_cast<double>(epsilon))),
               factor = graph.Multiply(scale, graph.Unary(program::v1::RECIPROCAL_ROOT, deviation)),
               y = graph.Add(graph.Multiply(centred, graph.Reshape(factor, along)),
                             graph.Reshape(offset, along));
  return {graph.Cast(y, type.type), mean, variance};
}

}  // namespace

Tensor Builder::BatchNorm(absl::string_view name, Tensor x, const BatchNormOptions& options) const {
  if (!graph_.status().ok()) return {};
  const Graph::Scope scope = EnterLayer(name);
  const graph::TensorType type = graph_.TypeOf(x);
  if (type.rank() < 2) {
    return graph_.Fail(absl::InvalidArgumentError(absl::StrCat(
        "batch_norm '", graph_.scope(), "' needs [batch, channels, …] and has ", type.ToString())));
  }
  const graph::TensorType channels{FLOAT32, {type.dims[1]}};
  const Tensor scale = graph_.Variable("weight", channels, InitialValue::Filled(1)),
               offset = graph_.Variable("bias", channels, InitialValue::Filled(0)),
               mean = graph_.Buffer("running_mean", channels, InitialValue::Filled(0)),
               variance = graph_.Buffer("running_var", channels, InitialValue::Filled(1));
  if (!training_)
    return graph_.BatchNormInference(x, scale, offset, mean, variance, options.epsilon);
  const uint32_t replicas = options.replicas.value_or(norm_replicas_);
  const Graph::Normalized normalized =
      replicas == 1 ? graph_.BatchNorm(x, scale, offset, options.epsilon)
                    : NormalizeOver(replicas, graph_, x, scale, offset, options.epsilon);
  const auto scaled = [&](Tensor values, double factor) {
    return graph_.Multiply(values, graph_.Constant({FLOAT32, {}}, factor));
  };
  // The running variance is the unbiased one.
  const double count =
      replicas * static_cast<double>(type.elements()) / static_cast<double>(type.dims[1]);
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  const double momentum = options.momentum;
  graph_.Assign(mean, graph_.Add(scaled(mean, 1 - momentum), scaled(normalized.mean, momentum)));
  graph_.Assign(variance, graph_.Add(scaled(variance, 1 - momentum),
                                     scaled(normalized.variance, momentum * unbiased)));
  return normalized.y;
}

}  // namespace vpod::nn
