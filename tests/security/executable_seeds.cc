#include "tests/security/executable_seeds.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "client/compiler/compiler.h"
#include "client/models/mnist.h"
#include "client/nn/builder.h"
#include "device/program/control_program.h"
#include "tests/security/op_executables.h"
#include "tests/support/small_ops.h"

namespace vpod::testing {
namespace {

namespace v1 = program::v1;
using graph::Graph;
using graph::Tensor;

// --- Control, views, exchanges ---

v1::Executable FromText(const char* text) {
  v1::Executable executable;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &executable));
  return executable;
}

constexpr char kExchange[] = R"(
  ipus_per_replica: 2
  ipus {
    arena_bytes: 192
    tensors { type: FLOAT32 dims: 8 }
    tensors { type: FLOAT32 dims: 8 offset: 64 }
    tensors { type: FLOAT32 dims: [ 2, 4 ] offset: 64 strides: [ 1, 2 ] }
    functions {
      instructions { exchange { exchange: 0 } inputs: 0 outputs: 1 }
      instructions { unary { operator: TANH } inputs: 2 outputs: 2 }
      instructions { all_reduce { operator: SUM } inputs: 1 outputs: 0 }
    }
    functions { instructions { repeat { function: 0 count: 3 } } }
  }
  ipus {
    arena_bytes: 128
    tensors { type: FLOAT32 dims: 8 }
    tensors { type: FLOAT32 dims: 8 offset: 64 }
    functions {
      instructions { exchange { exchange: 0 } inputs: 0 outputs: 1 }
      instructions { stream_out { stream: 0 } inputs: 1 }
    }
    functions { instructions { repeat { function: 0 count: 3 } } }
  }
  exchanges {
    moves { from_ipu: 0 from_tensor: 0 to_ipu: 1 to_tensor: 1 }
    moves { from_ipu: 1 from_tensor: 0 to_ipu: 0 to_tensor: 1 }
  }
  streams { name: "out" ipu: 1 type: FLOAT32 dims: 8 transfers_per_run: 3 }
  variables { name: "x" }
  programs { name: "main" functions: [ 1, 1 ] }
)";

// --- Compiled programs ---

v1::Executable Compiled(const Graph& graph, std::vector<compiler::ProgramSpec> programs,
                        uint32_t ipus = 1,
                        compiler::Rounding rounding = compiler::Rounding::kNearest) {
  compiler::CompileOptions options;
  options.ipus_per_replica = ipus;
  options.total_replicas = kReplicas;
  options.rounding = rounding;
  options.programs = std::move(programs);
  const auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return compiled.ok() ? compiled->executable->source() : v1::Executable();
}

Tensor Loss(Graph& graph, Tensor logits, int64_t rows) {
  const Tensor loss = graph.CrossEntropyLoss(logits, graph.Input("labels", {v1::INT32, {rows}}),
                                             {.label_smoothing = 0.1f, .ignored_label = -1});
  graph.Output("loss", loss);
  return loss;
}

// Convolutions of float32 with pools.
v1::Executable Mnist() {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  const Tensor x = graph.Input("images", {v1::FLOAT32, {1, 1, 28, 28}});
  const Tensor loss = Loss(graph, models::Mnist(net, x), 1);
  return Compiled(
      graph, {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{.momentum = 0.9f}},
              {.name = "evaluate", .device_iterations = 2}});
}

// Batch norms and residual adds in float16, with an automatic loss scale.
v1::Executable Residual(compiler::Rounding rounding) {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  Tensor x = graph.Cast(graph.Input("images", {v1::UINT8, {2, 4, 6, 6}}), v1::FLOAT16);
  x = net.Convolution("conv1", x, 8, {.kernel = 3, .padding = 1, .bias = false});
  const Tensor y = graph.Relu(net.BatchNorm("bn1", x));
  x = graph.Relu(graph.Add(net.BatchNorm("bn2", net.Convolution("conv2", y, 8, {})), y));
  const Tensor loss = Loss(graph, net.Linear("fc", net.GlobalAveragePool(x), 5), 2);
  return Compiled(graph,
                  {{.name = "train",
                    .device_iterations = 2,
                    .accumulation = 2,
                    .loss = loss,
                    .optimizer = compiler::AdamOptions{.amsgrad = true},
                    .loss_scale = 128.0f,
                    .automatic_loss_scale = compiler::AutomaticLossScale{}}},
                  1, rounding);
}

// Layers on two IPUs, with dropout.
v1::Executable TwoIpus() {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  Tensor x = net.Linear("fc1", graph.Input("x", {v1::FLOAT32, {3, 8}}), 6);
  graph.SetIpu(1);
  x = graph.Dropout(graph.Unary(v1::TANH, x), 0.5f);
  const Tensor loss = Loss(graph, net.Linear("fc2", x, 4), 3);
  return Compiled(
      graph,
      {{.name = "train", .accumulation = 2, .loss = loss, .optimizer = compiler::SgdOptions{}}}, 2);
}

// Equal layers, which are blocks.
v1::Executable Layers() {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  Tensor x = graph.Input("x", {v1::FLOAT32, {3, 8}});
  for (const char* layer : {"a", "b", "c", "d"}) {
    const nn::Builder of_layer = net.In(layer);
    x = graph.Add(x, graph.Gelu(of_layer.Linear("fc", of_layer.LayerNorm("norm", x), 8)));
  }
  const Tensor loss = Loss(graph, net.Linear("fc", x, 4), 3);
  const v1::Executable layers =
      Compiled(graph, {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}});
  EXPECT_GT(layers.ipus(0).blocks_size(), 0);
  return layers;
}

// Windows that divide images unevenly.
v1::Executable Adaptive() {
  Graph graph;
  const nn::Builder net(graph, {.training = true});
  const Tensor x = net.Convolution("conv", graph.Input("x", {v1::FLOAT32, {2, 2, 7, 5}}), 4, {});
  const Tensor pooled = graph.Concat(
      {graph.AdaptiveMaxPool(x, {3, 2}).output, graph.AdaptiveAveragePool(x, {3, 2})}, 1);
  const Tensor loss = Loss(graph, graph.Reshape(pooled, {2, 48}), 2);
  return Compiled(graph, {{.name = "train", .loss = loss, .optimizer = compiler::SgdOptions{}}});
}

}  // namespace

std::vector<v1::Executable> ExecutableSeeds() {
  std::vector<v1::Executable> seeds;
  for (const auto& [name, op] : testing::SmallOps()) {
    // Below, where both its ends are.
    if (name != "exchange") seeds.push_back(ExecutableOf(op));
  }
  seeds.push_back(FromText(program::kControlProgram));
  seeds.push_back(FromText(kExchange));
  seeds.push_back(Mnist());
  for (const auto rounding : {compiler::Rounding::kNearest, compiler::Rounding::kStochastic})
    seeds.push_back(Residual(rounding));
  seeds.push_back(Adaptive());
  seeds.push_back(Layers());
  seeds.push_back(TwoIpus());
  return seeds;
}

}  // namespace vpod::testing
