#include "client/compiler/executable_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/file.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;
using testing::HasSubstr;

struct Shape {
  int64_t hidden = 5;
  float initial = 0.5f;
  double factor = 2;
  std::string output = "loss";
  std::string scope = "model";
  Tensor (*alias)(Graph&, Tensor logits, Tensor product) = nullptr;  // of the logits
};

struct Model {
  Graph graph;
  CompileOptions options;
};

Model MakeModel(const Shape& shape = {}) {
  Model model;
  Graph& g = model.graph;
  const Graph::Scope scope(g, shape.scope);
  const Tensor x = g.Input("x", {FLOAT32, {4, 6}});
  const Tensor w =
      g.Variable("w", {FLOAT32, {6, shape.hidden}},
                 std::vector<float>(static_cast<size_t>(6 * shape.hidden), shape.initial));
  const Tensor product = g.MatMul(x, w);
  Tensor logits = g.Multiply(product, g.Constant({FLOAT32, {}}, shape.factor));
  if (shape.alias != nullptr) logits = shape.alias(g, logits, product);
  const Tensor loss = g.Mean(g.SoftmaxCrossEntropy(logits, g.Input("labels", {INT32, {4}})));
  g.Output(shape.output, loss);
  model.options.programs = {{.name = "train", .loss = loss, .optimizer = SgdOptions{}}};
  return model;
}

class ExecutableCacheTest : public testing::Test {
 protected:
  ExecutableCacheTest() {
    std::string path = testing::TempDir() + "/cache.XXXXXX";
    directory_ = std::string(mkdtemp(path.data())) + "/made/when/needed";
  }

  Compiled Compile(const Model& model) {
    steps_.clear();
    const auto compiled = CompileCached(
        model.graph, model.options, directory_,
        [this](absl::string_view step, uint32_t done, uint32_t total) {
          steps_.push_back(absl::StrCat(step, " ", done, "/", total));
          return absl::OkStatus();
        },
        &miss_);
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return *compiled;
  }
  // Whether the last one came from the cache.
  bool WasHit() const { return steps_.empty(); }

  std::string TheFile() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string directory_;
  std::vector<std::string> steps_;
  std::string miss_;  // of the last compilation
};

TEST_F(ExecutableCacheTest, ASecondCompilationIsAHitAndEqual) {
  const Compiled first = Compile(MakeModel());
  EXPECT_FALSE(WasHit());
  EXPECT_EQ(steps_, (std::vector<std::string>{
                        "Adding gradients 0/9", "Removing dead code 1/9", "Fusing operations 2/9",
                        "Lowering 3/9", "Scheduling 4/9", "Placing tensors 5/9", "Validating 6/9",
                        "Checking memory 7/9", "Initial values 8/9", "Done 9/9"}));
  const Compiled second = Compile(MakeModel());
  EXPECT_TRUE(WasHit());
  EXPECT_EQ(first.executable->Bytes(), second.executable->Bytes());
  EXPECT_EQ(first.executable->hash(), second.executable->hash());
  EXPECT_EQ(first.executable->OriginBytes(), second.executable->OriginBytes());
  EXPECT_FALSE(first.executable->OriginBytes().empty());
  EXPECT_EQ(first.initial_values, second.initial_values);
}

TEST_F(ExecutableCacheTest, InitialValuesAreThoseOfTheGraph) {
  Compile(MakeModel({.initial = 0.5f}));
  const Model changed = MakeModel({.initial = 0.25f});
  const Compiled cached = Compile(changed);
  EXPECT_TRUE(WasHit());
  const auto fresh = compiler::Compile(changed.graph, changed.options);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(cached.initial_values, fresh->initial_values);
  EXPECT_EQ(cached.executable->total_replicas(), 1u);
}

TEST_F(ExecutableCacheTest, HyperParametersAreInitialValues) {
  Model model = MakeModel();
  ProgramSpec& spec = model.options.programs[0];
  const auto expect_hit = [&](const auto& before, const auto& change) {
    before();
    Compile(model);
    change();
    const Compiled cached = Compile(model);
    EXPECT_TRUE(WasHit());
    const auto fresh = compiler::Compile(model.graph, model.options);
    ASSERT_TRUE(fresh.ok()) << fresh.status();
    EXPECT_EQ(cached.executable->hash(), fresh->executable->hash());
    EXPECT_EQ(cached.initial_values, fresh->initial_values);
  };
  expect_hit(
      [&] {
        spec.optimizer = SgdOptions{.learning_rate = 0.1f, .momentum = 0.5f, .dampening = 0.1f};
      },
      [&] {
        spec.optimizer = SgdOptions{.learning_rate = 0.2f, .momentum = 0.9f, .weight_decay = 0.1f};
      });
  expect_hit([&] { spec.loss_scale = 8; }, [&] { spec.loss_scale = 16; });
  expect_hit([&] { spec.optimizer = AdamOptions{}; },
             [&] {
               spec.optimizer = AdamOptions{.learning_rate = 0.1f,
                                            .beta1 = 0.5f,
                                            .beta2 = 0.5f,
                                            .epsilon = 0.1f,
                                            .weight_decay = 0.1f};
             });
}

TEST_F(ExecutableCacheTest, AMissSaysWhatDiffersFromTheNearestFile) {
  Compile(MakeModel());
  EXPECT_EQ(miss_, "");
  const std::string first = CacheKey(MakeModel().graph, MakeModel().options).value();
  const auto expect_miss = [&](const std::string& parts, const auto& change) {
    Model model = MakeModel();
    change(model.options);
    Compile(model);
    EXPECT_FALSE(WasHit());
    EXPECT_EQ(miss_, absl::StrCat(parts, " of ", first, ".vipuexe, the nearest file"));
    std::filesystem::remove(
        absl::StrCat(directory_, "/", CacheKey(model.graph, model.options).value(), ".vipuexe"));
  };
  expect_miss("the number of replicas differs from that",
              [](CompileOptions& o) { o.total_replicas = 2; });
  expect_miss("the number of IPUs of a replica differs from that",
              [](CompileOptions& o) { o.ipus_per_replica = 2; });
  expect_miss("an option of the compiler differs from that",
              [](CompileOptions& o) { o.fusion = false; });
  expect_miss("the program (optimizer, accumulation, iterations, outputs) differs from that",
              [](CompileOptions& o) { o.programs[0].accumulation = 2; });
  expect_miss(
      "the number of replicas and the program (optimizer, accumulation, iterations, outputs) "
      "differ from those",
      [](CompileOptions& o) {
        o.total_replicas = 2;
        o.programs[0].device_iterations = 2;
      });
  Compile(MakeModel({.hidden = 6}));
  EXPECT_EQ(miss_, absl::StrCat("the graph (operators, shapes, names, source lines) differs from "
                                "that of ",
                                first, ".vipuexe, the nearest file"));
}

TEST_F(ExecutableCacheTest, AHitIsCheckedLikeACompilation) {
  Model model = MakeModel();
  model.options.programs[0].loss_scale = 8;
  Compile(model);
  model.options.programs[0].loss_scale = -1;
  EXPECT_EQ(CompileCached(model.graph, model.options, directory_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ExecutableCacheTest, EveryOtherChangeIsAnotherKey) {
  std::vector<Model> models;
  models.push_back(MakeModel());
  models.push_back(MakeModel({.hidden = 6}));
  models.push_back(MakeModel({.factor = 3}));
  models.push_back(MakeModel({.output = "other"}));
  models.push_back(MakeModel({.scope = "other"}));
  const auto stop = [](Graph& g, Tensor logits, Tensor) { return g.Stop(logits); };
  const auto reshape = [](Graph& g, Tensor logits, Tensor) {
    return g.Reshape(logits, g.TypeOf(logits).dims);
  };
  const auto pass_by = [](Graph& g, Tensor logits, Tensor product) {
    return g.PassBy(logits, product);
  };
  models.push_back(MakeModel({.alias = stop}));
  models.push_back(MakeModel({.alias = reshape}));
  models.push_back(MakeModel({.alias = pass_by}));
  const auto region = [](Graph& g, Tensor logits, Tensor) {
    return g.AddRegion({logits}, {logits}).outputs[0];
  };
  models.push_back(MakeModel({.alias = region}));
  for (double factor : {2, 3}) {
    models.push_back(MakeModel());
    Graph& g = models.back().graph;
    const Graph::Region hook = g.AddRegion({g.variables()[0]}, {g.variables()[0]});
    g.RecordRegion(hook, [&] {
      return std::vector{g.Multiply(hook.cotangents[0], g.Constant({FLOAT32, {}}, factor))};
    });
  }
  const auto add_constant = [&](const std::string& elements) {
    models.push_back(MakeModel());
    models.back().graph.Constant({program::v1::UINT8, {2}}, elements);
  };
  add_constant("ab");
  add_constant("ac");
  for (const graph::Assigned when : {graph::Assigned::kInTraining, graph::Assigned::kAlways}) {
    models.push_back(MakeModel());
    Graph& g = models.back().graph;
    g.Assign(g.variables()[0], g.variables()[0], when);
  }
  const auto with = [&](const auto& change) {
    models.push_back(MakeModel());
    change(models.back().options, models.back().options.programs[0]);
  };
  with([](CompileOptions& o, ProgramSpec&) { o.ipus_per_replica = 2; });
  with([](CompileOptions& o, ProgramSpec&) { o.total_replicas = 2; });
  with([](CompileOptions& o, ProgramSpec&) { o.fusion = false; });
  with([](CompileOptions& o, ProgramSpec&) { o.front.names.float16 = "--half"; });
  with([](CompileOptions& o, ProgramSpec&) { o.off_chip_optimizer_state = true; });
  with([](CompileOptions& o, ProgramSpec&) { o.off_chip_activations = true; });
  with([](CompileOptions& o, ProgramSpec&) { o.off_chip_weights = true; });
  with([](CompileOptions& o, ProgramSpec&) { o.off_chip_accumulators = true; });
  with([](CompileOptions& o, ProgramSpec&) {
    o.total_replicas = 2;
    o.tensor_shards = 2;
  });
  with([](CompileOptions& o, ProgramSpec& p) { o.programs.push_back({.name = p.name}); });
  with([](CompileOptions&, ProgramSpec& p) { p.name = "step"; });
  with([](CompileOptions&, ProgramSpec& p) { p.device_iterations = 2; });
  with([](CompileOptions&, ProgramSpec& p) { p.accumulation = 2; });
  with([](CompileOptions&, ProgramSpec& p) { p.loss.reset(); });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer.reset(); });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer = SgdOptions{.momentum = 0.5f}; });
  with([](CompileOptions&, ProgramSpec& p) {
    p.optimizer = SgdOptions{.momentum = 0.5f, .nesterov = true};
  });
  with([](CompileOptions&, ProgramSpec& p) {
    p.optimizer = SgdOptions{.momentum = 0.5f, .combined = true};
  });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer = AdamOptions{}; });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer = RmsPropOptions{.centered = true}; });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer = RmsPropOptions{.tensorflow = true}; });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer = LambOptions{}; });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer = LarsOptions{}; });
  with([](CompileOptions&, ProgramSpec& p) { p.clip_norm = 1; });
  with([](CompileOptions&, ProgramSpec& p) { p.clip_value = 1; });
  with([](CompileOptions&, ProgramSpec& p) { p.optimizer = AdamOptions{.amsgrad = true}; });
  with([](CompileOptions&, ProgramSpec& p) {
    p.optimizer = AdamOptions{.float16_second_moment = true};
  });
  with(
      [](CompileOptions&, ProgramSpec& p) { p.optimizer = AdamOptions{.bias_correction = false}; });
  with([](CompileOptions&, ProgramSpec& p) { p.float16_accumulators = true; });
  with([](CompileOptions&, ProgramSpec& p) { p.loss_scale = 8; });
  with([](CompileOptions&, ProgramSpec& p) { p.automatic_loss_scale.emplace(); });
  with([](CompileOptions&, ProgramSpec& p) { p.automatic_loss_scale.emplace().interval = 1; });
  with([](CompileOptions&, ProgramSpec& p) { p.histogram_loss_scale.emplace(); });
  with([](CompileOptions&, ProgramSpec& p) { p.histogram_loss_scale.emplace().period = 2; });
  with([](CompileOptions&, ProgramSpec& p) { p.reduction = GradientReduction::kSum; });
  with([](CompileOptions&, ProgramSpec& p) { p.output_mode = OutputMode::kFinal; });
  with([](CompileOptions&, ProgramSpec& p) { p.output_period = 2; });
  with([](CompileOptions&, ProgramSpec& p) { p.output_modes["y"] = OutputMode::kFinal; });
  with([](CompileOptions&, ProgramSpec& p) { p.output_modes["y"] = OutputMode::kSum; });
  with([](CompileOptions&, ProgramSpec& p) { p.gradient_outputs = {{"g", {0}}}; });
  std::set<std::string> keys;
  for (const Model& model : models) {
    const auto key = CacheKey(model.graph, model.options);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_TRUE(keys.insert(*key).second) << "the change before number " << keys.size();
    EXPECT_EQ(CacheKey(model.graph, model.options).value(), *key);
  }
}

TEST_F(ExecutableCacheTest, BadFilesAreNamedAndReplaced) {
  Compile(MakeModel({.hidden = 6}));
  const std::string foreign = base::ReadFile(TheFile());
  std::filesystem::remove(TheFile());
  const Compiled fresh = Compile(MakeModel());
  const std::string path = TheFile(), good = base::ReadFile(path);
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "not a compiled executable"},
      {"something else", "not a compiled executable"},
      {good.substr(0, 100), "not a compiled executable"},
      {good.substr(0, good.size() - 1), "truncated or damaged"},
      {good + "x", "truncated or damaged"},
      {flipped, "truncated or damaged"},
      {foreign, "of another graph or another compiler"},
  };
  for (const auto& [bytes, message] : cases) {
    Write(path, bytes);
    testing::internal::CaptureStderr();
    const Compiled compiled = Compile(MakeModel());
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::AllOf(HasSubstr(message), HasSubstr(path)));
    EXPECT_FALSE(WasHit());
    EXPECT_EQ(compiled.executable->Bytes(), fresh.executable->Bytes());
    EXPECT_EQ(base::ReadFile(path), good);
    EXPECT_EQ(TheFile(), path);  // nothing is left beside it
  }
}

TEST_F(ExecutableCacheTest, WhatCannotBeCachedIsCompiled) {
  const auto key = CacheKey(MakeModel().graph, MakeModel().options);
  ASSERT_TRUE(key.ok()) << key.status();
  // A directory has the file's name.
  std::filesystem::create_directories(absl::StrCat(directory_, "/", *key, ".vipuexe/inner"));
  testing::internal::CaptureStderr();
  Compile(MakeModel());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("is a directory"), HasSubstr("is not cached")));
  // The directory is a file.
  std::filesystem::remove_all(directory_);
  Write(directory_, "a file");
  testing::internal::CaptureStderr();
  Compile(MakeModel());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is not cached"));
  EXPECT_FALSE(WasHit());
  // No file system has so long a name.
  directory_ = std::filesystem::path(directory_).parent_path() / std::string(300, 'x');
  testing::internal::CaptureStderr();
  Compile(MakeModel());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("too long"), HasSubstr("is not cached")));
}

TEST_F(ExecutableCacheTest, NothingIsCachedWithoutADirectory) {
  directory_.clear();
  Compile(MakeModel());
  Compile(MakeModel());
  EXPECT_FALSE(WasHit());
}

TEST_F(ExecutableCacheTest, AMistakeInTheGraphIsItsOwnError) {
  Model model = MakeModel();
  model.graph.Output("loss", {});
  model.graph.Input("x", {FLOAT32, {1}});
  const auto compiled = CompileCached(model.graph, model.options, directory_);
  EXPECT_EQ(compiled.status(), model.graph.status());
  EXPECT_FALSE(compiled.ok());
}

TEST_F(ExecutableCacheTest, SeveralAtOnceGetWholeFiles) {
  testing::internal::CaptureStderr();
  const Model model = MakeModel();
  const auto expected = compiler::Compile(model.graph, model.options);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<std::thread> threads;
  std::vector<std::string> hashes(4);
  for (std::string& hash : hashes) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto compiled = CompileCached(model.graph, model.options, directory_);
        if (compiled.ok()) hash = compiled->executable->hash();
        // The others compile and write while this one reads.
        std::error_code ignored;
        std::filesystem::remove(
            absl::StrCat(directory_, "/", *CacheKey(model.graph, model.options), ".vipuexe"),
            ignored);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(hashes, testing::Each(expected->executable->hash()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("truncated")));
}

}  // namespace
}  // namespace vpod::compiler
