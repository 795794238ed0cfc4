#include "tests/programs/bits_training.h"

#include <algorithm>
#include <bit>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/nn/builder.h"
#include "client/session/session.h"
#include "device/base/status.h"

namespace vpod::testing {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

constexpr int64_t kBatch = 4, kClasses = 5;
constexpr uint32_t kIterations = 3, kRuns = 2;

Tensor Network(const nn::Builder& net, Tensor images, bool dropout) {
  Graph& graph = net.graph();
  const auto convolution = [&](const char* name, Tensor x, uint32_t stride) {
    return net.Convolution(name, x, 8, {.kernel = 3, .stride = stride, .padding = 1});
  };
  Tensor x = graph.Relu(net.BatchNorm("bn1", convolution("conv1", images, 1)));
  if (dropout) x = graph.Dropout(x, 0.25f);
  const Tensor y = net.BatchNorm("bn2", convolution("conv2", x, 1));
  x = graph.Relu(graph.Add(y, x));
  x = graph.MaxPool(convolution("conv3", x, 2), Graph::Sliding(2, 2, 2));
  x = graph.Unary(program::v1::TANH, net.Linear("fc1", net.Flatten(x), 24));
  if (dropout) x = graph.Dropout(x, 0.5f);
  return net.Linear("fc2", x, kClasses);
}

absl::StatusOr<compiler::Compiled> CompileNetwork(const BitsOptions& options) {
  Graph graph;
  const nn::Builder net(graph, {.seed = 5, .training = true});
  const Tensor images = graph.Input("images", {FLOAT32, {kBatch, 2, 8, 8}});
  const Tensor labels = graph.Input("labels", {INT32, {kBatch}});
  const Tensor logits = Network(net, graph.Cast(images, options.type), options.dropout);
  const Tensor loss = graph.Mean(graph.SoftmaxCrossEntropy(graph.Cast(logits, FLOAT32), labels));
  graph.Output("loss", loss);
  compiler::ProgramSpec spec{
      .name = "train",
      .device_iterations = kIterations,
      .accumulation = options.accumulation(),
      .loss = loss,
      .optimizer = compiler::SgdOptions{.learning_rate = 0.05f, .momentum = 0.9f}};
  if (options.type == FLOAT16) spec.loss_scale = 128;
  return compiler::Compile(graph, {.total_replicas = options.replicas,
                                   .fusion = options.fusion,
                                   .rounding = options.rounding,
                                   .programs = {std::move(spec)}});
}

// The number in the job of a replica's micro-batch: device iteration, accumulation step, replica.
uint32_t NumberOf(const BitsOptions& options, uint32_t run, uint32_t local, size_t transfer) {
  const uint32_t of_run = kIterations * options.accumulation();
  return (run * of_run + static_cast<uint32_t>(transfer)) * options.replicas + options.offset +
         local;
}

absl::Status FillStreams(const BitsOptions& options, uint32_t run, session::Session& session) {
  for (uint32_t replica = 0; replica < session.device().local_replicas(); ++replica) {
    VPOD_ASSIGN_OR_RETURN(const auto pixels, session.Stream<float>("images", replica));
    VPOD_ASSIGN_OR_RETURN(const auto labels, session.Stream<int32_t>("labels", replica));
    const size_t transfers = labels.size() / kBatch, image = pixels.size() / transfers;
    for (size_t t = 0; t < transfers; ++t) {
      std::mt19937 random(NumberOf(options, run, replica, t));
      std::normal_distribution<float> normal;
      std::generate_n(pixels.begin() + t * image, image, [&] { return normal(random); });
      std::generate_n(labels.begin() + t * kBatch, kBatch,
                      [&] { return static_cast<int32_t>(random() % kClasses); });
    }
  }
  return absl::OkStatus();
}

std::string Hex(float value) { return absl::StrFormat("%08x", std::bit_cast<uint32_t>(value)); }

bool BelongsToAReplica(const std::string& variable) {
  return variable.find("running_") != std::string::npos ||
         variable.find("num_batches_tracked") != std::string::npos ||
         variable.rfind("random/", 0) == 0;
}

}  // namespace

absl::StatusOr<Bits> TrainForBits(const BitsOptions& options,
                                  std::unique_ptr<session::Device> device) {
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, CompileNetwork(options));
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled,
                                                                     {.sharing = options.sharing}));
  const uint32_t replicas = session->device().local_replicas();
  Bits bits;
  for (uint32_t run = 0; run < kRuns; ++run) {
    VPOD_RETURN_IF_ERROR(FillStreams(options, run, *session));
    VPOD_RETURN_IF_ERROR(session->Run("train").status());
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      VPOD_ASSIGN_OR_RETURN(const auto losses, session->Stream<float>("loss", replica));
      for (size_t t = 0; t < losses.size(); ++t)
        bits[absl::StrCat("loss ", NumberOf(options, run, replica, t))] = Hex(losses[t]);
    }
  }
  for (const auto& [name, initial] : compiled.initial_values) {
    if (BelongsToAReplica(name)) continue;
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      VPOD_ASSIGN_OR_RETURN(const auto values, session->ReadFloats(name, replica));
      for (size_t i = 0; i < values.size(); ++i) {
        std::string& of_element = bits[absl::StrCat(name, " ", i)];
        if (replica > 0 && of_element != Hex(values[i])) {
          return absl::InternalError(
              absl::StrCat("replicas differ in element ", i, " of variable ", name));
        }
        of_element = Hex(values[i]);
      }
    }
  }
  return bits;
}

}  // namespace vpod::testing
