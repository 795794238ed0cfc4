// Trains a model of client/models on the IPUModel and leaves what PyTorch needs to do the same:
// initial.npz and final.npz (the variables), inputs.npz (images and labels of all steps) and
// losses.npz.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/mnist.h"
#include "client/models/mobilenet.h"
#include "client/models/resnet.h"
#include "client/models/transformer.h"
#include "client/session/ipu_model.h"
#include "client/session/npz.h"
#include "client/session/session.h"
#include "device/base/status.h"

namespace vpod {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

struct Arguments {
  std::string model = "mnist";
  std::string directory = ".";
  int64_t batch = 16;
  uint32_t steps = 20;
  float learning_rate = 0.05f, momentum = 0.9f, weight_decay = 0;
  bool adamw = false;
  bool half = false;
  float loss_scale = 1;
  uint64_t seed = 1;
  int threads = 0;
  bool fusion = true;
};

struct Model {
  graph::Dims image;  // of one
  Tensor (*logits)(const nn::Builder& net, Tensor images);
};

const std::map<std::string, Model>& Models() {
  static const auto* const models = new std::map<std::string, Model>{
      {"mnist", {{1, 28, 28}, models::Mnist}},
      {"mobilenet",
       {{3, 32, 32},
        [](const nn::Builder& net, Tensor images) {
          return models::MobileNetV2(net, images,
                                     {.classes = 10, .dropout = 0, .small_images = true});
        }}},
      {"resnet18",
       {{3, 32, 32},
        [](const nn::Builder& net, Tensor images) {
          models::ResNetOptions options = models::ResNet18();
          options.classes = 10;
          options.small_images = true;
          return models::ResNet(net, images, options);
        }}},
      {"encoder",
       {{12, 64},  // tokens
        [](const nn::Builder& net, Tensor images) {
          const Tensor tokens =
              models::TransformerEncoder(net.In("encoder"), images, {.gelu = true});
          return net.Linear("fc", net.graph().Reduce(program::v1::MEAN, tokens, {1}), 10);
        }}}};
  return *models;
}

absl::Status Train(const Arguments& arguments) {
  Graph graph;
  const nn::Builder net(graph, {.seed = arguments.seed, .training = true});
  const Model& model = Models().at(arguments.model);
  graph::Dims dims = {arguments.batch};
  dims.insert(dims.end(), model.image.begin(), model.image.end());
  // Weights have the type of the images.
  const auto type = arguments.half ? FLOAT16 : FLOAT32;
  const Tensor images = graph.Cast(graph.Input("images", {FLOAT32, dims}), type);
  const Tensor labels = graph.Input("labels", {INT32, {arguments.batch}});
  const Tensor logits = model.logits(net, images);
  const Tensor loss = graph.Mean(graph.SoftmaxCrossEntropy(graph.Cast(logits, FLOAT32), labels));
  graph.Output("loss", loss);
  compiler::ProgramSpec spec{.name = "train",
                             .loss = loss,
                             .sgd = {.learning_rate = arguments.learning_rate,
                                     .momentum = arguments.momentum,
                                     .weight_decay = arguments.weight_decay}};
  if (arguments.adamw) {
    spec.adam = {.learning_rate = arguments.learning_rate,
                 .weight_decay = arguments.weight_decay,
                 .decoupled_weight_decay = true};
  }
  if (arguments.half) {
    spec.loss_scale = arguments.loss_scale;
    spec.automatic_loss_scale.emplace();
  }
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                        compiler::Compile(graph, {.fusion = arguments.fusion, .programs = {spec}}));
  VPOD_ASSIGN_OR_RETURN(auto device,
                        session::CreateIpuModel({.compute_threads = arguments.threads}));
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  VPOD_RETURN_IF_ERROR(session->Save(absl::StrCat(arguments.directory, "/initial.npz")));

  std::mt19937_64 random(arguments.seed + 1);
  std::normal_distribution<float> normal;
  std::vector<float> all_images, all_labels, losses;
  VPOD_ASSIGN_OR_RETURN(const auto image_stream, session->Stream<float>("images", 0));
  VPOD_ASSIGN_OR_RETURN(const auto label_stream, session->Stream<int32_t>("labels", 0));
  VPOD_ASSIGN_OR_RETURN(const auto loss_stream, session->Stream<float>("loss", 0));
  for (uint32_t step = 0; step < arguments.steps; ++step) {
    for (float& pixel : image_stream) pixel = normal(random);
    for (int32_t& label : label_stream) label = static_cast<int32_t>(random() % 10);
    all_images.insert(all_images.end(), image_stream.begin(), image_stream.end());
    all_labels.insert(all_labels.end(), label_stream.begin(), label_stream.end());
    VPOD_RETURN_IF_ERROR(session->Run("train").status());
    losses.push_back(loss_stream[0]);
  }
  const int64_t steps = arguments.steps;
  dims.insert(dims.begin(), steps);
  VPOD_RETURN_IF_ERROR(
      session::WriteNpz(absl::StrCat(arguments.directory, "/inputs.npz"),
                        {{"images", session::FloatArray(dims, all_images)},
                         {"labels", session::FloatArray({steps, arguments.batch}, all_labels)}}));
  VPOD_RETURN_IF_ERROR(session::WriteNpz(absl::StrCat(arguments.directory, "/losses.npz"),
                                         {{"losses", session::FloatArray({steps}, losses)}}));
  return session->Save(absl::StrCat(arguments.directory, "/final.npz"));
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  vpod::Arguments arguments;
  CLI::App app("Trains a model on the IPUModel and writes its start, its inputs and its losses");
  app.add_option("--model", arguments.model)
      ->check(CLI::IsMember({"encoder", "mnist", "mobilenet", "resnet18"}));
  app.add_option("--directory", arguments.directory);
  app.add_option("--batch", arguments.batch)->check(CLI::Range(2, 1024));
  app.add_option("--steps", arguments.steps)->check(CLI::Range(1, 1000));
  app.add_option("--learning-rate", arguments.learning_rate);
  app.add_option("--momentum", arguments.momentum);
  app.add_option("--weight-decay", arguments.weight_decay);
  app.add_flag("--adamw", arguments.adamw, "AdamW instead of SGD");
  app.add_flag("--half", arguments.half,
               "float16 weights and images, with an automatic loss scale");
  app.add_option("--loss-scale", arguments.loss_scale, "that float16 starts with");
  app.add_option("--seed", arguments.seed);
  app.add_flag("!--no-fusion", arguments.fusion, "leaves ops as they are");
  app.add_option("--compute-threads", arguments.threads)->check(CLI::Range(0, 64));
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = vpod::Train(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "train: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
