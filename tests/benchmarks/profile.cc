// What it costs to profile: a training step with autoReport.all, and with a record of every run,
// beside the same step without a profile; and how long it takes to write the profile of ResNet-50,
// and how large it is.

#include "client/profile/profile.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "device/base/status.h"
#include "tests/benchmarks/networks.h"
#include "tests/benchmarks/turns.h"

namespace vpod::benchmarks {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 2;
constexpr char kEngineOptions[] = "POPLAR_ENGINE_OPTIONS";
// Two runs of a program are the default.
constexpr char kAllRuns[] = R"(, "autoReport.executionProfileProgramRunCount": "1000000000")";

struct Case {
  const char* what;
  NetworkOptions network;
  int rounds, steps;  // steps of a turn
};

absl::StatusOr<std::unique_ptr<session::Session>> Open(const NetworkOptions& options,
                                                       const compiler::Compiled& compiled) {
  VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({.compute_threads = kThreads}));
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  VPOD_RETURN_IF_ERROR(FillStreams(options, *session));
  return session;
}

// `more` are engine options beside autoReport.all.
absl::StatusOr<std::unique_ptr<session::Session>> OpenProfiled(const NetworkOptions& options,
                                                               const compiler::Compiled& compiled,
                                                               const std::string& directory,
                                                               const char* more) {
  setenv(kEngineOptions,
         absl::StrCat(R"({"autoReport.all": "true", "autoReport.directory": ")", directory, "\"",
                      more, "}")
             .c_str(),
         1);
  auto session = Open(options, compiled);
  unsetenv(kEngineOptions);
  return session;
}

absl::Status MeasureSteps(const Case& test, const std::string& directory) {
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, Compile(test.network));
  VPOD_ASSIGN_OR_RETURN(const auto plain, Open(test.network, compiled));
  VPOD_ASSIGN_OR_RETURN(const auto profiled,
                        OpenProfiled(test.network, compiled, directory + "/default", ""));
  VPOD_ASSIGN_OR_RETURN(const auto recorded,
                        OpenProfiled(test.network, compiled, directory + "/all", kAllRuns));
  const auto turn = [&](session::Session& session) {
    return [&]() -> absl::Status {
      for (int step = 0; step < test.steps; ++step)
        VPOD_RETURN_IF_ERROR(session.Run("run").status());
      return absl::OkStatus();
    };
  };
  VPOD_ASSIGN_OR_RETURN(
      const auto seconds,
      MedianSecondsInTurns(test.rounds, {turn(*profiled), turn(*recorded), turn(*plain)}));
  const auto milliseconds = [&](size_t i) { return 1e3 * seconds[i] / test.steps; };
  std::printf(
      "%s, training: a step with a profile %.2f ms, without %.2f ms, ratio %.3f (the aim is "
      "1.05); if every run is recorded %.2f ms, ratio %.3f\n",
      test.what, milliseconds(0), milliseconds(2), seconds[0] / seconds[2], milliseconds(1),
      seconds[1] / seconds[2]);
  return absl::OkStatus();
}

absl::Status MeasureReport(const std::string& directory) {
  compiler::Compiled compiled;
  VPOD_ASSIGN_OR_RETURN(const double compiling, Seconds([&] {
                          auto result = Compile({.name = "resnet50", .batch = 4, .half = true});
                          if (result.ok()) compiled = *std::move(result);
                          return result.status();
                        }));
  std::string path;
  VPOD_ASSIGN_OR_RETURN(const double writing, Seconds([&]() -> absl::Status {
                          VPOD_ASSIGN_OR_RETURN(const auto profiler,
                                                profile::Profiler::Create(
                                                    compiled.executable,
                                                    {.directory = directory, .execution = true}));
                          path = profiler->PathOf(0);
                          return profiler->AddRun(0, base::Cycles(1));
                        }));
  std::printf(
      "ResNet-50, 224x224, batch 4, training in float16: compiled and planned in %.2f s, its "
      "profile written in %.2f s, together %.2f s (the aim is 5 s); %.1f MB (the aim is 100 MB)\n",
      compiling, writing, compiling + writing, static_cast<double>(fs::file_size(path)) / 1e6);
  return absl::OkStatus();
}

absl::Status Measure(const std::string& directory) {
  VPOD_RETURN_IF_ERROR(MeasureReport(directory));
  const Case cases[] = {{"ResNet-18, 32x32, batch 16, 3x3 stem",
                         {.name = "resnet18", .batch = 16, .allow_out_of_memory = true},
                         11,
                         1},
                        {"ResNet-18, 32x32, batch 16, 7x7 stem and pool",
                         {.name = "resnet18-stem7", .batch = 16},
                         31,
                         1},
                        {"MNIST network, batch 16", {.name = "mnist", .batch = 16}, 201, 5}};
  for (const Case& test : cases) VPOD_RETURN_IF_ERROR(MeasureSteps(test, directory));
  return absl::OkStatus();
}

}  // namespace
}  // namespace vpod::benchmarks

int main() {
  std::string directory = std::filesystem::temp_directory_path() / "profile.XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return 1;
  const absl::Status status = vpod::benchmarks::Measure(directory);
  std::filesystem::remove_all(directory);
  if (status.ok()) return 0;
  std::fprintf(stderr, "profile: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
