#include "client/plan/networks.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/models/bert.h"
#include "client/models/efficientnet.h"
#include "client/models/gpt2.h"
#include "client/models/mnist.h"
#include "client/models/mobilenet.h"
#include "client/models/resnet.h"
#include "client/models/vgg.h"
#include "client/models/vit.h"

namespace vpod::plan {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;

// The logits of a network, one row for each label.
using Build = std::function<Tensor(const nn::Builder&, const NetworkRequest&)>;

Tensor Images(Graph& graph, const NetworkRequest& request, int64_t channels, int64_t size) {
  const Tensor images =
      graph.Input("images", {request.image_type, {request.micro_batch, channels, size, size}});
  return request.image_type == request.type ? images : graph.Cast(images, request.type);
}

Build OfImages(Tensor (*model)(const nn::Builder&, Tensor, const NetworkRequest&)) {
  return [model](const nn::Builder& net, const NetworkRequest& request) {
    return model(net, Images(net.graph(), request, 3, request.image_size), request);
  };
}

Build OfResNet(models::ResNetOptions (*variant)()) {
  return [variant](const nn::Builder& net, const NetworkRequest& request) {
    models::ResNetOptions options = variant();
    options.small_images = request.image_size <= 32;
    options.classes = request.classes;
    options.stages = request.stages;
    options.checkpoints = request.checkpoints;
    return models::ResNet(net, Images(net.graph(), request, 3, request.image_size), options);
  };
}

Build OfEfficientNet(models::EfficientNetOptions (*variant)()) {
  return [variant](const nn::Builder& net, const NetworkRequest& request) {
    models::EfficientNetOptions options = variant();
    options.stages = request.stages;
    return models::EfficientNet(net, Images(net.graph(), request, 3, request.image_size), options);
  };
}

Tensor Tokens(Graph& graph, const NetworkRequest& request) {
  return graph.Input("tokens", {INT32, {request.micro_batch, request.sequence_length}});
}

Tensor Rows(Graph& graph, Tensor logits, const NetworkRequest& request) {
  if (!graph.status().ok()) return logits;
  const graph::Dims dims = graph.TypeOf(logits).dims;
  return graph.Reshape(logits, {request.micro_batch * dims[1], dims.back()});
}

// The first IPU has the embedding and the prediction; the halves of layers are dealt to the others
// evenly, or stay there if it is alone.
Build OfBert(models::BertOptions (*variant)()) {
  return [variant](const nn::Builder& net, const NetworkRequest& request) {
    models::BertOptions options = variant();
    options.type = request.type;
    options.positions = std::max(options.positions, request.sequence_length);
    const auto others = static_cast<int>(request.ipus) - 1;
    Graph& graph = net.graph();
    for (const std::string& halves : request.stages) {
      if (!absl::SimpleAtoi(halves, &options.half_layers.emplace_back()) ||
          options.half_layers.back() < 1 || options.half_layers.back() > 2 * options.layers) {
        return graph.Fail(absl::InvalidArgumentError(absl::StrCat(
            "'", halves, "' half layers of an IPU, must be 1 to ", 2 * options.layers)));
      }
    }
    if (others > 0 && options.half_layers.empty()) {
      options.half_layers.push_back(0);
      for (int ipu = 0, dealt = 0; ipu < others; ++ipu) {
        const int until = 2 * options.layers * (ipu + 1) / others;
        options.half_layers.push_back(until - dealt);
        dealt = until;
      }
    }
    options.predictions = request.predictions;
    options.attention_dropout = request.attention_dropout;
    const models::BertInputs inputs{
        .tokens = Tokens(graph, request),
        .attended =
            graph.Input("attended", {INT32, {request.micro_batch, request.sequence_length}})};
    return Rows(graph, models::BertForMaskedLanguage(net, inputs, options), request);
  };
}

Build OfGpt2(models::Gpt2Options (*variant)()) {
  return [variant](const nn::Builder& net, const NetworkRequest& request) {
    models::Gpt2Options options = variant();
    options.type = request.type;
    Graph& graph = net.graph();
    return Rows(graph, models::Gpt2ForLanguage(net, Tokens(graph, request), options), request);
  };
}

const std::map<std::string, Build>& Networks() {
  static const auto* const networks = new std::map<std::string, Build>{
      {"bert-base", OfBert(models::BertBase)},
      {"bert-large", OfBert(models::BertLarge)},
      {"bert-tiny", OfBert(models::BertTiny)},
      {"efficientnet-b0", OfEfficientNet(models::EfficientNetB0)},
      {"efficientnet-b4", OfEfficientNet(models::EfficientNetB4)},
      {"efficientnet-b4-g16", OfEfficientNet(models::EfficientNetB4Group16)},
      {"gpt2", OfGpt2(models::Gpt2Small)},
      {"gpt2-medium", OfGpt2(models::Gpt2Medium)},
      {"mnist",
       [](const nn::Builder& net, const NetworkRequest& request) {
         return models::Mnist(net, Images(net.graph(), request, 1, 28));
       }},
      {"mobilenet-v2", OfImages([](const nn::Builder& net, Tensor images, const NetworkRequest&) {
         return models::MobileNetV2(net, images, {});
       })},
      {"resnet18", OfResNet(models::ResNet18)},
      {"resnet34", OfResNet(models::ResNet34)},
      {"resnet50", OfResNet(models::ResNet50)},
      {"resnet101", OfResNet(models::ResNet101)},
      {"resnext101", OfResNet(models::ResNext101_32x8d)},
      {"vgg16", OfImages([](const nn::Builder& net, Tensor images, const NetworkRequest&) {
         return models::Vgg(net, images, models::Vgg16());
       })},
      {"vit-b16", OfImages([](const nn::Builder& net, Tensor images, const NetworkRequest&) {
         return models::VisionTransformer(net, images, models::VitB16());
       })}};
  return *networks;
}

}  // namespace

std::vector<std::string> NetworkNames() {
  std::vector<std::string> names;
  for (const auto& [name, build] : Networks()) names.push_back(name);
  return names;
}

absl::StatusOr<Network> BuildNetwork(const NetworkRequest& request) {
  const auto build = Networks().find(request.name);
  if (build == Networks().end()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown model '", request.name,
                                                   "', must be one of ",
                                                   absl::StrJoin(NetworkNames(), ", ")));
  }
  Network network;
  Graph& g = network.graph;
  const Tensor logits = build->second(nn::Builder(g, {.training = true}), request);
  if (!g.status().ok()) return g.status();
  const Tensor labels = g.Input("labels", {INT32, {g.TypeOf(logits).dims[0]}});
  const Tensor single = request.type == FLOAT32 ? logits : g.Cast(logits, FLOAT32);
  network.loss = g.Mean(g.SoftmaxCrossEntropy(single, labels));
  g.Output("loss", network.loss);
  if (!g.status().ok()) return g.status();
  if (!request.checkpoints.empty() && request.name.find("resn") != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", request.name, "' takes no checkpoints, only residual networks do"));
  }
  uint32_t used = 0;
  for (const graph::Node& node : g.nodes()) used = std::max(used, node.ipu + 1);
  if (request.ipus != used) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model '", request.name, "' is split over ", used, used == 1 ? " IPU" : " IPUs",
        ", but a replica has ", request.ipus,
        request.stages.empty() ? ": residual networks and EfficientNet need stages, and only BERT "
                                 "is split without"
                               : ""));
  }
  return network;
}

}  // namespace vpod::plan
