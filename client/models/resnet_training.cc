#include "client/models/resnet_training.h"

#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/graph/graph.h"
#include "client/models/resnet.h"
#include "client/nn/builder.h"
#include "client/session/session.h"
#include "device/base/status.h"

namespace vpod::models {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;

constexpr int64_t kClasses = 10;

// The blocks layer1.0, layer1.1, layer2.0, … in stages of as equal numbers as can be.
std::vector<std::string> StageBeginnings(uint32_t stages) {
  constexpr uint32_t kBlocks = 8;
  std::vector<std::string> beginnings;
  for (uint32_t stage = 1; stage < stages; ++stage) {
    const uint32_t block = stage * kBlocks / stages;
    beginnings.push_back(absl::StrCat("layer", block / 2 + 1, ".", block % 2));
  }
  return beginnings;
}

absl::StatusOr<compiler::Compiled> CompileTraining(program::v1::DataType type,
                                                   const ResNetTraining& training) {
  Graph g;
  const nn::Builder net(g, {.seed = 3, .training = true});
  const Tensor images = g.Cast(g.Input("images", {FLOAT32, {1, 3, 32, 32}}), type);
  ResNetOptions options = ResNet18();
  options.small_images = true;
  options.classes = kClasses;
  options.stages = StageBeginnings(training.ipus);
  options.checkpoints = {"layer1.0", "layer3.0"};
  const Tensor logits = ResNet(net, images, options);
  const Tensor labels = g.Input("labels", {INT32, {1}});
  const Tensor loss = g.Mean(g.SoftmaxCrossEntropy(g.Cast(logits, FLOAT32), labels));
  g.Output("loss", loss);
  compiler::CompileOptions compile{.ipus_per_replica = training.ipus,
                                   .total_replicas = training.replicas,
                                   .schedule = training.schedule};
  compile.recomputation = training.recomputation;
  compile.off_chip_optimizer_state = training.off_chip_optimizer_state;
  compile.off_chip_activations = training.off_chip_activations;
  compile.off_chip_weights = training.off_chip_weights;
  compile.off_chip_accumulators = training.off_chip_accumulators;
  compile.tensor_shards = training.tensor_shards;
  compile.programs = {
      {.name = "train",
       .accumulation = training.accumulation,
       .loss = loss,
       .optimizer = compiler::SgdOptions{.learning_rate = 0.02f, .momentum = 0.9f}}};
  return compiler::Compile(g, compile);
}

// The micro-batches of an update, all images first.
absl::Status FillStreams(uint32_t replicas, std::mt19937& generator, session::Session& session) {
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    VPOD_ASSIGN_OR_RETURN(const auto pixels, session.Stream<float>("images", replica));
    for (float& pixel : pixels) pixel = static_cast<float>(generator() % 256) / 128 - 1;
  }
  for (uint32_t replica = 0; replica < replicas; ++replica) {
    VPOD_ASSIGN_OR_RETURN(const auto labels, session.Stream<int32_t>("labels", replica));
    for (int32_t& label : labels) label = static_cast<int32_t>(generator() % kClasses);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<float>> TrainResNet18(program::v1::DataType type,
                                                 const ResNetTraining& training,
                                                 std::unique_ptr<session::Device> device) {
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, CompileTraining(type, training));
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  std::mt19937 generator(5);
  std::vector<float> losses;
  for (uint32_t update = 0; update < ResNetTraining::kUpdates; ++update) {
    VPOD_RETURN_IF_ERROR(FillStreams(training.replicas, generator, *session));
    VPOD_RETURN_IF_ERROR(session->Run("train").status());
    for (uint32_t replica = 0; replica < training.replicas; ++replica) {
      VPOD_ASSIGN_OR_RETURN(const auto stream, session->Stream<float>("loss", replica));
      losses.insert(losses.end(), stream.begin(), stream.end());
    }
  }
  return losses;
}

}  // namespace vpod::models
