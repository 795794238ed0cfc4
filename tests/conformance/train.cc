// Trains a model of client/models on the IPUModel and leaves what PyTorch needs to do the same:
// initial.npz, first.npz and final.npz (the variables before, after one step and at the end),
// inputs.npz (input0, input1 … and labels of all steps) and losses.npz.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/bert.h"
#include "client/models/efficientnet.h"
#include "client/models/gpt2.h"
#include "client/models/mnist.h"
#include "client/models/mobilenet.h"
#include "client/models/recurrent.h"
#include "client/models/resnet.h"
#include "client/models/transformer.h"
#include "client/models/vgg.h"
#include "client/models/vit.h"
#include "client/session/ipu_model.h"
#include "client/session/npz.h"
#include "client/session/session.h"
#include "device/base/status.h"
#include "tests/support/classifier.h"

namespace vpod {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using testing::Classifier;

struct Arguments {
  std::string model = "mnist";
  std::string directory = ".";
  int64_t batch = 16;
  uint32_t steps = 20;
  float learning_rate = 0.05f, momentum = 0.9f, weight_decay = 0;
  std::string optimizer = "sgd";
  bool half = false;
  float loss_scale = 1;
  uint64_t seed = 1;
  int threads = 0;
  bool fusion = true;
};

// A small vocabulary and few positions, so that most of the time goes into layers.
constexpr int64_t kVocabulary = 100;

models::BertOptions SmallBert() {
  models::BertOptions options = models::BertTiny();
  options.vocabulary = kVocabulary;
  options.positions = 16;
  options.dropout = 0;
  return options;
}

const std::map<std::string, Classifier>& Models() {
  using Inputs = std::vector<Tensor>;
  const Classifier::Input photo{{3, 32, 32}}, small_photo{{3, 16, 16}}, features{{12, 24}},
      tokens{{12}, kVocabulary}, flags{{12}, 2};
  static const auto* const models = new std::map<std::string, Classifier>{
      {"mnist",
       {{{{1, 28, 28}}},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::Mnist(net, inputs[0]);
        }}},
      {"mobilenet",
       {{photo},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::MobileNetV2(net, inputs[0],
                                     {.classes = 10, .dropout = 0, .small_images = true});
        }}},
      {"efficientnet",
       {{small_photo},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::EfficientNet(net, inputs[0],
                                      {.width = 0.5,
                                       .depth = 0.5,
                                       .classes = 10,
                                       .dropout = 0,
                                       .stochastic_depth = 0,
                                       .small_images = true});
        }}},
      {"resnet18",
       {{photo},
        [](const nn::Builder& net, const Inputs& inputs) {
          models::ResNetOptions options = models::ResNet18();
          options.classes = 10;
          options.small_images = true;
          return models::ResNet(net, inputs[0], options);
        }}},
      {"vgg",
       {{photo},
        [](const nn::Builder& net, const Inputs& inputs) {
          models::VggOptions options = models::Vgg16();
          options.width = 8;
          options.pooled = 2;
          options.hidden = 64;
          options.dropout = 0;
          options.classes = 10;
          return models::Vgg(net, inputs[0], options);
        }}},
      {"vit",
       {{photo},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::VisionTransformer(
              net, inputs[0],
              {.patch = 8, .width = 64, .layers = 2, .heads = 4, .mlp = 128, .classes = 10});
        }}},
      {"encoder",
       {{{{12, 64}}},
        [](const nn::Builder& net, const Inputs& inputs) {
          const Tensor tokens =
              models::TransformerEncoder(net.In("encoder"), inputs[0], {.gelu = true});
          return net.Linear("fc", net.graph().Reduce(program::v1::MEAN, tokens, {1}), 10);
        }}},
      {"lstm",
       {{features},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::LstmClassifier(net, inputs[0], {.hidden = 32, .recurrent = {.layers = 2}});
        }}},
      {"gru",
       {{tokens},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::GruClassifier(net, inputs[0],
                                       {.vocabulary = kVocabulary,
                                        .embedding = 24,
                                        .hidden = 32,
                                        .recurrent = {.layers = 2, .bidirectional = true}});
        }}},
      {"bert_tiny",
       {{tokens, flags, flags},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::BertForClassification(net, {inputs[0], inputs[1], inputs[2]}, SmallBert(),
                                               10);
        }}},
      {"bert_tiny_masked",
       {{tokens, flags, flags},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::BertForMaskedLanguage(net, {inputs[0], inputs[1], inputs[2]}, SmallBert());
        },
        {12},
        kVocabulary}},
      {"gpt2",
       {{tokens},
        [](const nn::Builder& net, const Inputs& inputs) {
          return models::Gpt2ForLanguage(net, inputs[0],
                                         {.vocabulary = kVocabulary,
                                          .positions = 16,
                                          .width = 64,
                                          .layers = 2,
                                          .heads = 4,
                                          .dropout = 0});
        },
        {12},
        kVocabulary}}};
  return *models;
}

// A stream of the program and what all steps have read from it.
struct Data {
  testing::RandomStream stream;
  std::string all = {};  // bytes

  // Draws the numbers of a step.
  absl::Status Fill(session::Session& session, std::mt19937_64& random) {
    VPOD_ASSIGN_OR_RETURN(const auto elements, session.Stream<uint32_t>(stream.name, 0));
    testing::Draw(stream, random, elements);
    all.append(reinterpret_cast<const char*>(elements.data()), sizeof(uint32_t) * elements.size());
    return absl::OkStatus();
  }

  // The same of all steps, which are the first dimension.
  session::Array Record(int64_t steps) const {
    graph::TensorType recorded = stream.type;
    recorded.dims.insert(recorded.dims.begin(), steps);
    return {recorded, all};
  }
};

compiler::Optimizer OptimizerOf(const Arguments& arguments) {
  if (arguments.optimizer == "adamw") {
    return compiler::AdamOptions{.learning_rate = arguments.learning_rate,
                                 .weight_decay = arguments.weight_decay,
                                 .decoupled_weight_decay = true};
  }
  if (arguments.optimizer == "lamb") {
    return compiler::LambOptions{.learning_rate = arguments.learning_rate,
                                 .weight_decay = arguments.weight_decay};
  }
  return compiler::SgdOptions{.learning_rate = arguments.learning_rate,
                              .momentum = arguments.momentum,
                              .weight_decay = arguments.weight_decay};
}

absl::Status Train(const Arguments& arguments) {
  Graph graph;
  const nn::Builder net(graph, {.seed = arguments.seed, .training = true});
  const testing::TrainedClassifier model =
      testing::AddClassifier(net, Models().at(arguments.model), arguments.batch,
                             arguments.half ? FLOAT16 : program::v1::FLOAT32);
  compiler::ProgramSpec spec{
      .name = "train", .loss = model.loss, .optimizer = OptimizerOf(arguments)};
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

  std::vector<Data> data;
  for (const testing::RandomStream& stream : model.streams) data.push_back({stream});
  std::mt19937_64 random(arguments.seed + 1);
  std::vector<float> losses;
  VPOD_ASSIGN_OR_RETURN(const auto loss_stream, session->Stream<float>("loss", 0));
  for (uint32_t step = 0; step < arguments.steps; ++step) {
    for (Data& each : data) VPOD_RETURN_IF_ERROR(each.Fill(*session, random));
    VPOD_RETURN_IF_ERROR(session->Run("train").status());
    losses.push_back(loss_stream[0]);
    if (step == 0)
      VPOD_RETURN_IF_ERROR(session->Save(absl::StrCat(arguments.directory, "/first.npz")));
  }
  const int64_t steps = arguments.steps;
  session::Arrays recorded;
  for (const Data& each : data) recorded[each.stream.name] = each.Record(steps);
  VPOD_RETURN_IF_ERROR(
      session::WriteNpz(absl::StrCat(arguments.directory, "/inputs.npz"), recorded));
  VPOD_RETURN_IF_ERROR(session::WriteNpz(absl::StrCat(arguments.directory, "/losses.npz"),
                                         {{"losses", session::FloatArray({steps}, losses)}}));
  return session->Save(absl::StrCat(arguments.directory, "/final.npz"));
}

}  // namespace
}  // namespace vpod

int main(int argc, char** argv) {
  vpod::Arguments arguments;
  CLI::App app("Trains a model on the IPUModel and writes its start, its inputs and its losses");
  app.add_option("--model", arguments.model)->check(CLI::IsMember(&vpod::Models()));
  app.add_option("--directory", arguments.directory);
  app.add_option("--batch", arguments.batch)->check(CLI::Range(2, 1024));
  app.add_option("--steps", arguments.steps)->check(CLI::Range(1, 1000));
  app.add_option("--learning-rate", arguments.learning_rate);
  app.add_option("--momentum", arguments.momentum);
  app.add_option("--weight-decay", arguments.weight_decay);
  app.add_option("--optimizer", arguments.optimizer)
      ->check(CLI::IsMember({"sgd", "adamw", "lamb"}));
  app.add_flag("--half", arguments.half,
               "float16 weights and features, with an automatic loss scale");
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
