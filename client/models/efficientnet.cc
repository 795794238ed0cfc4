#include "client/models/efficientnet.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/models/convolution.h"
#include "client/models/stages.h"

namespace vpod::models {
namespace {

using graph::Graph;
using graph::Tensor;
using nn::Builder;

Tensor Activated(const Builder& net, Tensor x, int64_t outputs, uint32_t kernel,
                 uint32_t stride = 1, int64_t groups = 1) {
  return net.graph().Silu(ConvolveAndNormalize(net, x, outputs, kernel, stride, groups));
}

// Weighs the channels by a function of their means.
Tensor SqueezeAndExcite(const Builder& net, Tensor x, int64_t squeezed) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const Graph::Scope scope = net.EnterScope();
  const graph::Dims dims = graph.TypeOf(x).dims;
  const auto convolve = [&](const char* name, Tensor y, int64_t outputs) {
    return net.Convolution(name, y, outputs, {.init = nn::ConvolutionOptions::Init::kNormalFanOut});
  };
  Tensor y = graph.Reshape(net.GlobalAveragePool(x), {dims[0], dims[1], 1, 1});
  y = convolve("fc2", graph.Silu(convolve("fc1", y, squeezed)), dims[1]);
  return graph.Multiply(graph.Unary(program::v1::SIGMOID, y), x);
}

// Leaves out images of the batch with this probability.
Tensor DropImages(const Builder& net, Tensor x, float probability) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const graph::TensorType type = graph.TypeOf(x);
  const Tensor ones = graph.Constant({type.type, {type.dims[0], 1, 1, 1}}, 1);
  const Tensor kept = net.Dropout(ones, probability);
  return kept == ones ? x : graph.Multiply(x, kept);
}

struct BlockShape {
  int64_t expansion;  // how much wider the block is inside
  uint32_t kernel, stride;
  int64_t outputs;
  int64_t group_size = 1;
};

// An inverted residual: depthwise in the middle, its channels weighed, linear at its end.
Tensor Block(const Builder& net, Tensor x, const BlockShape& shape, float stochastic_depth) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const Graph::Scope scope = net.EnterScope();
  const Builder inside = net.In("block");
  const int64_t channels = graph.TypeOf(x).dims[1];
  const int64_t inside_width = Scaled(channels, static_cast<double>(shape.expansion));
  // Whole groups.
  const int64_t width = (inside_width + shape.group_size - 1) / shape.group_size * shape.group_size;
  int layer = 0;
  const auto next = [&] { return inside.In(absl::StrCat(layer++)); };
  Tensor y = x;
  if (shape.expansion != 1) y = Activated(next(), y, width, 1);
  y = Activated(next(), y, width, shape.kernel, shape.stride, width / shape.group_size);
  y = SqueezeAndExcite(next(), y, std::max<int64_t>(1, channels / 4));
  y = ConvolveAndNormalize(next(), y, shape.outputs, 1);
  if (shape.stride != 1 || channels != shape.outputs) return y;
  return graph.Add(DropImages(net, y, stochastic_depth), x);
}

}  // namespace

EfficientNetOptions EfficientNetB0() { return {}; }
EfficientNetOptions EfficientNetB4() { return {.width = 1.4, .depth = 1.8, .dropout = 0.4f}; }
EfficientNetOptions EfficientNetB4Group16() {
  EfficientNetOptions options = EfficientNetB4();
  options.expansion = 4;
  options.group_size = 16;
  return options;
}

Tensor EfficientNet(const Builder& net, Tensor images, const EfficientNetOptions& options) {
  struct Stage {
    BlockShape first;
    int blocks;
  };
  constexpr Stage kStages[] = {{{1, 3, 1, 16}, 1}, {{6, 3, 2, 24}, 2},  {{6, 5, 2, 40}, 2},
                               {{6, 3, 2, 80}, 3}, {{6, 5, 1, 112}, 3}, {{6, 5, 2, 192}, 4},
                               {{6, 3, 1, 320}, 1}};
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  if (!(options.width > 0 && options.depth > 0)) {
    return graph.Fail(absl::InvalidArgumentError(
        absl::StrCat("efficientnet has the factors ", options.width, " and ", options.depth,
                     " of width and depth, must be above 0")));
  }
  const auto blocks_of = [&](const Stage& stage) {
    return static_cast<int>(std::ceil(stage.blocks * options.depth));
  };
  int all_blocks = 0, made = 0;
  for (const Stage& stage : kStages) all_blocks += blocks_of(stage);

  const Builder features = net.In("features");
  int layer = 0;
  Stages stages(graph, options.stages);
  const auto next = [&] { return features.In(absl::StrCat(layer++)); };
  Tensor x = Activated(next(), images, Scaled(32, options.width), 3, options.small_images ? 1 : 2);
  for (const Stage& stage : kStages) {
    const bool stays = options.small_images && stage.first.outputs == 24;
    const Builder blocks = next();
    BlockShape shape = stage.first;
    shape.outputs = Scaled(shape.outputs, options.width);
    if (stays) shape.stride = 1;
    if (shape.expansion != 1) shape.expansion = options.expansion;
    shape.group_size = options.group_size;
    for (int block = 0; block < blocks_of(stage); ++block, ++made) {
      stages.Enter(absl::StrCat("features.", layer - 1, ".", block));
      const float share = static_cast<float>(made) / static_cast<float>(all_blocks);
      x = Block(blocks.In(absl::StrCat(block)), x, shape, options.stochastic_depth * share);
      shape.stride = 1;
    }
  }
  if (!stages.End()) return {};
  x = Activated(next(), x, 4 * Scaled(320, options.width), 1);
  x = net.Dropout(net.GlobalAveragePool(x), options.dropout);
  const double bound = 1 / std::sqrt(static_cast<double>(options.classes));
  return net.In("classifier")
      .Linear("1", x, options.classes,
              {.weights = nn::FirstValues::Uniform(bound), .bias = nn::FirstValues::Filled(0)});
}

}  // namespace vpod::models
