#include "tests/benchmarks/networks.h"

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/models/efficientnet.h"
#include "client/models/mnist.h"
#include "client/models/mobilenet.h"
#include "client/models/recurrent.h"
#include "client/models/resnet.h"
#include "client/models/transformer.h"
#include "device/base/status.h"

namespace vpod::benchmarks {
namespace {

using graph::Graph;
using graph::Tensor;

struct Model {
  graph::Dims image;
  int32_t classes;
  Tensor (*build)(const nn::Builder& net, Tensor images);
};

Tensor BuildResNet(const nn::Builder& net, Tensor images, models::ResNetOptions options,
                   bool small_images, int64_t classes) {
  options.small_images = small_images;
  options.classes = classes;
  return models::ResNet(net, images, options);
}

const std::map<std::string, Model>& Models() {
  static const auto* const models = new std::map<std::string, Model>{
      {"mnist", {{1, 28, 28}, 10, models::Mnist}},
      {"resnet18",
       {{3, 32, 32},
        10,
        [](const nn::Builder& net, Tensor images) {
          return BuildResNet(net, images, models::ResNet18(), true, 10);
        }}},
      {"resnet18-stem7",
       {{3, 32, 32},
        10,
        [](const nn::Builder& net, Tensor images) {
          return BuildResNet(net, images, models::ResNet18(), false, 10);
        }}},
      {"encoder512",
       {{64, 512},
        10,
        [](const nn::Builder& net, Tensor tokens) {
          const Tensor encoded =
              models::TransformerEncoder(net.In("encoder"), tokens, {.heads = 8, .gelu = true});
          return net.Linear("fc", net.graph().Reduce(program::v1::MEAN, encoded, {1}), 10);
        }}},
      {"mobilenet",
       {{3, 32, 32},
        10,
        [](const nn::Builder& net, Tensor images) {
          return models::MobileNetV2(net, images,
                                     {.classes = 10, .dropout = 0, .small_images = true});
        }}},
      {"mobilenet224",
       {{3, 224, 224},
        1000,
        [](const nn::Builder& net, Tensor images) {
          return models::MobileNetV2(net, images, {.dropout = 0});
        }}},
      {"efficientnet-b0",
       {{3, 224, 224},
        1000,
        [](const nn::Builder& net, Tensor images) {
          models::EfficientNetOptions options = models::EfficientNetB0();
          options.dropout = options.stochastic_depth = 0;
          return models::EfficientNet(net, images, options);
        }}},
      {"lstm256",
       {{64, 256},
        10,
        [](const nn::Builder& net, Tensor features) {
          return models::LstmClassifier(net, features, {.hidden = 256});
        }}},
      {"resnet50", {{3, 224, 224}, 1000, [](const nn::Builder& net, Tensor images) {
                      return BuildResNet(net, images, models::ResNet50(), false, 1000);
                    }}}};
  return *models;
}

absl::StatusOr<const Model*> Find(const NetworkOptions& options) {
  const auto model = Models().find(options.name);
  if (model == Models().end() || options.batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no network '", options.name, "' with a batch of ", options.batch));
  }
  return &model->second;
}

template <class T>
absl::Status FillImages(const NetworkOptions& options, std::mt19937& random,
                        session::Session& session) {
  std::normal_distribution<float> normal;
  for (uint32_t replica = 0; replica < options.replicas; ++replica) {
    VPOD_ASSIGN_OR_RETURN(const auto images, session.Stream<T>("images", replica));
    for (T& pixel : images) pixel = static_cast<T>(normal(random));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<compiler::Compiled> Compile(const NetworkOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const Model* const model, Find(options));
  Graph graph;
  const nn::Builder net(graph, {.seed = 1, .training = options.training});
  graph::Dims dims = {options.batch};
  dims.insert(dims.end(), model->image.begin(), model->image.end());
  const auto type = options.half ? program::v1::FLOAT16 : program::v1::FLOAT32;
  compiler::ProgramSpec spec{.name = "run"};
  const Tensor logits = model->build(net, graph.Input("images", {type, dims}));
  if (options.training) {
    const Tensor labels = graph.Input("labels", {program::v1::INT32, {options.batch}});
    spec.loss =
        graph.Mean(graph.SoftmaxCrossEntropy(graph.Cast(logits, program::v1::FLOAT32), labels));
    // The rate is low, so that losses stay finite in float16, too.
    spec.optimizer = compiler::SgdOptions{.learning_rate = 1e-4f, .momentum = 0.9f};
    graph.Output("loss", *spec.loss);
  } else {
    graph.Output("logits", logits);
  }
  return compiler::Compile(graph, {.total_replicas = options.replicas,
                                   .allow_out_of_memory = options.allow_out_of_memory,
                                   .programs = {spec}});
}

absl::Status FillStreams(const NetworkOptions& options, session::Session& session) {
  VPOD_ASSIGN_OR_RETURN(const Model* const model, Find(options));
  std::mt19937 random(1);
  VPOD_RETURN_IF_ERROR(options.half ? FillImages<_Float16>(options, random, session)
                                    : FillImages<float>(options, random, session));
  if (!options.training) return absl::OkStatus();
  for (uint32_t replica = 0; replica < options.replicas; ++replica) {
    VPOD_ASSIGN_OR_RETURN(const auto labels, session.Stream<int32_t>("labels", replica));
    for (int32_t& label : labels)
      label = static_cast<int32_t>(random() % static_cast<uint32_t>(model->classes));
  }
  return absl::OkStatus();
}

}  // namespace vpod::benchmarks
