#include "client/models/resnet.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/models/stages.h"

namespace vpod::models {
namespace {

using graph::Graph;
using graph::Tensor;
using nn::Builder;
using nn::ConvolutionOptions;

constexpr int64_t kFirstChannels = 64;
// Outputs of a bottleneck for each of the planes that its layer is named after.
constexpr int64_t kExpansion = 4;

// A convolution without bias, as they are before a batch norm; padded so that a stride of 1 keeps
// the size.
Tensor Convolve(const Builder& net, const std::string& name, Tensor x, int64_t outputs,
                uint32_t kernel, uint32_t stride = 1, uint32_t groups = 1) {
  return net.Convolution(name, x, outputs,
                         {.kernel = kernel,
                          .stride = stride,
                          .padding = kernel / 2,
                          .groups = groups,
                          .bias = false,
                          .init = ConvolutionOptions::Init::kNormalFanOut});
}

Tensor Block(const Builder& net, Tensor x, int64_t planes, uint32_t stride,
             const ResNetOptions& options) {
  Graph& graph = net.graph();
  if (!graph.status().ok()) return {};
  const Graph::Scope scope = net.EnterScope();
  const int64_t outputs = options.bottleneck ? planes * kExpansion : planes;
  Tensor y = x;
  if (options.bottleneck) {
    const int64_t width = planes * options.width_per_group / kFirstChannels * options.groups;
    y = graph.Relu(net.BatchNorm("bn1", Convolve(net, "conv1", y, width, 1)));
    y = graph.Relu(
        net.BatchNorm("bn2", Convolve(net, "conv2", y, width, 3, stride, options.groups)));
    y = net.BatchNorm("bn3", Convolve(net, "conv3", y, outputs, 1));
  } else {
    y = graph.Relu(net.BatchNorm("bn1", Convolve(net, "conv1", y, outputs, 3, stride)));
    y = net.BatchNorm("bn2", Convolve(net, "conv2", y, outputs, 3));
  }
  if (stride != 1 || graph.TypeOf(x).dims[1] != outputs) {
    const Builder shortcut = net.In("downsample");
    x = shortcut.BatchNorm("1", Convolve(shortcut, "0", x, outputs, 1, stride));
  }
  return graph.Relu(graph.Add(y, x));
}

}  // namespace

ResNetOptions ResNet18() { return {}; }
ResNetOptions ResNet34() { return {.blocks = {3, 4, 6, 3}}; }
ResNetOptions ResNet50() { return {.blocks = {3, 4, 6, 3}, .bottleneck = true}; }
ResNetOptions ResNet101() { return {.blocks = {3, 4, 23, 3}, .bottleneck = true}; }
ResNetOptions ResNext101_32x8d() {
  return {.blocks = {3, 4, 23, 3}, .bottleneck = true, .groups = 32, .width_per_group = 8};
}

Tensor ResNet(const Builder& net, Tensor images, const ResNetOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  Tensor x = images;
  if (options.small_images) {
    x = graph.Relu(net.BatchNorm("bn1", Convolve(net, "conv1", x, kFirstChannels, 3)));
  } else {
    x = graph.Relu(net.BatchNorm("bn1", Convolve(net, "conv1", x, kFirstChannels, 7, 2)));
    x = graph.MaxPool(x, Graph::Sliding(2, 3, 2, 1));
  }
  Stages stages(graph, options.stages);
  std::set<std::string> checkpoints(options.checkpoints.begin(), options.checkpoints.end());
  for (size_t layer = 0; layer < options.blocks.size(); ++layer) {
    const Builder inside = net.In(absl::StrCat("layer", layer + 1));
    for (int block = 0; block < options.blocks[layer]; ++block) {
      const std::string name = absl::StrCat("layer", layer + 1, ".", block);
      stages.Enter(name);
      const uint32_t stride = layer > 0 && block == 0 ? 2 : 1;
      x = Block(inside.In(absl::StrCat(block)), x, kFirstChannels << layer, stride, options);
      if (checkpoints.erase(name) > 0) graph.Checkpoint(x);
    }
  }
  if (!stages.End()) return {};
  if (!checkpoints.empty()) {
    return graph.Fail(absl::InvalidArgumentError(
        absl::StrCat("there is no block '", *checkpoints.begin(),
                     "' for a checkpoint, the blocks are ", stages.BlocksText())));
  }
  return net.Linear("fc", net.GlobalAveragePool(x), options.classes);
}

}  // namespace vpod::models
