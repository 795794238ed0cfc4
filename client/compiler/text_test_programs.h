// Programs whose printed forms hold all there is: for the tests that read them back.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/models/mnist.h"
#include "client/models/resnet.h"
#include "client/models/transformer.h"
#include "client/nn/builder.h"

namespace vpod::compiler {

struct TestProgram {
  std::string name;
  graph::Graph graph;
  CompileOptions options;
};

namespace test_programs {

using graph::Graph;
using graph::Tensor;
using program::v1::DataType;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::INT32;

// Two layers, the second on IPU `second` and in stage 1. The weights of the first are used twice,
// those of another layer influence nothing.
inline Tensor AddLayers(Graph& graph, DataType type, uint32_t second = 0) {
  const auto weights = [&](const char* name, int64_t from, int64_t to) {
    return graph.Variable(name, {type, {from, to}},
                          std::vector<float>(static_cast<size_t>(from * to), 0.5f));
  };
  const Tensor x = graph.Input("x", {type, {4, 6}});
  const Tensor w1 = weights("w \"1\"\\ä\n%", 6, 6);
  weights("unused", 2, 2);
  Tensor y;
  {
    const Graph::Scope scope(graph, "layer \"1\"");
    y = graph.Relu(graph.Add(graph.MatMul(x, w1), graph.Constant({type, {}}, 0.1)));
    y = graph.Unary(program::v1::TANH, graph.MatMul(y, w1));
  }
  graph.SetIpu(second);
  graph.SetStage(1);
  const Tensor w2 = weights("w2", 6, 3);
  const Graph::Scope scope(graph, std::string(600, '-'));
  y = graph.Unary(program::v1::SIGMOID, graph.MatMul(y, w2));
  const Tensor loss = graph.Mean(graph.Cast(graph.Reshape(y, {12}), FLOAT32));
  graph.Output("y", graph.Reshape(y, {2, 6}));
  return loss;
}

inline TestProgram Momentum(uint32_t accumulation) {
  TestProgram test{.name = "Momentum" + std::to_string(accumulation)};
  const Tensor loss = AddLayers(test.graph, FLOAT32);
  test.graph.Output("loss", loss);
  test.options.programs = {
      {.name = "train/sgd",
       .device_iterations = 3,
       .accumulation = accumulation,
       .loss = loss,
       .optimizer = SgdOptions{.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = true}},
      {.name = "infer", .device_iterations = 2}};
  return test;
}

inline TestProgram Adam(uint32_t accumulation) {
  TestProgram test{.name = "Adam" + std::to_string(accumulation)};
  const Tensor loss = AddLayers(test.graph, FLOAT32);
  test.options.total_replicas = 4;
  test.options.off_chip_optimizer_state = accumulation > 1;
  test.options.programs = {
      {.name = "train",
       .accumulation = accumulation,
       .loss = loss,
       .optimizer = AdamOptions{.epsilon = 1e-7f,
                                .decoupled_weight_decay = true,
                                .amsgrad = true,
                                .float16_second_moment = accumulation > 1},
       .reduction = accumulation > 1 ? GradientReduction::kRunningMean : GradientReduction::kSum,
       .float16_accumulators = accumulation > 1}};
  return test;
}

// Two IPUs with a loss scale that adapts, clipped gradients and two optimisers.
inline TestProgram TwoIpus() {
  TestProgram test{.name = "TwoIpus"};
  const Tensor loss = AddLayers(test.graph, FLOAT16, /*second=*/1);
  test.options.ipus_per_replica = 2;
  test.options.total_replicas = 2;
  test.options.programs = {
      {.name = "train",
       .accumulation = 4,
       .loss = loss,
       .optimizer = RmsPropOptions{.momentum = 0.5f, .centered = true, .tensorflow = true},
       .groups = {{{"w2"}, LambOptions{.weight_decay = 0.125f, .max_weight_norm = 2}}},
       .clip_norm = 1.5f,
       .clip_value = 0.25f,
       .loss_scale = 1024.5f,
       .automatic_loss_scale = AutomaticLossScale{.interval = 7}},
      {.name = "infer"}};
  return test;
}

inline TestProgram FixedLossScale() {
  TestProgram test{.name = "FixedLossScale"};
  const Tensor loss = AddLayers(test.graph, FLOAT16);
  test.options.fusion = false;
  test.options.programs = {
      {.name = "train", .loss = loss, .optimizer = LarsOptions{}, .loss_scale = 8.0f}};
  return test;
}

inline TestProgram CountedLossScale() {
  TestProgram test{.name = "CountedLossScale"};
  const Tensor loss = AddLayers(test.graph, FLOAT16, /*second=*/1);
  test.options.ipus_per_replica = 2;
  test.options.total_replicas = 2;
  test.options.programs = {{.name = "train",
                            .accumulation = 2,
                            .loss = loss,
                            .optimizer = SgdOptions{},
                            .loss_scale = 8.0f,
                            .histogram_loss_scale = HistogramLossScale{.period = 3}}};
  return test;
}

inline TestProgram StochasticRounding(Rounding rounding, const char* name,
                                      Recomputation recomputation = Recomputation::kNone) {
  TestProgram test{.name = name};
  test.options.recomputation = recomputation;
  const Tensor loss = AddLayers(test.graph, FLOAT16, /*second=*/1);
  test.options.ipus_per_replica = 2;
  test.options.total_replicas = 2;
  test.options.rounding = rounding;
  test.options.programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{}},
                           {.name = "infer"}};
  return test;
}

// Random bits, buffers and a variable that are assigned, and all kinds of constants.
inline TestProgram Dropout() {
  TestProgram test{.name = "Dropout"};
  Graph& graph = test.graph;
  const Tensor buffer = graph.Buffer("buffer", {FLOAT32, {4, 3}}, std::vector<float>(12));
  const Tensor copy = graph.Buffer("copy", {FLOAT32, {4, 3}}, std::vector<float>(12));
  graph.Assign(copy, buffer);
  const Tensor w = graph.Variable("w", {FLOAT32, {4, 3}}, std::vector<float>(12, 1));
  Tensor y = graph.Dropout(graph.Multiply(w, graph.Input("x", {FLOAT32, {4, 3}})), 0.3f);
  for (double value : {-0.0, 1e-45, 1.0 / 3, double{INFINITY}, -double{INFINITY}, double{NAN}})
    y = graph.Add(y, graph.Constant({FLOAT32, {}}, value));
  const std::vector<float> elements = {0, -1, 2.5f};
  y = graph.Add(
      y, graph.Constant({FLOAT32, {3}}, std::string(reinterpret_cast<const char*>(elements.data()),
                                                    3 * sizeof(float))));
  graph.Assign(buffer, y);
  graph.Assign(w, graph.Stop(y), graph::Assigned::kAlways);
  graph.Output("buffer before", buffer);
  test.options.programs = {{.name = "train", .loss = graph.Sum(y), .optimizer = SgdOptions{}},
                           {.name = "infer"}};
  return test;
}

// A stop and a pass-by, whose source only the gradient needs, between operations that fuse.
inline TestProgram Aliases(Recomputation recomputation, const char* name) {
  TestProgram test{.name = name};
  test.options.recomputation = recomputation;
  Graph& graph = test.graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {4, 3}}, std::vector<float>(12, 0.5f));
  const Tensor x = graph.Multiply(graph.Input("x", {FLOAT32, {4, 3}}), w);
  const Tensor stopped = graph.Unary(program::v1::TANH, graph.Stop(graph.Relu(x)));
  const Tensor source = graph.Unary(program::v1::SIGMOID, x);
  const Tensor passed =
      graph.PassBy(graph.Unary(program::v1::ROUND, graph.Add(stopped, x)), source);
  const Tensor y = graph.Multiply(graph.Reshape(passed, {2, 6}),
                                  graph.Reshape(graph.Stop(graph.Stop(w)), {2, 6}));
  graph.Output("y", graph.Stop(y));
  test.options.programs = {{.name = "train",
                            .loss = graph.Sum(graph.Unary(program::v1::TANH, y)),
                            .optimizer = SgdOptions{}},
                           {.name = "infer"}};
  return test;
}

// Gradients of the program's own, which read values of the forward pass: a hook and a function with
// two outputs, of which one is not used.
inline TestProgram Regions(Recomputation recomputation, const char* name) {
  TestProgram test{.name = name};
  test.options.recomputation = recomputation;
  Graph& graph = test.graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {4, 3}}, std::vector<float>(12, 0.5f));
  const Graph::Region hook = graph.AddRegion({w}, {w});
  const Tensor x = graph.Multiply(graph.Input("x", {FLOAT32, {4, 3}}), hook.outputs[0]);
  const Tensor square = graph.Multiply(x, x);
  const Graph::Region function =
      graph.AddRegion({graph.Unary(program::v1::TANH, square), graph.Reshape(square, {12})}, {x});
  graph.RecordRegion(function, [&] {
    const Tensor second = graph.Reshape(graph.Relu(function.cotangents[1]), {4, 3});
    return std::vector{graph.Add(graph.Multiply(function.cotangents[0], x), second)};
  });
  const Tensor y = graph.Dropout(graph.Relu(function.outputs[0]), 0.25f);
  graph.RecordRegion(
      hook, [&] { return std::vector{graph.Add(graph.Dropout(hook.cotangents[0], 0.5f), y)}; });
  graph.Output("y", y);
  test.options.programs = {{.name = "train", .loss = graph.Sum(y), .optimizer = SgdOptions{}},
                           {.name = "infer"}};
  return test;
}

inline TestProgram RemoteBuffers() {
  TestProgram test{.name = "RemoteBuffers"};
  Graph& graph = test.graph;
  const Tensor row = graph.Input("row", {INT32, {}});
  graph.AddRemoteBuffer("not used", {INT32, {}}, 5);
  for (uint32_t ipu : {0, 1}) {
    graph.SetIpu(ipu);
    const std::string name = "rows " + std::to_string(ipu);
    const graph::RemoteBuffer rows = graph.AddRemoteBuffer(name, {FLOAT32, {8}}, 3);
    const Tensor loaded = graph.RemoteLoad(rows, row);
    graph.RemoteStore(rows, graph.Relu(loaded), row);
    graph.Output(name, graph.RemoteLoad(rows, row));
  }
  graph.SetIpu(2);
  graph.AddRemoteBuffer("on no IPU of the replica", {INT32, {}}, 5);
  test.options.ipus_per_replica = 2;
  test.options.programs = {{.name = "infer"}};
  return test;
}

// Three stages, of which the first hands something to the last and has a checkpoint.
inline TestProgram Pipeline(Schedule schedule, const char* name,
                            Recomputation recomputation = Recomputation::kNone) {
  TestProgram test{.name = name};
  test.options.recomputation = recomputation;
  Graph& graph = test.graph;
  Tensor x = graph.Input("x", {FLOAT32, {4, 4}}), first;
  for (uint32_t stage = 0; stage < 3; ++stage) {
    graph.SetIpu(stage);
    graph.SetStage(stage);
    if (stage == 0) {
      x = graph.Unary(program::v1::SIGMOID, graph.Multiply(x, x));
      graph.Checkpoint(x);
    }
    x = graph.Unary(program::v1::TANH,
                    graph.MatMul(x, graph.Variable(absl::StrCat("w", stage), {FLOAT32, {4, 4}},
                                                   graph::InitialValue::Filled(0.5))));
    if (stage == 0) first = x;
  }
  const Tensor loss = graph.Mean(graph.Add(x, first));
  graph.Output("loss", loss);
  test.options.ipus_per_replica = 4;
  test.options.schedule = schedule;
  test.options.programs = {{.name = "train",
                            .accumulation = 6,
                            .loss = loss,
                            .optimizer = SgdOptions{},
                            .output_mode = OutputMode::kFinal},
                           {.name = "infer",
                            .device_iterations = 6,
                            .output_mode = OutputMode::kEveryN,
                            .output_period = 2}};
  return test;
}

// Outputs with modes of their own, and gradients by weights, by an input and by what a layer gives.
inline TestProgram OwnOutputs(Schedule schedule, const char* name) {
  TestProgram test{.name = name};
  Graph& graph = test.graph;
  const Tensor x = graph.Input("x", {FLOAT16, {4, 4}});
  const Tensor w = graph.Variable("w", {FLOAT16, {4, 4}}, graph::InitialValue::Filled(0.5));
  const Tensor hidden = graph.Unary(program::v1::TANH, graph.MatMul(graph.MatMul(x, w), w));
  graph.SetIpu(1);
  graph.SetStage(1);
  const Tensor loss = graph.Mean(graph.Cast(graph.Multiply(hidden, hidden), FLOAT32));
  graph.Output("hidden", hidden);
  graph.Output("loss", loss);
  test.options.ipus_per_replica = 2;
  test.options.schedule = schedule;
  test.options.programs = {
      {.name = "train",
       .device_iterations = 4,
       .accumulation = 6,
       .loss = loss,
       .optimizer = SgdOptions{},
       .output_period = 2,
       .output_modes = {{"hidden", OutputMode::kEveryN}, {"by w", OutputMode::kFinal}},
       .gradient_outputs = {{"by w", w}, {"by x", x}, {"by hidden", hidden}}}};
  return test;
}

// Four replicas, which share out the state of the optimiser, on the chip or off, in two parts.
inline TestProgram TensorSharding(bool off_chip, const char* name) {
  TestProgram test{.name = name};
  Graph& graph = test.graph;
  const Tensor w = graph.Variable("w", {FLOAT32, {64, 128}}, graph::InitialValue::Filled(0.5));
  const Tensor x = graph.MatMul(graph.Input("x", {FLOAT32, {128, 64}}), w);
  const Tensor loss = graph.Mean(graph.Multiply(x, x));
  graph.Output("loss", loss);
  test.options.total_replicas = 4;
  test.options.tensor_shards = 2;
  test.options.off_chip_optimizer_state = off_chip;
  test.options.programs = {
      {.name = "train", .loss = loss, .optimizer = LambOptions(), .output_mode = OutputMode::kSum}};
  return test;
}

// A batch norm that takes over an addition and a ReLU, with running moments; collectives.
inline TestProgram BatchNorm() {
  TestProgram test{.name = "BatchNorm"};
  Graph& graph = test.graph;
  const nn::Builder net(graph, {.training = true});
  const Tensor x = graph.Input("x", {FLOAT32, {2, 4, 5, 5}});
  Tensor y = net.Convolution("conv1", x, 4, {.kernel = 3, .padding = 1});
  y = graph.Relu(graph.Add(net.BatchNorm("bn1", y), x));
  y = graph.Relu(net.BatchNorm("bn2", net.Convolution("conv2", y, 8, {.kernel = 1})));
  y = graph.AllGather(graph.Unary(program::v1::EXPONENT, graph.Unary(program::v1::SQUARE, y)), 2);
  // The other program has only the weights, which still lie as the convolutions want them.
  for (Tensor variable : graph.variables())
    graph.Output("copy of " + graph.values()[variable.id].name, graph.Relu(variable));
  test.options.total_replicas = 2;
  test.options.programs = {{.name = "train", .loss = graph.Mean(y), .optimizer = SgdOptions{}},
                           {.name = "weights"}};
  return test;
}

inline TestProgram Trained(const char* name, graph::TensorType images,
                           Tensor (*model)(const nn::Builder&, Tensor)) {
  TestProgram test{.name = name};
  Graph& graph = test.graph;
  const int64_t batch = images.dims[0];
  const nn::Builder net(graph, {.training = true});
  const Tensor logits = model(net, graph.Input("images", std::move(images)));
  const Tensor labels = graph.Input("labels", {INT32, {batch}});
  const Tensor loss = graph.Mean(graph.SoftmaxCrossEntropy(logits, labels));
  graph.Output("loss", loss);
  test.options.programs = {
      {.name = "train", .loss = loss, .optimizer = SgdOptions{.momentum = 0.9f}},
      {.name = "evaluate"}};
  return test;
}

inline Tensor ResNet18(const nn::Builder& net, Tensor images) {
  models::ResNetOptions options = models::ResNet18();
  options.classes = 10;
  options.small_images = true;
  return models::ResNet(net, images, options);
}

inline Tensor Transformer(const nn::Builder& net, Tensor tokens) {
  Graph& graph = net.graph();
  const Tensor vectors = net.Embedding("tokens", graph.Cast(tokens, INT32), 16, 8);
  const Tensor y =
      models::TransformerEncoder(net, vectors, {.layers = 1, .heads = 2, .gelu = true});
  return net.Linear("head", net.Flatten(y), 3);
}

}  // namespace test_programs

inline std::vector<TestProgram> SmallPrograms() {
  using namespace test_programs;
  return {Momentum(1),
          Momentum(4),
          Adam(1),
          Adam(4),
          TwoIpus(),
          FixedLossScale(),
          CountedLossScale(),
          StochasticRounding(Rounding::kStochastic, "StochasticRounding"),
          StochasticRounding(Rounding::kStochasticEqualSeeds, "EqualSeeds"),
          Dropout(),
          Aliases(Recomputation::kNone, "Aliases"),
          Aliases(Recomputation::kAll, "RecomputedAliases"),
          Regions(Recomputation::kNone, "Regions"),
          Regions(Recomputation::kAll, "RecomputedRegions"),
          RemoteBuffers(),
          Pipeline(Schedule::kGrouped, "Grouped"),
          Pipeline(Schedule::kInterleaved, "Interleaved"),
          Pipeline(Schedule::kSequential, "Sequential"),
          Pipeline(Schedule::kGrouped, "RecomputedStages", Recomputation::kPipeline),
          Pipeline(Schedule::kSharded, "RecomputedAll", Recomputation::kAll),
          StochasticRounding(Rounding::kStochastic, "RecomputedRounding", Recomputation::kAll),
          OwnOutputs(Schedule::kSharded, "OwnOutputs"),
          OwnOutputs(Schedule::kGrouped, "OwnOutputsGrouped"),
          TensorSharding(false, "TensorSharding"),
          TensorSharding(true, "TensorShardingOffChip"),
          BatchNorm()};
}

inline std::vector<TestProgram> Models() {
  using namespace test_programs;
  return {Trained("Mnist", {FLOAT32, {2, 1, 28, 28}}, models::Mnist),
          Trained("ResNet18", {FLOAT32, {2, 3, 32, 32}}, ResNet18),
          Trained("Transformer", {FLOAT32, {2, 5}}, Transformer)};
}

}  // namespace vpod::compiler
