#include "client/models/mobilenet.h"

#include <algorithm>

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
  return net.graph().Relu6(ConvolveAndNormalize(net, x, outputs, kernel, stride, groups));
}

// An inverted residual: wider inside by `expansion`, depthwise in the middle, linear at its end.
Tensor Block(const Builder& net, Tensor x, int64_t expansion, int64_t outputs, uint32_t stride) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const Graph::Scope scope = net.EnterScope();
  const Builder inside = net.In("conv");
  const int64_t channels = graph.TypeOf(x).dims[1], width = channels * expansion;
  int layer = 0;
  const auto next = [&] { return absl::StrCat(layer++); };
  Tensor y = x;
  if (expansion != 1) y = Activated(inside.In(next()), y, width, 1);
  y = Activated(inside.In(next()), y, width, 3, stride, width);
  y = inside.Convolution(next(), y, outputs,
                         {.bias = false, .init = nn::ConvolutionOptions::Init::kNormalFanOut});
  y = inside.BatchNorm(next(), y);
  return stride == 1 && channels == outputs ? graph.Add(x, y) : y;
}

}  // namespace

Tensor MobileNetV2(const Builder& net, Tensor images, const MobileNetOptions& options) {
  // How much wider the blocks of a stage are inside, their outputs and number, and the stride of
  // the first.
  struct Stage {
    int64_t expansion, outputs;
    int blocks;
    uint32_t stride;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  if (!(options.width > 0)) {
    return net.graph().Fail(absl::InvalidArgumentError(
        absl::StrCat("mobilenet has the factor ", options.width, " of width, must be above 0")));
  }
  const Graph::Scope scope = net.EnterScope();
  const Builder features = net.In("features");
  int layer = 0;
  const auto next = [&] { return features.In(absl::StrCat(layer++)); };
  Tensor x = Activated(next(), images, Scaled(32, options.width), 3, options.small_images ? 1 : 2);
  Stages stages(net.graph(), options.stages);
  for (const Stage& stage : kStages) {
    const bool stays = options.small_images && stage.outputs == 24;
    for (int block = 0; block < stage.blocks; ++block) {
      const uint32_t stride = block == 0 && !stays ? stage.stride : 1;
      stages.Enter(absl::StrCat("features.", layer));
      x = Block(next(), x, stage.expansion, Scaled(stage.outputs, options.width), stride);
    }
  }
  if (!stages.End()) return {};
  x = Activated(next(), x, Scaled(1280, std::max(1.0, options.width)), 1);
  x = net.Dropout(net.GlobalAveragePool(x), options.dropout);
  return net.In("classifier")
      .Linear("1", x, options.classes,
              {.weights = nn::FirstValues::Normal(0.01), .bias = nn::FirstValues::Filled(0)});
}

}  // namespace vpod::models
