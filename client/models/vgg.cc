#include "client/models/vgg.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace vpod::models {

using graph::Graph;
using graph::Tensor;
using nn::Builder;

namespace {

constexpr size_t kDoublings = 3;  // of the channels

Tensor Features(const Builder& net, Tensor x, const VggOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  int layer = 0;  // ReLUs and poolings count
  for (size_t stage = 0; stage < options.convolutions.size(); ++stage) {
    const int64_t channels = options.width << std::min(stage, kDoublings);
    for (int i = 0; i < options.convolutions[stage]; ++i, layer += 2) {
      x = graph.Relu(net.Convolution(
          absl::StrCat(layer), x, channels,
          {.kernel = 3, .padding = 1, .init = nn::ConvolutionOptions::Init::kNormalFanOut}));
    }
    x = graph.MaxPool(x, Graph::Sliding(2, 2, 2));
    ++layer;
  }
  return x;
}

Tensor Classifier(const Builder& net, Tensor x, const VggOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  const auto linear = [&](const char* name, int64_t outputs) {
    return net.Linear(
        name, x, outputs,
        {.weights = nn::FirstValues::Normal(0.01), .bias = nn::FirstValues::Filled(0)});
  };
  for (const char* name : {"0", "3"})
    x = net.Dropout(graph.Relu(linear(name, options.hidden)), options.dropout);
  return linear("6", options.classes);
}

}  // namespace

VggOptions Vgg16() { return {}; }

Tensor Vgg(const Builder& net, Tensor images, const VggOptions& options) {
  Graph& graph = net.graph();
  const Graph::Scope scope = net.EnterScope();
  const Tensor x = Features(net.In("features"), images, options);
  const Tensor pooled = graph.AdaptiveAveragePool(x, {options.pooled, options.pooled});
  return Classifier(net.In("classifier"), net.Flatten(pooled), options);
}

}  // namespace vpod::models
