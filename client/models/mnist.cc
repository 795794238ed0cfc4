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

}  // namespace

Tensor Mnist(const nn::Builder& net, Tensor images) {
  const Graph::Scope scope = net.EnterScope();
  Tensor x = Block(net.In("layer1"), images, 10);
  x = Block(net.In("layer2"), x, 20);
  x = net.graph().Relu(net.Linear("layer3", net.Flatten(x), 256));
  return net.Linear("layer4", x, 10);
}

}  // namespace vpod::models
