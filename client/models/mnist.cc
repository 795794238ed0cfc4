#include "client/models/mnist.h"

namespace vpod::models {
namespace {

using graph::Graph;
using graph::Tensor;

Tensor Block(const nn::Builder& net, Tensor x, int64_t outputs) {
  const Graph::Scope scope = net.EnterScope();
  x = net.Convolution("conv", x, outputs, {.kernel = 5});
  return net.graph().Relu(net.graph().MaxPool(x, Graph::Sliding(2, 2, 2)));
}

// `enter` is called before each layer with its number.
template <class Enter>
Tensor Layers(const nn::Builder& net, Tensor images, const Enter& enter) {
  const Graph::Scope scope = net.EnterScope();
  enter(0);
  Tensor x = Block(net.In("layer1"), images, 10);
  enter(1);
  x = Block(net.In("layer2"), x, 20);
  enter(2);
  x = net.graph().Relu(net.Linear("layer3", net.Flatten(x), 256));
  enter(3);
  return net.Linear("layer4", x, 10);
}

}  // namespace

Tensor Mnist(const nn::Builder& net, Tensor images) {
  return Layers(net, images, [](uint32_t) {});
}

Tensor MnistOfFourStages(const nn::Builder& net, Tensor images) {
  const uint32_t first = net.graph().ipu();
  return Layers(net, images, [&](uint32_t layer) {
    net.graph().SetIpu(first + layer);
    net.graph().SetStage(layer);
  });
}

}  // namespace vpod::models
