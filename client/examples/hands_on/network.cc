#include "client/examples/hands_on/network.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "client/models/mnist.h"
#include "client/models/resnet.h"
#include "client/nn/builder.h"

namespace vpod::examples {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;

struct Variant {
  models::ResNetOptions (*options)();
  const char* middle;  // block
};
const std::map<std::string, Variant>& ResNets() {
  static const auto* const variants =
      new std::map<std::string, Variant>{{"resnet18", {models::ResNet18, "layer3.0"}},
                                         {"resnet50", {models::ResNet50, "layer3.0"}},
                                         {"resnet101", {models::ResNet101, "layer3.4"}}};
  return *variants;
}

absl::Status WrongIpus(const NetworkOptions& options, const char* range) {
  return absl::InvalidArgumentError(
      absl::StrCat("network ", options.name, " runs on ", range, " IPUs, not on ", options.ipus));
}

}  // namespace

absl::StatusOr<Network> BuildNetwork(const NetworkOptions& options) {
  Network network;
  Graph& g = network.graph;
  const nn::Builder net(g, {.seed = 1, .training = true});
  const auto resnet = ResNets().find(options.name);
  const bool is_mnist = options.name == "mnist";
  if (!is_mnist && resnet == ResNets().end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unknown network '", options.name, "', must be resnet18, resnet50, resnet101 or mnist"));
  }
  const int64_t channels = is_mnist ? 1 : 3, size = is_mnist ? 28 : options.image_size;
  const program::v1::DataType streamed = options.byte_images ? program::v1::UINT8 : options.type;
  Tensor images = g.Input("images", {streamed, {options.micro_batch, channels, size, size}});
  if (options.byte_images) {  // 0 to 255 become -1 to 1
    images = g.Cast(images, options.type);
    images = g.Add(g.Multiply(images, g.Constant({options.type, {}}, 2.0 / 255)),
                   g.Constant({options.type, {}}, -1));
  }
  Tensor logits;
  if (is_mnist) {
    if (options.ipus != 1 && options.ipus != 4) return WrongIpus(options, "1 or 4");
    if (options.type != FLOAT32)
      return absl::InvalidArgumentError("network mnist has precision 32.32 only");
    logits = (options.ipus == 4 ? models::MnistOfFourStages : models::Mnist)(net, images);
  } else {
    if (options.ipus != 1 && options.ipus != 2) return WrongIpus(options, "1 or 2");
    models::ResNetOptions variant = resnet->second.options();
    variant.classes = kClasses;
    if (options.ipus == 2)
      variant.stages = {options.split.empty() ? resnet->second.middle : options.split};
    logits = models::ResNet(net, images, variant);
  }
  const Tensor labels = g.Input("labels", {INT32, {options.micro_batch}});
  const Tensor single = options.type == FLOAT32 ? logits : g.Cast(logits, FLOAT32);
  network.loss = g.Mean(g.SoftmaxCrossEntropy(single, labels));
  g.Output("loss", network.loss);
  if (!g.status().ok()) return g.status();
  return network;
}

}  // namespace vpod::examples
