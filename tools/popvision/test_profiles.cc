#include "tools/popvision/test_profiles.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/models/resnet.h"
#include "client/profile/profile.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/model/timeline.h"

namespace vpod::popvision {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;
using program::v1::INT32;

std::string NewDirectory() {
  static int number = 0;
  return absl::StrCat(testing::TempDir(), "/", getpid(), ".", number++);
}

// The profile of a program in a directory, which is removed unless it is kept.
pva::Report Take(const std::string& directory, const std::string& program, bool keep = false) {
  auto report = pva::OpenReport(absl::StrCat(directory, "/", program));
  EXPECT_TRUE(report.ok()) << report.status();
  if (!keep) std::filesystem::remove_all(directory);
  return *std::move(report);
}

compiler::Compiled Compile(const NetworkOptions& options) {
  Graph g;
  const nn::Builder net(g, {.training = true});
  models::ResNetOptions resnet = models::ResNet18();
  resnet.small_images = true;
  resnet.classes = 10;
  if (options.ipus == 2) resnet.stages = {options.split};
  const Tensor logits = models::ResNet(
      net, g.Input("images", {options.type, {options.micro_batch, 3, 32, 32}}), resnet);
  const Tensor loss =
      g.Mean(g.SoftmaxCrossEntropy(logits, g.Input("labels", {INT32, {options.micro_batch}})));
  g.Output("loss", loss);
  compiler::CompileOptions compile{.ipus_per_replica = options.ipus, .schedule = options.schedule};
  compile.recomputation = options.recomputation;
  compile.off_chip_optimizer_state = options.off_chip;
  compile.off_chip_activations = options.off_chip;
  compile.off_chip_weights = options.off_chip;
  compile.off_chip_accumulators = options.off_chip_accumulators;
  compile.total_replicas = options.replicas;
  compile.allow_out_of_memory = true;
  compile.front.names = options.option_names;
  compile.programs = {{.name = "train",
                       .accumulation = options.accumulation,
                       .loss = loss,
                       .optimizer = options.optimizer}};
  auto compiled = compiler::Compile(g, compile);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  return *std::move(compiled);
}

}  // namespace

pva::Report ProfileOf(const compiler::Compiled& compiled, uint32_t replicas) {
  profile::ProfileOptions profile;
  profile.directory = NewDirectory();
  profile.execution = true;
  profile.topology.ipus_per_replica = compiled.executable->ipus_per_replica();
  profile.topology.num_replicas = replicas;
  const auto profiler = profile::Profiler::Create(compiled.executable, profile);
  EXPECT_TRUE(profiler.ok()) << profiler.status();
  const auto& executable = compiled.executable->proto();
  EXPECT_TRUE(
      (*profiler)->AddRun(0, model::TimelineOf(executable, 0, profile.topology).end()).ok());
  return Take(profile.directory, executable.programs(0).name());
}

pva::Report ProfileOf(const NetworkOptions& options) {
  return ProfileOf(Compile(options), options.replicas);
}

const pva::Report& Pipeline() {
  static const auto* const report = new pva::Report(ProfileOf(NetworkOptions()));
  return *report;
}

RecordedRun Record(const NetworkOptions& options, bool keep) {
  const std::string directory = NewDirectory();
  setenv("POPLAR_ENGINE_OPTIONS",
         absl::StrCat(R"({"autoReport.all": "true", "autoReport.directory": ")", directory, "\"}")
             .c_str(),
         1);
  auto device = session::CreateIpuModel(
      {.replicas = options.replicas, .ipus_per_replica = options.ipus, .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  const auto session = session::Session::Create(*std::move(device), Compile(options));
  unsetenv("POPLAR_ENGINE_OPTIONS");
  EXPECT_TRUE(session.ok()) << session.status();
  const auto cycles = (*session)->Run("train");
  EXPECT_TRUE(cycles.ok()) << cycles.status();
  return {Take(directory, "train", keep), *cycles};
}

nlohmann::json Blocks(const Document& document) {
  return nlohmann::json::parse(Json(document))["blocks"];
}

nlohmann::json Find(const Document& document, const std::string& title) {
  for (const auto& block : Blocks(document)) {
    if (block["title"] == title) return block;
  }
  ADD_FAILURE() << "no block " << title;
  return {};
}

std::vector<nlohmann::json> Rows(const Document& document, const std::string& title) {
  return Find(document, title)["rows"];
}

}  // namespace vpod::popvision
