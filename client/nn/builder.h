// Layers over a graph. A layer's parameters have the names, shapes and first values that PyTorch
// gives them: `Linear("fc", x, 10)` inside `In("head")` makes "head.fc.weight" and "head.fc.bias",
// and so it does inside the graph's scope "head".
//
//   Graph graph;
//   nn::Builder net(graph, {.seed = 1, .training = true});
//   Tensor x = net.Convolution("conv1", images, 64, {.kernel = 3, .padding = 1});
//   x = graph.Relu(net.BatchNorm("bn1", x));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/graph/graph.h"

namespace vpod::nn {

using graph::Graph;
using graph::Tensor;

struct BuilderOptions {
  uint64_t seed = 0;      // of the first values
  bool training = false;  // batch norm uses the batch's moments and keeps running ones
  // Batch norms of a model that trains use the moments of the batches of so many consecutive
  // replicas, as torch.nn.SyncBatchNorm does; it divides the replicas of the job.
  uint32_t norm_replicas = 1;
};

// How the first values of a parameter are drawn.
struct FirstValues {
  enum class Kind { kFilled, kUniform, kNormal } kind;
  double value;  // of all elements, their bound on both sides of 0, or their deviation

  static FirstValues Filled(double value) { return {Kind::kFilled, value}; }
  static FirstValues Uniform(double bound) { return {Kind::kUniform, bound}; }
  static FirstValues Normal(double deviation) { return {Kind::kNormal, deviation}; }
};

// Two-dimensional, with the same numbers along both axes.
struct ConvolutionOptions {
  uint32_t kernel = 1, stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
  // First weights: uniform as torch.nn.Conv2d has them, or normal with a variance of
  // 2 / (outputs × kernel elements), as torchvision's residual networks have them, or of
  // 1 / (inputs × kernel elements). Where they are normal, the bias is zero at first.
  enum class Init { kUniform, kNormalFanOut, kNormalFanIn } init = Init::kUniform;
};

struct LinearOptions {
  // Both are uniform as torch.nn.Linear has them, unless they are given.
  std::optional<FirstValues> weights, bias;
};

struct BatchNormOptions {
  float epsilon = 1e-5f;
  float momentum = 0.1f;             // of the running moments: the share of the new ones
  std::optional<uint32_t> replicas;  // BuilderOptions::norm_replicas, unless it is given
};

// Copies share the random numbers and add to the same graph, which outlives them.
class Builder {
 public:
  Builder(Graph& graph, const BuilderOptions& options);

  Graph& graph() const { return graph_; }
  // A builder of the part `name` of this builder's part of the model.
  Builder In(absl::string_view name) const;
  // While it exists, what is added to the graph belongs to this builder's part of the model. Layers
  // say so themselves: theirs belong to the layer.
  Graph::Scope EnterScope() const { return Graph::Scope::At(graph_, Part()); }

  // A parameter of this part of the model itself.
  Tensor Parameter(absl::string_view name, graph::TensorType type, const FirstValues& first) const;
  // Over the last dimension of x: its product with weights [outputs, features], or
  // [features, outputs] if they are not transposed, plus the bias unless it is invalid.
  Tensor Apply(Tensor x, Tensor weights, Tensor bias, bool transposed = true) const;

  // Takes an image [batch, channels, height, width].
  Tensor Convolution(absl::string_view name, Tensor x, int64_t outputs,
                     const ConvolutionOptions& options) const;
  Tensor BatchNorm(absl::string_view name, Tensor x, const BatchNormOptions& options = {}) const;
  // Takes [batch, …, features].
  Tensor Linear(absl::string_view name, Tensor x, int64_t outputs,
                const LinearOptions& options = {}) const;
  // Over the last dimension.
  Tensor LayerNorm(absl::string_view name, Tensor x, float epsilon = 1e-5f) const;
  // Vectors of a table of `count`, of FLOAT32 or FLOAT16, one for each of INT32 indices of any
  // shape.
  Tensor Embedding(absl::string_view name, Tensor indices, int64_t count, int64_t width,
                   program::v1::DataType type = program::v1::FLOAT32) const;
  // Each of the tokens [batch, tokens, width] attends to all, as torch.nn.MultiheadAttention with
  // batch_first has it.
  Tensor SelfAttention(absl::string_view name, Tensor x, int64_t heads) const;
  // In training, sets elements to zero with this probability (Graph::Dropout).
  Tensor Dropout(Tensor x, float probability) const;
  // The mean over the spatial dimensions: [batch, channels].
  Tensor GlobalAveragePool(Tensor x) const;
  // All dimensions but the first become one.
  Tensor Flatten(Tensor x) const;

 private:
  // The scope of the builder's part of the model, or the one inside it in which the graph is.
  const std::string& Part() const;
  std::string PartOf(absl::string_view name) const;
  Graph::Scope EnterLayer(absl::string_view layer) const;
  // Whether weights of this type can have values; the graph refuses the layer otherwise.
  bool HasElements(const graph::TensorType& weights, const char* layer) const;
  graph::InitialValue Uniform(double bound) const;
  graph::InitialValue Normal(double deviation) const;

  Graph& graph_;
  const bool training_;
  const uint32_t norm_replicas_;
  std::shared_ptr<std::mt19937_64> seeds_;  // of first values
  std::string scope_;                       // the graph's at first
};

}  // namespace vpod::nn
