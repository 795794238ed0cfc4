#include "client/plan/networks.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/models/bert.h"
#include "client/models/efficientnet.h"
#include "client/models/gpt2.h"
#include "client/models/mnist.h"
#include "client/models/mobilenet.h"
#include "client/models/resnet.h"
#include "client/models/vgg.h"
#include "client/models/vit.h"
#include "device/base/status.h"

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

// Whether there is one for each part of a model that is dealt to IPUs; an error of the graph if
// not.
bool HasEnough(Graph& graph, const NetworkRequest& request, int count, const char* what,
               int parts) {
  if (count >= parts) return true;
  graph.Fail(
      absl::InvalidArgumentError(absl::StrCat("model '", request.name, "' has ", count, " ", what,
                                              ", too few for ", request.ipus, " IPUs")));
  return false;
}

Tensor Tokens(Graph& graph, const NetworkRequest& request) {
  return graph.Input("tokens", {INT32, {request.micro_batch, request.sequence_length}});
}

Tensor Rows(Graph& graph, Tensor logits, const NetworkRequest& request) {
  if (!graph.status().ok()) return logits;
  const graph::Dims dims = graph.TypeOf(logits).dims;
  return graph.Reshape(logits, {request.micro_batch * dims[1], dims.back()});
}

// Each IPU has about as many blocks, from the first one on or from the second.
std::vector<std::string> EvenStages(Graph& graph, const NetworkRequest& request,
                                    const char* blocks_name, int blocks, bool first_has_blocks) {
  const int parts = static_cast<int>(request.ipus) - (first_has_blocks ? 0 : 1);
  if (!HasEnough(graph, request, blocks, "blocks", parts)) return {};
  std::vector<std::string> stages;
  for (size_t block : EvenShares(static_cast<size_t>(blocks), static_cast<size_t>(parts)))
    stages.push_back(absl::StrCat(blocks_name, block));
  if (first_has_blocks) stages.erase(stages.begin());
  return stages;
}

// The first IPU has the embedding and the prediction; the halves of layers are dealt to the others
// evenly, or stay there if it is alone.
Build OfBert(models::BertOptions (*variant)()) {
  return [variant](const nn::Builder& net, const NetworkRequest& request) {
    models::BertOptions options = variant();
    options.type = request.type;
    options.positions = std::max(options.positions, request.sequence_length);
    const int others = static_cast<int>(request.ipus) - 1, halves = 2 * options.layers;
    Graph& graph = net.graph();
    for (const std::string& stage : request.stages) {
      const int least = options.half_layers.empty() ? 0 : 1;
      int& half_layers = options.half_layers.emplace_back();
      if (!absl::SimpleAtoi(stage, &half_layers) || half_layers < least || half_layers > halves) {
        return graph.Fail(absl::InvalidArgumentError(absl::StrCat(
            "stages of model '", request.name, "' are the numbers of half layers on each IPU, as ",
            "1,3: '", stage, "' must be ", least, " to ", halves)));
      }
    }
    if (others > 0 && options.half_layers.empty()) {
      if (!HasEnough(graph, request, halves, "half layers", others)) return Tensor();
      int dealt = 0;  // the first IPU has none
      for (size_t begin : EvenShares(static_cast<size_t>(halves), static_cast<size_t>(others))) {
        options.half_layers.push_back(static_cast<int>(begin) - dealt);
        dealt = static_cast<int>(begin);
      }
      options.half_layers.push_back(halves - dealt);
    }
    options.predictions = request.predictions;
    options.attention_dropout = request.attention_dropout;
    options.tanh_gelu = request.tanh_gelu;
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
    options.stages = request.stages;
    if (request.ipus > 1 && options.stages.empty())
      options.stages = EvenStages(graph, request, "h.", options.layers, false);
    return Rows(graph, models::Gpt2ForLanguage(net, Tokens(graph, request), options), request);
  };
}

Tensor Vit(const nn::Builder& net, Tensor images, const NetworkRequest& request) {
  models::VisionTransformerOptions options = models::VitB16();
  options.stages = request.stages;
  if (request.ipus > 1 && options.stages.empty())
    options.stages = EvenStages(net.graph(), request, "encoder_layer_", options.layers, true);
  return models::VisionTransformer(net, images, options);
}

// The words of a scope, which dots divide, and the name of the block to which it belongs.
using Words = std::vector<std::string>;
using FindBlock = std::string (*)(const Words&);

std::string First(const Words& words, size_t count) {
  if (words.size() < count) return "";
  return absl::StrJoin(words.begin(), words.begin() + static_cast<ptrdiff_t>(count), ".");
}

// "bert.encoder.layer.3.attention", "bert.encoder.layer.3.output"
std::string BertBlock(const Words& words) {
  const std::string layer = First(words, 3) == "bert.encoder.layer" ? First(words, 4) : "";
  if (layer.empty()) return "";
  return absl::StrCat(layer,
                      words.size() > 4 && words[4] == "attention" ? ".attention" : ".output");
}

// The first words of a scope "features.N", of which the stem is 0 and the head follows `last`.
std::string FeatureBlock(const Words& words, int last, size_t count) {
  int number = 0;
  const bool is_block = words.size() >= count && words[0] == "features" &&
                        absl::SimpleAtoi(words[1], &number) && number >= 1 && number <= last;
  return is_block ? First(words, count) : "";
}
// "features.2.1"
std::string EfficientNetBlock(const Words& words) { return FeatureBlock(words, 7, 3); }
// "features.4"
std::string MobileNetBlock(const Words& words) { return FeatureBlock(words, 17, 2); }

// "h.3" of "transformer.h.3"
std::string Gpt2Block(const Words& words) {
  return words.size() > 2 && words[1] == "h" ? absl::StrCat("h.", words[2]) : "";
}

// "encoder_layer_3" of "encoder.layers.encoder_layer_3"
std::string VitBlock(const Words& words) {
  return words.size() > 2 && words[1] == "layers" ? words[2] : "";
}

// "layer1.0"
std::string ResNetBlock(const Words& words) {
  return absl::StartsWith(words[0], "layer") ? First(words, 2) : "";
}

struct Model {
  Build build;
  NetworkOptions options;
  FindBlock block = nullptr;  // of a model that has blocks
};

const std::map<std::string, Model>& Networks() {
  const NetworkOptions images{.images = true, .image_size = true};
  NetworkOptions chain = images, residual = images, vit = images;
  chain.stages = residual.stages = vit.stages = true;
  vit.is_split = residual.checkpoints = residual.classes = true;
  const NetworkOptions gpt2{
      .tokens = true, .stages = true, .is_split = true, .last_is_first = true};
  NetworkOptions bert = gpt2;
  bert.predictions = bert.stages_are_counts = true;
  static const auto* const networks = new std::map<std::string, Model>{
      {"bert-base", {OfBert(models::BertBase), bert, BertBlock}},
      {"bert-large", {OfBert(models::BertLarge), bert, BertBlock}},
      {"bert-tiny", {OfBert(models::BertTiny), bert, BertBlock}},
      {"efficientnet-b0", {OfEfficientNet(models::EfficientNetB0), chain, EfficientNetBlock}},
      {"efficientnet-b4", {OfEfficientNet(models::EfficientNetB4), chain, EfficientNetBlock}},
      {"efficientnet-b4-g16",
       {OfEfficientNet(models::EfficientNetB4Group16), chain, EfficientNetBlock}},
      {"gpt2", {OfGpt2(models::Gpt2Small), gpt2, Gpt2Block}},
      {"gpt2-large", {OfGpt2(models::Gpt2Large), gpt2, Gpt2Block}},
      {"gpt2-medium", {OfGpt2(models::Gpt2Medium), gpt2, Gpt2Block}},
      {"gpt2-xl", {OfGpt2(models::Gpt2Xl), gpt2, Gpt2Block}},
      {"mnist",
       {[](const nn::Builder& net, const NetworkRequest& request) {
          const Tensor images = Images(net.graph(), request, 1, 28);
          return request.ipus == 1 ? models::Mnist(net, images)
                                   : models::MnistOfFourStages(net, images);
        },
        {.images = true, .is_split = true}}},
      {"mobilenet-v2",
       {OfImages([](const nn::Builder& net, Tensor images, const NetworkRequest& request) {
          return models::MobileNetV2(net, images, {.stages = request.stages});
        }),
        chain, MobileNetBlock}},
      {"resnet18", {OfResNet(models::ResNet18), residual, ResNetBlock}},
      {"resnet34", {OfResNet(models::ResNet34), residual, ResNetBlock}},
      {"resnet50", {OfResNet(models::ResNet50), residual, ResNetBlock}},
      {"resnet101", {OfResNet(models::ResNet101), residual, ResNetBlock}},
      {"resnext101", {OfResNet(models::ResNext101_32x8d), residual, ResNetBlock}},
      {"vgg16",
       {OfImages([](const nn::Builder& net, Tensor images, const NetworkRequest&) {
          return models::Vgg(net, images, models::Vgg16());
        }),
        images}},
      {"vit-b16", {OfImages(Vit), vit, VitBlock}}};
  return *networks;
}

// Names of those that take an option, as a text.
std::string NamesOfThose(const std::function<bool(const NetworkOptions&)>& take) {
  std::vector<std::string> names;
  for (const auto& [name, model] : Networks()) {
    if (take(model.options)) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

// Options that a model does not take would be ignored.
absl::Status CheckOptions(const NetworkRequest& request, const NetworkOptions& options) {
  const auto refused = [&](const char* what, bool NetworkOptions::*option) {
    return absl::InvalidArgumentError(absl::StrCat("model '", request.name, "' takes no ", what,
                                                   ", only these do: ", NamesOfThose(option)));
  };
  if (!request.checkpoints.empty() && !options.checkpoints)
    return refused("checkpoints", &NetworkOptions::checkpoints);
  if (!request.stages.empty() && !options.stages) return refused("stages", &NetworkOptions::stages);
  if (request.predictions != 0 && !options.predictions)
    return refused("predictions", &NetworkOptions::predictions);
  if (request.predictions < 0 || request.predictions > request.sequence_length) {
    return absl::InvalidArgumentError(absl::StrCat("predictions are ", request.predictions,
                                                   ", must be 1 to the ", request.sequence_length,
                                                   " tokens of a sequence"));
  }
  if (request.ipus > 1 && !options.stages && !options.is_split) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model '", request.name, "' is not split: a replica has 1 IPU, not ", request.ipus,
        "; these are: ",
        NamesOfThose([](const NetworkOptions& model) { return model.stages || model.is_split; })));
  }
  if (request.ipus > 1 && request.stages.empty() && !options.is_split) {
    return absl::InvalidArgumentError(
        absl::StrCat("model '", request.name, "' needs stages to be split over ", request.ipus,
                     " IPUs; these need none: ", NamesOfThose(&NetworkOptions::is_split)));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> NetworkNames() {
  std::vector<std::string> names;
  for (const auto& [name, model] : Networks()) names.push_back(name);
  return names;
}

std::vector<size_t> EvenShares(size_t parts, size_t shares) {
  std::vector<size_t> beginnings;
  for (size_t share = 0; share < shares; ++share) beginnings.push_back(parts * share / shares);
  return beginnings;
}

absl::StatusOr<NetworkOptions> OptionsOf(const std::string& name) {
  const auto model = Networks().find(name);
  if (model != Networks().end()) return model->second.options;
  return absl::InvalidArgumentError(absl::StrCat("unknown model '", name, "', must be one of ",
                                                 absl::StrJoin(NetworkNames(), ", ")));
}

std::string BlockOf(const std::string& name, const std::string& scope) {
  const auto model = Networks().find(name);
  if (model == Networks().end() || model->second.block == nullptr) return "";
  return model->second.block(absl::StrSplit(scope, '.'));
}

absl::StatusOr<Network> BuildNetwork(const NetworkRequest& request) {
  VPOD_ASSIGN_OR_RETURN(const NetworkOptions options, OptionsOf(request.name));
  VPOD_RETURN_IF_ERROR(CheckOptions(request, options));
  Network network;
  Graph& g = network.graph;
  const Tensor logits =
      Networks().at(request.name).build(nn::Builder(g, {.training = true}), request);
  if (!g.status().ok()) return g.status();
  const Tensor labels = g.Input("labels", {INT32, {g.TypeOf(logits).dims[0]}});
  const Tensor single = request.type == FLOAT32 ? logits : g.Cast(logits, FLOAT32);
  network.loss = g.Mean(g.SoftmaxCrossEntropy(single, labels));
  g.Output("loss", network.loss);
  if (!g.status().ok()) return g.status();
  uint32_t used = 0;
  for (const graph::Node& node : g.nodes()) used = std::max(used, node.ipu + 1);
  if (request.ipus != used) {
    return absl::InvalidArgumentError(absl::StrCat("model '", request.name, "' is split over ",
                                                   used, used == 1 ? " IPU" : " IPUs",
                                                   ", but a replica has ", request.ipus));
  }
  return network;
}

}  // namespace vpod::plan
