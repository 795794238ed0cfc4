#include "client/models/vit.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/models/stages.h"

namespace vpod::models {

using graph::Graph;
using graph::Tensor;
using nn::Builder;
using nn::FirstValues;

namespace {

constexpr float kEpsilon = 1e-6f;

// Uniform as Xavier has it, and a bias of nearly zero.
Tensor Dense(const Builder& net, absl::string_view name, Tensor x, int64_t outputs) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const auto ends = static_cast<double>(graph.TypeOf(x).dims.back() + outputs);
  return net.Linear(
      name, x, outputs,
      {.weights = FirstValues::Uniform(std::sqrt(6 / ends)), .bias = FirstValues::Normal(1e-6)});
}

Tensor Layer(const Builder& net, Tensor x, const VisionTransformerOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  Tensor y = net.LayerNorm("ln_1", x, kEpsilon);
  y = net.SelfAttention("self_attention", y, options.heads);
  x = graph.Add(net.Dropout(y, options.dropout), x);
  const Builder mlp = net.In("mlp");
  y = Dense(mlp, "0", net.LayerNorm("ln_2", x, kEpsilon), options.mlp);
  y = Dense(mlp, "3", net.Dropout(graph.Gelu(y), options.dropout), options.width);
  return graph.Add(x, net.Dropout(y, options.dropout));
}

// The patches of images as tokens: [batch, patches, width].
Tensor Patches(const Builder& net, Tensor images, const VisionTransformerOptions& options) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const graph::TensorType type = graph.TypeOf(images);
  const int64_t patch = options.patch;
  if (type.rank() != 4 || patch == 0 || type.dims[2] % patch != 0 || type.dims[3] % patch != 0) {
    return graph.Fail(absl::InvalidArgumentError(absl::StrCat(
        "the vision transformer needs images [batch, channels, height, width] that patches divide, "
        "and has ",
        type.ToString(), " and patches of ", patch, " × ", patch)));
  }
  const Tensor x = net.Convolution("conv_proj", images, options.width,
                                   {.kernel = options.patch,
                                    .stride = options.patch,
                                    .init = nn::ConvolutionOptions::Init::kNormalFanIn});
  const int64_t patches = (type.dims[2] / patch) * (type.dims[3] / patch);
  return graph.Transpose(graph.Reshape(x, {type.dims[0], options.width, patches}), {0, 2, 1});
}

}  // namespace

VisionTransformerOptions VitB16() { return {}; }

Tensor VisionTransformer(const Builder& net, Tensor images,
                         const VisionTransformerOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  const Tensor patches = Patches(net, images, options);
  if (!graph.status().ok()) return {};
  const graph::TensorType type = graph.TypeOf(patches);
  const int64_t batch = type.dims[0], tokens = type.dims[1] + 1, width = type.dims[2];
  const Tensor token =
      net.Parameter("class_token", {type.type, {1, 1, width}}, FirstValues::Filled(0));
  const Builder encoder = net.In("encoder");
  const Tensor positions = encoder.Parameter("pos_embedding", {type.type, {1, tokens, width}},
                                             FirstValues::Normal(0.02));
  Tensor x = graph.Concat({graph.Expand(token, {batch, 1, width}), patches}, 1);
  x = net.Dropout(graph.Add(x, positions), options.dropout);
  Stages stages(graph, options.stages);
  for (int i = 0; i < options.layers && graph.status().ok(); ++i) {
    const std::string layer = absl::StrCat("encoder_layer_", i);
    stages.Enter(layer);
    x = Layer(encoder.In("layers").In(layer), x, options);
  }
  if (!stages.End()) return {};
  x = encoder.LayerNorm("ln", x, kEpsilon);
  const Tensor first = graph.Reshape(graph.Slice(x, {0, 0, 0}, {batch, 1, width}), {batch, width});
  return net.In("heads").Linear(
      "head", first, options.classes,
      {.weights = FirstValues::Filled(0), .bias = FirstValues::Filled(0)});
}

}  // namespace vpod::models
