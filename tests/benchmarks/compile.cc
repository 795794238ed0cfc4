// How much of a core it takes to compile training of ResNet-50 and of BERT-large, and which step
// takes how much; then how much it takes to find them in the executable cache.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/compiler/executable_cache.h"
#include "client/models/bert.h"
#include "client/models/resnet.h"
#include "device/base/status.h"

namespace vpod {
namespace {

constexpr int kRounds = 5;

// CPU time of this process, which has one thread. Other work on the machine does not count.
double Seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
double Since(double start) { return Seconds() - start; }

struct Model {
  std::string name;
  double aim;  // seconds
  graph::Graph graph;
  compiler::CompileOptions options;
};

Model ResNet50() {
  Model model{.name = "ResNet-50", .aim = 2};
  graph::Graph& g = model.graph;
  const nn::Builder net(g, {.seed = 1, .training = true});
  const graph::Tensor images = g.Input("images", {program::v1::FLOAT16, {4, 3, 224, 224}});
  const graph::Tensor labels = g.Input("labels", {program::v1::INT32, {4}});
  const graph::Tensor logits = models::ResNet(net, images, models::ResNet50());
  const graph::Tensor loss =
      g.Mean(g.SoftmaxCrossEntropy(g.Cast(logits, program::v1::FLOAT32), labels));
  g.Output("loss", loss);
  model.options.programs = {{.name = "train",
                             .accumulation = 4,
                             .loss = loss,
                             .optimizer = compiler::SgdOptions{.momentum = 0.9f}}};
  return model;
}

Model BertLarge() {
  Model model{.name = "BERT-large", .aim = 5};
  graph::Graph& g = model.graph;
  const nn::Builder net(g, {.seed = 1, .training = true});
  models::BertOptions options = models::BertLarge();
  options.type = program::v1::FLOAT16;
  options.layers_per_ipu = 2;
  const graph::TensorType numbers{program::v1::INT32, {1, 128}};
  const models::BertInputs inputs{.tokens = g.Input("tokens", numbers),
                                  .attended = g.Input("attended", numbers)};
  const graph::Tensor logits =
      g.Reshape(models::BertForMaskedLanguage(net, inputs, options), {128, options.vocabulary});
  const graph::Tensor labels = g.Input("labels", {program::v1::INT32, {128}});
  const graph::Tensor loss =
      g.Mean(g.SoftmaxCrossEntropy(g.Cast(logits, program::v1::FLOAT32), labels));
  g.Output("loss", loss);
  // With the two moments of LAMB the embedding would not fit its IPU.
  model.options.ipus_per_replica = 16;
  model.options.programs = {{.name = "train",
                             .accumulation = 4,
                             .loss = loss,
                             .optimizer = compiler::SgdOptions{.momentum = 0.9f}}};
  return model;
}

struct Step {
  std::string name;
  double seconds;
};

absl::Status Measure(Model (*build)(), const std::string& directory) {
  double start = Seconds();
  const Model model = build();
  std::printf("%s, graph: %.2f s\n", model.name.c_str(), Since(start));
  // The first round searches for the splits of products over tiles; later ones remember them.
  double first = 0;
  std::vector<double> rounds;
  std::vector<Step> steps;  // of the first round
  for (int round = 0; round <= kRounds; ++round) {
    start = Seconds();
    VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                          compiler::Compile(model.graph, model.options,
                                            [&](absl::string_view step, uint32_t, uint32_t) {
                                              if (round == 0)
                                                steps.push_back({std::string(step), Since(start)});
                                              return absl::OkStatus();
                                            }));
    if (round > 0) rounds.push_back(Since(start));
    if (round == 0) {
      first = Since(start);
      int instructions = 0;
      for (const auto& ipu : compiled.executable->proto().ipus()) {
        for (const auto& function : ipu.functions()) instructions += function.instructions_size();
      }
      std::printf("its training is %d instructions, %d variables, %.0f KiB\n", instructions,
                  compiled.executable->proto().variables_size(),
                  static_cast<double>(compiled.executable->Bytes().size()) / 1024);
    }
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf("compile: %.3f s on one thread (the aim is %g s), again: %.3f s (median of %d)\n",
              first, model.aim, rounds[kRounds / 2], kRounds);
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    std::printf("  %-16s %7.3f s\n", steps[i].name.c_str(),
                steps[i + 1].seconds - steps[i].seconds);
  }
  for (const char* what : {"miss", "hit"}) {
    start = Seconds();
    VPOD_RETURN_IF_ERROR(compiler::CompileCached(model.graph, model.options, directory).status());
    std::printf("executable cache, %s: %.3f s\n", what, Since(start));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace vpod

int main() {
  std::string directory = std::filesystem::temp_directory_path() / "compile.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return 1;
  absl::Status status = vpod::Measure(vpod::ResNet50, directory);
  status.Update(vpod::Measure(vpod::BertLarge, directory));
  std::filesystem::remove_all(directory);
  if (status.ok()) return 0;
  std::fprintf(stderr, "compile: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
