// Pipelines give what one IPU gives, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/pipeline_test_util.h"
#include "device/model/timeline.h"

namespace vpod::compiler {
namespace {

using testing::HasSubstr;

TEST(PipelineTest, TrainsAsOneIpuDoes) {
  for (v1::DataType type : {FLOAT32, FLOAT16}) {
    for (uint32_t accumulation : {8, 9, 15}) {
      const Result one = Train(Layers(type, 1, 1), {}, accumulation);
      for (const auto& [stages, ipus] : {std::pair{2u, 2u}, {4u, 4u}, {4u, 2u}}) {
        for (Schedule schedule : kPipelines) {
          SCOPED_TRACE(absl::StrCat(v1::DataType_Name(type), ", ", stages, " stages on ", ipus,
                                    ", accumulation ", accumulation, ", schedule ",
                                    static_cast<int>(schedule)));
          const Result pipeline =
              Train(Layers(type, stages, ipus), {.ipus_per_replica = ipus, .schedule = schedule},
                    accumulation);
          EXPECT_EQ(pipeline.losses, one.losses);
          EXPECT_EQ(pipeline.weights, one.weights);
        }
      }
    }
  }
}

TEST(PipelineTest, ReplicasMayHaveSixtyFourIpus) {
  const Result one = Train(Layers(FLOAT32, 1, 1, 64), {}, 127);
  for (Schedule schedule : {Schedule::kSharded, Schedule::kGrouped}) {
    const Result many =
        Train(Layers(FLOAT32, 64, 64, 64), {.ipus_per_replica = 64, .schedule = schedule}, 127);
    EXPECT_EQ(many.losses, one.losses);
    EXPECT_EQ(many.weights, one.weights);
  }
}

// The state has the names and shapes that it has on the chip, and programs that do not train leave
// it alone.
TEST(PipelineTest, StateMayLieOffChip) {
  const auto options = [](bool off_chip, uint32_t ipus, const Network& network) {
    CompileOptions options{.ipus_per_replica = ipus, .schedule = Schedule::kGrouped};
    options.off_chip_optimizer_state = off_chip;
    options.programs = {
        {.name = "evaluate", .device_iterations = 4},
        {.name = "train", .accumulation = 8, .loss = network.loss, .optimizer = AdamOptions{}}};
    return options;
  };
  for (uint32_t ipus : {1, 4}) {
    for (v1::DataType type : {FLOAT32, FLOAT16}) {
      SCOPED_TRACE(absl::StrCat(ipus, " IPUs, ", v1::DataType_Name(type)));
      std::vector<std::unique_ptr<session::Session>> sessions;
      for (bool off_chip : {false, true}) {
        const Network network = Layers(type, ipus, ipus);
        const auto compiled = Compile(network.graph, options(off_chip, ipus, network));
        ASSERT_TRUE(compiled.ok()) << compiled.status();
        uint64_t remote = 0;
        for (const auto& ipu : compiled->executable->proto().ipus())
          remote += static_cast<uint64_t>(ipu.remote_buffers_size());
        EXPECT_EQ(remote, off_chip ? 20u : 0u);
        auto device = session::CreateIpuModel({.ipus_per_replica = ipus, .compute_threads = 2});
        auto session = session::Session::Create(*std::move(device), *compiled);
        ASSERT_TRUE(session.ok()) << session.status();
        const auto x = *(*session)->Stream<float>("x", 0);
        const auto values = RandomValues(x.size(), 9);
        std::copy(values.begin(), values.end(), x.begin());
        for (int run = 0; run < 3; ++run) {
          for (const char* program : {"train", "evaluate"}) {
            const auto ran = (*session)->Run(program);
            ASSERT_TRUE(ran.ok()) << ran.status();
          }
        }
        sessions.push_back(*std::move(session));
      }
      const std::string path = absl::StrCat(testing::TempDir(), "/state.npz");
      ASSERT_TRUE(sessions[0]->Save(path).ok());
      for (const std::string& w : kWeights) {
        for (const char* prefix : {"", "Accl1___", "Accl2___"}) {
          const auto on = sessions[0]->ReadFloats(prefix + w),
                     off = sessions[1]->ReadFloats(prefix + w);
          ASSERT_TRUE(on.ok() && off.ok()) << on.status() << off.status();
          EXPECT_EQ(*on, *off) << prefix << w;
          EXPECT_NE(*off, std::vector<float>(off->size()));
        }
      }
      const absl::Status loaded = sessions[1]->Load(path);
      EXPECT_TRUE(loaded.ok()) << loaded;
    }
  }
}

// Random bits follow from the micro-batch, in whatever part they are taken.
TEST(PipelineTest, RoundsStochasticallyAlikeInEverySchedule) {
  const auto train = [](Schedule schedule) {
    CompileOptions options{.ipus_per_replica = 4, .schedule = schedule};
    options.rounding = Rounding::kStochastic;
    return Train(Layers(FLOAT16, 4, 4), options, 9);
  };
  const Result sharded = train(Schedule::kSharded);
  for (Schedule schedule : kPipelines) {
    const Result pipeline = train(schedule);
    EXPECT_EQ(pipeline.losses, sharded.losses);
    EXPECT_EQ(pipeline.weights, sharded.weights);
  }
}

TEST(PipelineTest, ReplicasTrainAsReplicasOfOneIpuDo) {
  const Result one = Train(Layers(FLOAT32, 1, 1), {}, 8, 2);
  for (Schedule schedule : kPipelines) {
    const Result pipeline =
        Train(Layers(FLOAT32, 4, 4), {.ipus_per_replica = 4, .schedule = schedule}, 8, 2);
    EXPECT_EQ(pipeline.losses, one.losses);
    EXPECT_EQ(pipeline.weights, one.weights);
  }
}

// Four layers. The gradient of the second goes by way of a hook, if there is one, which reads
// values of the stages before and behind it, and draws random bits.
Network HookedLayers(uint32_t stages, bool has_hook = true) {
  Network network;
  Graph& g = network.graph;
  Tensor x = g.Input("x", {FLOAT32, {kBatch, kWidth}}), first;
  Graph::Region hook;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    g.SetIpu(layer * stages / 4);
    g.SetStage(layer * stages / 4);
    const Tensor w = g.Variable(absl::StrCat("w", layer), {FLOAT32, {kWidth, kWidth}},
                                RandomValues(static_cast<size_t>(kWidth * kWidth), layer));
    x = g.Unary(v1::TANH, g.MatMul(x, w));
    if (layer == 0) first = x;
    if (layer != 1 || !has_hook) continue;
    hook = g.AddRegion({x}, {x});
    x = hook.outputs[0];
  }
  if (has_hook) {
    g.RecordRegion(hook, [&] {
      const Tensor scaled = g.Multiply(g.Dropout(hook.cotangents[0], 0.25f), first);
      return std::vector{g.Add(scaled, g.Multiply(x, g.Constant({FLOAT32, {}}, 0.01)))};
    });
  }
  network.loss = g.Mean(g.SoftmaxCrossEntropy(x, g.Input("labels", {INT32, {kBatch}})));
  g.Output("loss", network.loss);
  return network;
}

TEST(PipelineTest, GradientRegionsBelongToTheirStage) {
  const std::vector<std::string> weights = {"w0", "w1", "w2", "w3"};
  const Result one = Train(HookedLayers(1), {}, 9, 1, weights);
  EXPECT_NE(one.weights, Train(HookedLayers(1, false), {}, 9, 1, weights).weights);
  for (Schedule schedule : kPipelines) {
    for (Recomputation recomputation : {Recomputation::kNone, Recomputation::kPipeline}) {
      SCOPED_TRACE(static_cast<int>(schedule));
      const CompileOptions options{
          .ipus_per_replica = 4, .schedule = schedule, .recomputation = recomputation};
      const Result pipeline = Train(HookedLayers(4), options, 9, 1, weights);
      EXPECT_EQ(pipeline.losses, one.losses);
      EXPECT_EQ(pipeline.weights, one.weights);
    }
  }
}

// A run takes as many cycles as the planner predicts.
TEST(PipelineTest, TimelinesEndWhenRunsDo) {
  for (Schedule schedule :
       {Schedule::kSharded, Schedule::kGrouped, Schedule::kInterleaved, Schedule::kSequential}) {
    SCOPED_TRACE(static_cast<int>(schedule));
    const Result run =
        Train(Layers(FLOAT32, 4, 4), {.ipus_per_replica = 4, .schedule = schedule}, 9, 2);
    const model::Topology topology{.num_replicas = 2, .ipus_per_replica = 4};
    std::vector<base::Cycles> ends(4);
    const model::Timeline timeline = model::TimelineOf(
        run.executable->proto(), 0, topology, [&](const model::TimelineEvent& event) {
          EXPECT_EQ(event.begin, ends[event.ipu]);
          EXPECT_LE(event.begin + event.waiting, event.end);
          ends[event.ipu] = event.end;
        });
    EXPECT_EQ(timeline.end(), run.cycles);
    EXPECT_EQ(model::TimelineOf(run.executable->proto(), 0, topology).end(), run.cycles);
    for (size_t ipu = 0; ipu < 4; ++ipu) EXPECT_EQ(timeline.ipus[ipu].end(), ends[ipu]);
  }
}

// Stages that share IPUs in any order, of which one has a softmax alone, a weight that lies on
// another IPU, and a part of a weight that is moved and then changed in place.
TEST(PipelineTest, StagesShareIpusAndWeights) {
  const auto train = [](Schedule schedule, const std::vector<uint32_t>& ipus) {
    Network network;
    Graph& g = network.graph;
    const auto weights = [&](const std::string& name, uint32_t seed) {
      return g.Variable(name, {FLOAT32, {kWidth, kWidth}}, RandomValues(kWidth * kWidth, seed));
    };
    const auto enter = [&](uint32_t stage) {
      g.SetStage(stage);
      g.SetIpu(ipus[stage]);
    };
    enter(3);
    const Tensor far = weights("w3", 3);
    enter(0);
    Tensor x = g.Input("x", {FLOAT32, {kBatch, kWidth}});
    x = g.MatMul(g.Unary(v1::TANH, g.MatMul(x, weights("w0", 0))), far);
    const Tensor part = g.Slice(weights("w4", 4), {0, 0}, {kBatch, kWidth});
    enter(1);
    x = g.Softmax(x, 1);
    enter(2);
    x = g.MatMul(g.Softmax(x, 1), weights("w1", 1));
    x = g.Add(x, g.Softmax(part, 1));
    enter(3);
    x = g.MatMul(g.Softmax(x, 1), far);
    network.loss = g.Mean(g.SoftmaxCrossEntropy(x, g.Input("labels", {INT32, {kBatch}})));
    g.Output("loss", network.loss);
    CompileOptions options{.ipus_per_replica = 4, .schedule = schedule};
    return Train(network, options, 9, 1, {"w0", "w1", "w3", "w4"});
  };
  const Result one = train(Schedule::kSharded, {0, 0, 0, 0});
  for (const std::vector<uint32_t>& ipus :
       {std::vector<uint32_t>{0, 1, 2, 3}, {0, 0, 1, 1}, {0, 1, 1, 0}, {1, 0, 1, 0}}) {
    for (Schedule schedule : kPipelines) {
      SCOPED_TRACE(absl::StrCat("stage 1 on IPU ", ipus[1], ", stage 2 on IPU ", ipus[2],
                                ", schedule ", static_cast<int>(schedule)));
      const Result pipeline = train(schedule, ipus);
      EXPECT_EQ(pipeline.losses, one.losses);
      EXPECT_EQ(pipeline.weights, one.weights);
    }
  }
}

std::string Refusal(const Network& network, CompileOptions options, uint32_t accumulation) {
  options.programs = {{.name = "train",
                       .accumulation = accumulation,
                       .loss = network.loss,
                       .optimizer = SgdOptions{}}};
  return std::string(Compile(network.graph, options).status().message());
}

TEST(PipelineTest, TooFewMicroBatchesAreRefused) {
  const Network four = Layers(FLOAT32, 4, 4);
  EXPECT_EQ(Refusal(four, {.ipus_per_replica = 4, .schedule = Schedule::kGrouped}, 6),
            "program 'train': the accumulation is 6, must be at least 7 to fill the pipeline: 4 "
            "stages forward and as many backward, of which the last count as one");
  EXPECT_EQ(Refusal(four, {.ipus_per_replica = 4, .schedule = Schedule::kGrouped}, 7), "");
  EXPECT_EQ(Refusal(four, {.ipus_per_replica = 4, .schedule = Schedule::kSequential}, 1), "");
}

TEST(PipelineTest, WrongStagesAreRefused) {
  const auto refusal = [](const std::vector<std::pair<uint32_t, uint32_t>>& stages) {
    Network network;
    Graph& g = network.graph;
    Tensor x = g.Input("x", {FLOAT32, {kBatch, kWidth}});
    for (const auto& [stage, ipu] : stages) {
      g.SetStage(stage);
      g.SetIpu(ipu);
      x = g.MatMul(x, g.Variable(absl::StrCat("w", x.id), {FLOAT32, {kWidth, kWidth}},
                                 graph::InitialValue::Filled(1)));
    }
    network.loss = g.Mean(x);
    g.Output("loss", network.loss);
    return Refusal(network, {.ipus_per_replica = 4, .schedule = Schedule::kGrouped}, 16);
  };
  EXPECT_EQ(refusal({{0, 0}, {1, 1}}), "");
  EXPECT_EQ(refusal({{0, 0}, {2, 2}}), "program 'train': stage 1 of 3 has no operations");
  EXPECT_EQ(refusal({{0, 0}, {1, 1}, {1, 2}}),
            "program 'train': stage 1 has operations on IPU 1 and on IPU 2, must be on one");
  EXPECT_THAT(refusal({{0, 0}, {2, 2}, {1, 1}}), HasSubstr("needs the result of a later stage"));
}

TEST(PipelineTest, StateOfSeveralStagesIsRefused) {
  Network network;
  Graph& g = network.graph;
  const Tensor x = g.Input("x", {FLOAT32, {kWidth}});
  const graph::RemoteBuffer rows = g.AddRemoteBuffer("rows", {FLOAT32, {kWidth}}, 2);
  const Tensor row = g.Constant({INT32, {}}, 0);
  Tensor y = g.Add(x, g.RemoteLoad(rows, row));
  g.SetStage(1);
  g.SetIpu(1);
  y = g.Multiply(y, g.Variable("w", {FLOAT32, {kWidth}}, graph::InitialValue::Filled(1)));
  g.SetStage(2);
  g.SetIpu(0);
  g.RemoteStore(rows, y, row);
  network.loss = g.Mean(y);
  EXPECT_EQ(Refusal(network, {.ipus_per_replica = 2, .schedule = Schedule::kGrouped}, 9),
            "program 'train': remote buffer 'rows' is used by several stages of the pipeline, of "
            "which one changes it");
}

// The gradient of a micro-batch would read what a later one has assigned. In the last stage of a
// grouped pipeline, it comes before the next micro-batch.
TEST(PipelineTest, AVariableThatIsAssignedBelongsToOnePosition) {
  const auto refusal = [](uint32_t assigned) {
    Network network;
    Graph& g = network.graph;
    Tensor x = g.Input("x", {FLOAT32, {kWidth, kWidth}});
    for (uint32_t stage = 0; stage < 2; ++stage) {
      g.SetStage(stage);
      g.SetIpu(stage);
      const Tensor w = g.Variable(absl::StrCat("w", stage), {FLOAT32, {kWidth, kWidth}},
                                  graph::InitialValue::Filled(1));
      if (stage == assigned) g.Assign(w, g.Unary(program::v1::TANH, w));
      x = g.MatMul(w, g.MatMul(x, w));
    }
    network.loss = g.Mean(x);
    g.Output("loss", network.loss);
    return Refusal(network, {.ipus_per_replica = 2, .schedule = Schedule::kGrouped}, 9);
  };
  EXPECT_EQ(refusal(0),
            "program 'train': 'w0' is used by several stages of the pipeline, of which one changes "
            "it");
  EXPECT_EQ(refusal(1), "");
}

// All micro-batches of a run go through the pipeline of an inference.
TEST(PipelineTest, InferenceGoesThroughTheIterations) {
  const auto outputs = [](uint32_t ipus, Schedule schedule, uint32_t iterations) {
    Network network = Layers(FLOAT32, ipus, ipus);
    CompileOptions options{.ipus_per_replica = ipus, .schedule = schedule};
    options.programs = {{.name = "infer", .device_iterations = iterations}};
    const auto compiled = Compile(network.graph, options);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    std::vector<float> losses;
    if (!compiled.ok()) return losses;
    auto device = session::CreateIpuModel({.ipus_per_replica = ipus, .compute_threads = 2});
    auto session = session::Session::Create(*std::move(device), *compiled);
    const auto x = *(*session)->Stream<float>("x", 0);
    const auto values = RandomValues(x.size(), 7);
    std::copy(values.begin(), values.end(), x.begin());
    EXPECT_TRUE((*session)->Run("infer").ok());
    const auto stream = *(*session)->Stream<float>("loss", 0);
    losses.assign(stream.begin(), stream.end());
    return losses;
  };
  for (uint32_t iterations : {4, 7}) {
    const auto one = outputs(1, Schedule::kSharded, iterations);
    EXPECT_EQ(one.size(), iterations);
    for (Schedule schedule : kPipelines) EXPECT_EQ(outputs(4, schedule, iterations), one);
  }
}

// Four stages work on as many micro-batches at once, unless one has to leave first. Beside that
// many layers, where to stash a micro-batch takes little time.
TEST(PipelineTest, StagesWorkAtTheSameTime) {
  constexpr uint32_t kLayers = 32;
  const auto cycles = [](Schedule schedule) {
    return Train(Layers(FLOAT32, 4, 4, kLayers), {.ipus_per_replica = 4, .schedule = schedule}, 28)
        .cycles;
  };
  EXPECT_LT(cycles(Schedule::kGrouped) * 2, cycles(Schedule::kSequential));
  EXPECT_LT(cycles(Schedule::kInterleaved) * 2, cycles(Schedule::kSequential));
}

}  // namespace
}  // namespace vpod::compiler
