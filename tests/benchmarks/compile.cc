// How much of a core it takes to compile training of ResNet-50, and which step takes how much;
// then how much it takes to find it in the executable cache.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/compiler/executable_cache.h"
#include "client/models/resnet.h"
#include "device/base/status.h"

namespace vpod {
namespace {

constexpr int kRounds = 5;

// CPU time of this process, which has one thread. Other work on the machine does not count.
double Seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
double Since(double start) { return Seconds() - start; }

struct Model {
  graph::Graph graph;
  compiler::CompileOptions options;
};

Model ResNet50() {
  Model model;
  graph::Graph& g = model.graph;
  const nn::Builder net(g, {.seed = 1, .training = true});
  const graph::Tensor images = g.Input("images", {program::v1::FLOAT32, {4, 3, 224, 224}});
  const graph::Tensor labels = g.Input("labels", {program::v1::INT32, {4}});
  const graph::Tensor logits = models::ResNet(net, images, models::ResNet50());
  const graph::Tensor loss = g.Mean(g.SoftmaxCrossEntropy(logits, labels));
  g.Output("loss", loss);
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

absl::Status Measure(const std::string& directory) {
  double start = Seconds();
  const Model model = ResNet50();
  std::printf("ResNet-50, graph with initial weights: %.2f s\n", Since(start));
  std::vector<double> rounds;
  std::vector<Step> steps;
  for (int round = 0; round < kRounds; ++round) {
    steps.clear();
    start = Seconds();
    VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled,
                          compiler::Compile(model.graph, model.options,
                                            [&](absl::string_view step, uint32_t, uint32_t) {
                                              steps.push_back({std::string(step), Since(start)});
                                            }));
    rounds.push_back(Since(start));
    if (round == 0) {
      int instructions = 0;
      for (const auto& function : compiled.executable->proto().ipus(0).functions())
        instructions += function.instructions_size();
      std::printf("its training is %d instructions, %d variables, %.0f KiB\n", instructions,
                  compiled.executable->proto().variables_size(),
                  static_cast<double>(compiled.executable->Bytes().size()) / 1024);
    }
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf("compile: %.3f s on one thread (median of %d; the aim is 2 s)\n", rounds[kRounds / 2],
              kRounds);
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
  const absl::Status status = vpod::Measure(directory);
  std::filesystem::remove_all(directory);
  if (status.ok()) return 0;
  std::fprintf(stderr, "compile: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
