// A training step of ResNet-18 as a pipeline over four IPUs, beside the same micro-batches one
// after the other on one IPU. Both have two compute threads, and the same losses to the bit.

#include <algorithm>
#include <cstdio>
#include <random>

#include "client/compiler/compiler.h"
#include "client/models/resnet.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/base/status.h"
#include "tests/benchmarks/turns.h"

namespace vpod::benchmarks {
namespace {

constexpr int kRounds = 7;
constexpr int kThreads = 2;
constexpr int64_t kBatch = 8;
constexpr uint32_t kMicroBatches = 16;

absl::StatusOr<compiler::Compiled> CompileTraining(std::vector<std::string> stages) {
  graph::Graph g;
  const nn::Builder net(g, {.seed = 1, .training = true});
  const auto ipus = static_cast<uint32_t>(stages.size() + 1);
  models::ResNetOptions options = models::ResNet18();
  options.small_images = true;
  options.classes = 10;
  options.stages = std::move(stages);
  const graph::Tensor images = g.Input("images", {program::v1::FLOAT32, {kBatch, 3, 32, 32}});
  const graph::Tensor labels = g.Input("labels", {program::v1::INT32, {kBatch}});
  const graph::Tensor loss =
      g.Mean(g.SoftmaxCrossEntropy(models::ResNet(net, images, options), labels));
  g.Output("loss", loss);
  compiler::CompileOptions compile{.ipus_per_replica = ipus,
                                   .schedule = compiler::Schedule::kGrouped};
  compile.allow_out_of_memory = true;  // on an IPUModel
  compile.programs = {
      {.name = "train",
       .accumulation = kMicroBatches,
       .loss = loss,
       .optimizer = compiler::SgdOptions{.learning_rate = 1e-3f, .momentum = 0.9f}}};
  return compiler::Compile(g, compile);
}

absl::StatusOr<std::unique_ptr<session::Session>> Open(std::vector<std::string> stages) {
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, CompileTraining(std::move(stages)));
  VPOD_ASSIGN_OR_RETURN(
      auto device,
      session::CreateIpuModel({.ipus_per_replica = compiled.executable->ipus_per_replica(),
                               .compute_threads = kThreads}));
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  VPOD_ASSIGN_OR_RETURN(const auto images, session->Stream<float>("images", 0));
  for (float& pixel : images) pixel = normal(random);
  VPOD_ASSIGN_OR_RETURN(const auto labels, session->Stream<int32_t>("labels", 0));
  for (int32_t& label : labels) label = static_cast<int32_t>(random() % 10);
  return session;
}

absl::Status CompareLosses(session::Session& a, session::Session& b) {
  VPOD_ASSIGN_OR_RETURN(const auto of_a, a.Stream<float>("loss", 0));
  VPOD_ASSIGN_OR_RETURN(const auto of_b, b.Stream<float>("loss", 0));
  if (std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end())) return absl::OkStatus();
  return absl::DataLossError("the losses differ");
}

absl::Status Measure() {
  VPOD_ASSIGN_OR_RETURN(const auto pipelined, Open({"layer2.0", "layer3.0", "layer4.0"}));
  VPOD_ASSIGN_OR_RETURN(const auto single, Open({}));
  const auto turn = [](session::Session& session) {
    return [&] { return session.Run("train").status(); };
  };
  VPOD_ASSIGN_OR_RETURN(const auto seconds,
                        MedianSecondsInTurns(kRounds, {turn(*pipelined), turn(*single)}));
  VPOD_RETURN_IF_ERROR(CompareLosses(*pipelined, *single));
  constexpr double kImages = kBatch * kMicroBatches;
  std::printf(
      "ResNet-18, 32x32, %u micro-batches of %d, training: pipelined over 4 IPUs %.1f "
      "images/s, on one IPU %.1f images/s, ratio %.2f (the aim is 0.9)\n",
      kMicroBatches, static_cast<int>(kBatch), kImages / seconds[0], kImages / seconds[1],
      seconds[1] / seconds[0]);
  return absl::OkStatus();
}

}  // namespace
}  // namespace vpod::benchmarks

int main() {
  const absl::Status status = vpod::benchmarks::Measure();
  if (status.ok()) return 0;
  std::fprintf(stderr, "pipeline: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
