#include "client/nn/builder.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/graph/scope.h"
#include "client/nn/attention.h"

namespace vpod::nn {

using graph::InitialValue;
using program::v1::FLOAT32;

Builder::Builder(Graph& graph, const BuilderOptions& options)
    : graph_(graph),
      training_(options.training),
      norm_replicas_(options.norm_replicas),
      seeds_(std::make_shared<std::mt19937_64>(options.seed)),
      scope_(graph.scope()) {}

const std::string& Builder::Part() const {
  const std::string& now = graph_.scope();
  const bool is_inside = scope_.empty() || absl::StartsWith(now, absl::StrCat(scope_, "."));
  return is_inside ? now : scope_;
}

std::string Builder::PartOf(absl::string_view name) const { return graph::InScope(Part(), name); }

Builder Builder::In(absl::string_view name) const {
  Builder inner = *this;
  inner.scope_ = PartOf(name);
  return inner;
}

Graph::Scope Builder::EnterLayer(absl::string_view layer) const {
  return Graph::Scope::At(graph_, PartOf(layer));
}

bool Builder::HasElements(const graph::TensorType& weights, const char* layer) const {
  if (program::Check(weights).ok() && !weights.empty()) return true;
  graph_.Fail(absl::InvalidArgumentError(
      absl::StrCat(layer, " '", graph_.scope(), "' cannot have weights ", weights.ToString())));
  return false;
}

InitialValue Builder::Uniform(double bound) const {
  return InitialValue::Uniform(bound, (*seeds_)());
}

InitialValue Builder::Normal(double deviation) const {
  return InitialValue::Normal(deviation, (*seeds_)());
}

Tensor Builder::Parameter(absl::string_view name, graph::TensorType type,
                          const FirstValues& first) const {
  if (!graph_.status().ok()) return {};
  if (!program::Check(type).ok() || type.empty()) {
    return graph_.Fail(absl::InvalidArgumentError(
        absl::StrCat("parameter '", PartOf(name), "' cannot be ", type.ToString())));
  }
  const Graph::Scope scope = EnterScope();
  const auto value = [&] {
    switch (first.kind) {
      case FirstValues::Kind::kUniform:
        return Uniform(first.value);
      case FirstValues::Kind::kNormal:
        return Normal(first.value);
      default:
        return InitialValue::Filled(static_cast<float>(first.value));
    }
  };
  return graph_.Variable(name, std::move(type), value());
}

Tensor Builder::Convolution(absl::string_view name, Tensor x, int64_t outputs,
                            const ConvolutionOptions& options) const {
  if (!graph_.status().ok()) return {};
  const Graph::Scope scope = EnterLayer(name);
  const graph::Dims dims = graph_.TypeOf(x).dims;
  if (dims.size() != 4 || options.groups == 0) {
    return graph_.Fail(absl::InvalidArgumentError(
        absl::StrCat("convolution '", graph_.scope(),
                     "' needs an image [batch, channels, height, width] and groups, and has ",
                     graph_.TypeOf(x).ToString(), " and ", options.groups, " groups")));
  }
  const int64_t kernel = options.kernel, channels = dims[1] / options.groups;
  const graph::TensorType type{graph_.TypeOf(x).type, {outputs, channels, kernel, kernel}};
  if (!HasElements(type, "convolution")) return {};
  const int64_t area = kernel * kernel;
  const double fan_in = static_cast<double>(channels * area),
               fan_out = static_cast<double>(outputs * area);
  using Init = ConvolutionOptions::Init;
  const bool uniform = options.init == Init::kUniform;
  const double variance = options.init == Init::kNormalFanIn ? 1 / fan_in : 2 / fan_out;
  const Tensor weights = graph_.Variable(
      "weight", type, uniform ? Uniform(1 / std::sqrt(fan_in)) : Normal(std::sqrt(variance)));
  const Tensor y = graph_.Convolution(
      x, weights,
      Graph::Sliding(2, options.kernel, options.stride, options.padding, options.dilation),
      options.groups);
  if (!options.bias) return y;
  const Tensor bias =
      graph_.Variable("bias", {type.type, {outputs}},
                      uniform ? Uniform(1 / std::sqrt(fan_in)) : InitialValue::Filled(0));
  return graph_.Add(y, graph_.Reshape(bias, {outputs, 1, 1}));
}

Tensor Builder::Apply(Tensor x, Tensor weights, Tensor bias, bool transposed) const {
  if (!graph_.status().ok()) return {};
  const graph::TensorType type = graph_.TypeOf(x);
  const int64_t features = type.dims.back();
  graph::Dims dims = type.dims;
  dims.back() = graph_.TypeOf(weights).dims[transposed ? 0 : 1];
  if (type.rank() > 2) x = graph_.Reshape(x, {type.elements() / features, features});
  Tensor y = graph_.MatMul(x, weights, /*transpose_a=*/false, transposed);
  if (bias.valid()) y = graph_.Add(y, bias);
  return type.rank() > 2 ? graph_.Reshape(y, dims) : y;
}

Tensor Builder::Linear(absl::string_view name, Tensor x, int64_t outputs,
                       const LinearOptions& options) const {
  if (!graph_.status().ok()) return {};
  const Graph::Scope scope = EnterLayer(name);
  const graph::TensorType type = graph_.TypeOf(x);
  if (type.rank() < 2) {
    return graph_.Fail(absl::InvalidArgumentError(absl::StrCat(
        "linear '", graph_.scope(), "' needs [batch, …, features] and has ", type.ToString())));
  }
  const graph::TensorType weights_type{type.type, {outputs, type.dims.back()}};
  if (!HasElements(weights_type, "linear")) return {};
  const auto uniform = FirstValues::Uniform(1 / std::sqrt(static_cast<double>(type.dims.back())));
  const Tensor weights = Parameter("weight", weights_type, options.weights.value_or(uniform));
  const Tensor bias = Parameter("bias", {type.type, {outputs}}, options.bias.value_or(uniform));
  return Apply(x, weights, bias);
}

Tensor Builder::Dropout(Tensor x, float probability) const {
  // A wrong probability is refused in evaluation, too.
  const bool is_probability = probability >= 0 && probability <= 1;
  if (is_probability && (!training_ || probability == 0)) return x;
  return graph_.Dropout(x, probability);
}

Tensor Builder::LayerNorm(absl::string_view name, Tensor x, float epsilon) const {
  if (!graph_.status().ok()) return {};
  const Graph::Scope scope = EnterLayer(name);
  const graph::TensorType type = graph_.TypeOf(x);
  if (type.rank() < 1) {
    return graph_.Fail(absl::InvalidArgumentError(absl::StrCat(
        "layer_norm '", graph_.scope(), "' needs [batch, …, features] and has ", type.ToString())));
  }
  const graph::TensorType features{type.type, {type.dims.back()}};
  if (!HasElements(features, "layer_norm")) return {};
  const Tensor scale = graph_.Variable("weight", features, InitialValue::Filled(1)),
               offset = graph_.Variable("bias", features, InitialValue::Filled(0));
  return graph_.LayerNorm(x, scale, offset, epsilon);
}

Tensor Builder::Embedding(absl::string_view name, Tensor indices, int64_t count, int64_t width,
                          program::v1::DataType type) const {
  if (!graph_.status().ok()) return {};
  const Graph::Scope scope = EnterLayer(name);
  const graph::TensorType table{type, {count, width}};
  if (!HasElements(table, "embedding")) return {};
  return graph_.Gather(graph_.Variable("weight", table, Normal(1)), indices, 0);
}

Tensor Builder::SelfAttention(absl::string_view name, Tensor x, int64_t heads) const {
  if (!graph_.status().ok()) return {};
  const Graph::Scope scope = EnterLayer(name);
  const graph::TensorType type = graph_.TypeOf(x);
  if (type.rank() != 3 || heads < 1 || type.dims[2] % heads != 0) {
    return graph_.Fail(absl::InvalidArgumentError(
        absl::StrCat("self_attention '", graph_.scope(),
                     "' needs [batch, tokens, width] and heads that divide the width, and has ",
                     type.ToString(), " and ", heads, " heads")));
  }
  const int64_t width = type.dims[2];
  const graph::TensorType in_type{type.type, {3 * width, width}},
      out_type{type.type, {width, width}};
  if (!HasElements(in_type, "self_attention")) return {};
  // Uniform as Xavier has it, then as torch.nn.Linear.
  const double in_bound = std::sqrt(6 / static_cast<double>(4 * width)),
               out_bound = 1 / std::sqrt(static_cast<double>(width));
  const Tensor in_weights = graph_.Variable("in_proj_weight", in_type, Uniform(in_bound)),
               in_bias = graph_.Variable("in_proj_bias", {type.type, {3 * width}},
                                         InitialValue::Filled(0)),
               out_weights = graph_.Variable("out_proj.weight", out_type, Uniform(out_bound)),
               out_bias =
                   graph_.Variable("out_proj.bias", {type.type, {width}}, InitialValue::Filled(0));
  const Tensor mixed = PackedSelfAttention(*this, Apply(x, in_weights, in_bias), heads);
  return Apply(mixed, out_weights, out_bias);
}

Tensor Builder::GlobalAveragePool(Tensor x) const {
  if (!graph_.status().ok()) return {};
  std::vector<uint32_t> axes;
  for (uint32_t i = 2; i < graph_.TypeOf(x).dims.size(); ++i) axes.push_back(i);
  return graph_.Reduce(program::v1::MEAN, x, axes);
}

Tensor Builder::Flatten(Tensor x) const {
  if (!graph_.status().ok()) return {};
  const graph::TensorType type = graph_.TypeOf(x);
  if (type.rank() < 1)
    return graph_.Fail(absl::InvalidArgumentError("a scalar cannot be flattened"));
  int64_t features = 1;
  for (size_t i = 1; i < type.dims.size(); ++i) features *= type.dims[i];
  return graph_.Reshape(x, {type.dims[0], features});
}

}  // namespace vpod::nn
