// A network that is dealt to stages and IPUs, and what it trains to, for tests that compare ways to
// run it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "tests/support/random_values.h"

namespace vpod::compiler {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;
using v1::FLOAT16;
using v1::FLOAT32;
using v1::INT32;

inline constexpr int64_t kBatch = 4, kWidth = 8;

struct Network {
  Graph graph;
  Tensor loss;
};

// Eight layers, dealt to stages and IPUs: products, a norm, a checkpoint, dropout, a
// connection from the first layer to the sixth, and a scale that three layers have in common.
inline Network Layers(v1::DataType type, uint32_t stages, uint32_t ipus, uint32_t layers = 8) {
  Network network;
  Graph& g = network.graph;
  const auto enter = [&](uint32_t layer) {
    const uint32_t stage = layer * stages / layers;
    g.SetIpu(stage * ipus / stages);
    g.SetStage(stage);
  };
  const auto variable = [&](const std::string& name, graph::Dims dims, uint32_t seed) {
    size_t elements = 1;
    for (int64_t dim : dims) elements *= static_cast<size_t>(dim);
    return g.Variable(name, {type, std::move(dims)}, RandomValues(elements, seed));
  };
  enter(0);
  Tensor x = g.Cast(g.Input("x", {FLOAT32, {kBatch, kWidth}}), type), first;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    enter(layer);
    x = g.MatMul(x, variable(absl::StrCat("w", layer), {kWidth, kWidth}, layer));
    if (layer == 2) x = g.Dropout(x, 0.25f);
    if (layer == 5) x = g.Add(x, first);
    x = layer % 3 == 1 ? g.Softmax(x, 1) : g.Unary(v1::TANH, x);
    if (layer == 3) {
      x = g.Relu(
          g.LayerNorm(x, variable("scale", {kWidth}, 20), variable("offset", {kWidth}, 21), 1e-5f));
    }
    if (layer == 4) g.Checkpoint(x);
    if (layer == 0) first = x;
  }
  network.loss =
      g.Mean(g.SoftmaxCrossEntropy(g.Cast(x, FLOAT32), g.Input("labels", {INT32, {kBatch}})));
  g.Output("loss", network.loss);
  g.Output("first", first);
  return network;
}

inline constexpr Schedule kPipelines[] = {Schedule::kGrouped, Schedule::kInterleaved,
                                          Schedule::kSequential};

struct Result {
  std::vector<float> losses, weights;
  base::Cycles cycles;
  std::shared_ptr<const program::Executable> executable;
};

inline const std::vector<std::string> kWeights = {"w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7"};

inline Result Train(const Network& network, CompileOptions options, uint32_t accumulation,
                    uint32_t replicas = 1, const std::vector<std::string>& variables = kWeights,
                    GradientReduction reduction = GradientReduction::kMean) {
  options.total_replicas = replicas;
  options.programs = {{.name = "train",
                       .device_iterations = 2,
                       .accumulation = accumulation,
                       .loss = network.loss,
                       .optimizer = SgdOptions{.learning_rate = 0.5f, .momentum = 0.9f},
                       .reduction = reduction}};
  Result result;
  const auto compiled = Compile(network.graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return result;
  result.executable = compiled->executable;
  auto device = session::CreateIpuModel(
      {.replicas = replicas, .ipus_per_replica = options.ipus_per_replica, .compute_threads = 2});
  auto session = session::Session::Create(*std::move(device), *compiled);
  EXPECT_TRUE(session.ok()) << session.status();
  if (!session.ok()) return result;
  for (uint32_t run = 0; run < 2; ++run) {
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      const auto x = *(*session)->Stream<float>("x", replica);
      const auto values = RandomValues(x.size(), 100 + run * 10 + replica);
      std::copy(values.begin(), values.end(), x.begin());
      const auto labels = *(*session)->Stream<int32_t>("labels", replica);
      for (size_t i = 0; i < labels.size(); ++i)
        labels[i] = static_cast<int32_t>((i + run) % kWidth);
    }
    const auto cycles = (*session)->Run("train");
    EXPECT_TRUE(cycles.ok()) << cycles.status();
    if (cycles.ok()) result.cycles = *cycles;
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      const auto losses = *(*session)->Stream<float>("loss", replica);
      result.losses.insert(result.losses.end(), losses.begin(), losses.end());
    }
  }
  EXPECT_EQ(result.losses.size(), 2u * 2 * accumulation * replicas);
  for (const std::string& variable : variables) {
    const auto weights = (*session)->ReadFloats(variable);
    EXPECT_TRUE(weights.ok()) << weights.status();
    if (weights.ok()) result.weights.insert(result.weights.end(), weights->begin(), weights->end());
  }
  return result;
}

}  // namespace vpod::compiler
