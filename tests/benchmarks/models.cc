// Times steps of the models of client/models on one replica of the IPUModel, for models.py: each
// line of the standard input is "MODEL BATCH train|infer float32|float16 STEPS", and is answered by
// the milliseconds of a step. A model is compiled when it is first asked for.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/mnist.h"
#include "client/models/resnet.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/base/status.h"

namespace vpod {
namespace {

using graph::Graph;
using graph::Tensor;

constexpr int kThreads = 2;

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
      {"resnet50", {{3, 224, 224}, 1000, [](const nn::Builder& net, Tensor images) {
                      return BuildResNet(net, images, models::ResNet50(), false, 1000);
                    }}}};
  return *models;
}

absl::StatusOr<std::unique_ptr<session::Session>> Open(const Model& model, int64_t batch,
                                                       bool training, bool half) {
  Graph graph;
  const nn::Builder net(graph, {.seed = 1, .training = training});
  graph::Dims dims = {batch};
  dims.insert(dims.end(), model.image.begin(), model.image.end());
  const auto type = half ? program::v1::FLOAT16 : program::v1::FLOAT32;
  // The rate is low, so that losses stay finite in float16, too.
  compiler::ProgramSpec spec{.name = "run", .sgd = {.learning_rate = 1e-4f, .momentum = 0.9f}};
  const Tensor logits = model.build(net, graph.Input("images", {type, dims}));
  if (training) {
    const Tensor labels = graph.Input("labels", {program::v1::INT32, {batch}});
    spec.loss =
        graph.Mean(graph.SoftmaxCrossEntropy(graph.Cast(logits, program::v1::FLOAT32), labels));
    graph.Output("loss", *spec.loss);
  } else {
    graph.Output("logits", logits);
  }
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                        compiler::Compile(graph, {.programs = {spec}}));
  VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({.compute_threads = kThreads}));
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  if (half) {
    VPOD_ASSIGN_OR_RETURN(const auto images, session->Stream<_Float16>("images", 0));
    for (_Float16& pixel : images) pixel = static_cast<_Float16>(normal(random));
  } else {
    VPOD_ASSIGN_OR_RETURN(const auto images, session->Stream<float>("images", 0));
    for (float& pixel : images) pixel = normal(random);
  }
  if (training) {
    VPOD_ASSIGN_OR_RETURN(const auto labels, session->Stream<int32_t>("labels", 0));
    for (int32_t& label : labels)
      label = static_cast<int32_t>(random() % static_cast<uint32_t>(model.classes));
  }
  return session;
}

absl::StatusOr<double> MillisecondsOfAStep(session::Session& session, int steps) {
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) VPOD_RETURN_IF_ERROR(session.Run("run").status());
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / steps;
}

absl::Status Serve() {
  std::map<std::string, std::unique_ptr<session::Session>> sessions;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name, mode, type;
    int64_t batch = 0;
    int steps = 0;
    words >> name >> batch >> mode >> type >> steps;
    const auto model = Models().find(name);
    if (!words || model == Models().end() || batch < 1 || steps < 1)
      return absl::InvalidArgumentError(absl::StrCat("cannot time '", line, "'"));
    auto& session = sessions[absl::StrCat(name, batch, mode, type)];
    if (session == nullptr) {
      VPOD_ASSIGN_OR_RETURN(session,
                            Open(model->second, batch, mode == "train", type == "float16"));
    }
    VPOD_ASSIGN_OR_RETURN(const double milliseconds, MillisecondsOfAStep(*session, steps));
    std::printf("%.4f\n", milliseconds);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace vpod

int main() {
  const absl::Status status = vpod::Serve();
  if (status.ok()) return 0;
  std::fprintf(stderr, "models: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
