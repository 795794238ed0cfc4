// A first program: a small network learns which of three clusters a point belongs to. It runs on
// the IPUs that poprun gave to it; without poprun, on the IPUModel in its own process.
#include <cstdio>
#include <random>

#include "client/compiler/compiler.h"
#include "client/nn/builder.h"
#include "client/popdist/context.hpp"
#include "client/session/open.h"
#include "client/session/session.h"
#include "device/base/status.h"

using vpod::program::v1::FLOAT32;
using vpod::program::v1::INT32;

constexpr int kBatch = 32;
constexpr float kCentres[][2] = {{0, 2}, {2, -1}, {-2, -1}};

absl::Status Train() {
  vpod::graph::Graph graph;
  const auto points = graph.Input("points", {FLOAT32, {kBatch, 2}});
  const auto labels = graph.Input("labels", {INT32, {kBatch}});
  const vpod::nn::Builder net(graph, {.seed = 1, .training = true});
  const auto hidden = graph.Relu(net.Linear("hidden", points, 16));
  const auto loss = graph.Mean(graph.SoftmaxCrossEntropy(net.Linear("out", hidden, 3), labels));
  graph.Output("loss", loss);

  vpod::compiler::CompileOptions options{.total_replicas = popdist::getNumTotalReplicas()};
  const vpod::compiler::SgdOptions sgd{.learning_rate = 0.5f, .momentum = 0.5f};
  options.programs = {{.name = "train", .loss = loss, .optimizer = sgd}};
  VPOD_ASSIGN_OR_RETURN(const auto compiled, vpod::compiler::Compile(graph, options));
  VPOD_ASSIGN_OR_RETURN(auto device, vpod::session::OpenDevice());
  const uint32_t offset = popdist::getReplicaIndexOffset(), replicas = device->local_replicas();
  VPOD_ASSIGN_OR_RETURN(const auto session,
                        vpod::session::Session::Create(std::move(device), compiled));
  std::mt19937 random(offset);  // other points on other replicas
  std::normal_distribution<float> noise;
  for (int step = 0; step < 20; ++step) {
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      VPOD_ASSIGN_OR_RETURN(const auto x, session->Stream<float>("points", replica));
      VPOD_ASSIGN_OR_RETURN(const auto y, session->Stream<int32_t>("labels", replica));
      for (size_t i = 0; i < kBatch; ++i) {
        y[i] = static_cast<int32_t>(random() % 3);
        for (size_t axis : {0, 1}) x[2 * i + axis] = kCentres[y[i]][axis] + noise(random);
      }
    }
    VPOD_RETURN_IF_ERROR(session->Run("train").status());
    VPOD_ASSIGN_OR_RETURN(const auto losses, session->Stream<float>("loss", 0));
    if (offset == 0) std::printf("step %d loss %.4f\n", step, losses[0]);
  }
  return absl::OkStatus();
}

int main() {
  absl::Status status;
  try {
    status = Train();
  } catch (const popdist::popdist_error& error) {  // poprun's variables, set by somebody else
    status = absl::InvalidArgumentError(error.what());
  }
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
