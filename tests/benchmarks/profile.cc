// The cost of profiling: a training step that is recorded beside one without a profile, how long
// it takes to write the profile, and how large that is.

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

// Every run is recorded, so that all steps that are timed are.
absl::StatusOr<std::unique_ptr<session::Session>> OpenRecorded(const NetworkOptions& options,
                                                               const compiler::Compiled& compiled,
                                                               const std::string& directory) {
  setenv(kEngineOptions,
         absl::StrCat(R"({"autoReport.all": "true", "autoReport.directory": ")", directory,
                      R"(", "autoReport.executionProfileProgramRunCount": "8388608"})")
             .c_str(),
         1);
  auto session = Open(options, compiled);
  unsetenv(kEngineOptions);
  return session;
}

struct Report {
  double seconds = 0, megabytes = 0;
};

// Writes what is known before the first run, the steps of a run, and the runs of the default.
absl::StatusOr<Report> WriteReport(const compiler::Compiled& compiled,
                                   const std::string& directory) {
  Report report;
  const profile::ProfileOptions options{.directory = directory, .execution = true};
  std::unique_ptr<profile::Profiler> profiler;
  VPOD_ASSIGN_OR_RETURN(report.seconds, Seconds([&]() -> absl::Status {
                          VPOD_ASSIGN_OR_RETURN(
                              profiler, profile::Profiler::Create(compiled.executable, options));
                          for (uint32_t run = 0; run < options.runs; ++run)
                            VPOD_RETURN_IF_ERROR(profiler->AddRun(0, base::Cycles(1)));
                          return absl::OkStatus();
                        }));
  report.megabytes = static_cast<double>(fs::file_size(profiler->PathOf(0))) / 1e6;
  return report;
}

absl::Status MeasureSteps(const Case& test, const std::string& directory) {
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, Compile(test.network));
  VPOD_ASSIGN_OR_RETURN(const auto plain, Open(test.network, compiled));
  VPOD_ASSIGN_OR_RETURN(const auto recorded, OpenRecorded(test.network, compiled, directory));
  const auto turn = [&](session::Session& session) {
    return [&]() -> absl::Status {
      for (int step = 0; step < test.steps; ++step)
        VPOD_RETURN_IF_ERROR(session.Run("run").status());
      return absl::OkStatus();
    };
  };
  VPOD_ASSIGN_OR_RETURN(const auto seconds,
                        MedianSecondsInTurns(test.rounds, {turn(*recorded), turn(*plain)}));
  VPOD_ASSIGN_OR_RETURN(const Report report, WriteReport(compiled, directory + "/written"));
  const double milliseconds = 1e3 * seconds[0] / test.steps,
               without = 1e3 * seconds[1] / test.steps;
  std::printf(
      "%s, training: a recorded step %.2f ms, without a profile %.2f ms, ratio %.3f (the aim is "
      "1.05); the report and the runs of the default written in %.1f ms, %.2f MB\n",
      test.what, milliseconds, without, milliseconds / without, 1e3 * report.seconds,
      report.megabytes);
  return absl::OkStatus();
}

absl::Status MeasureReport(const std::string& directory) {
  compiler::Compiled compiled;
  VPOD_ASSIGN_OR_RETURN(const double compiling, Seconds([&] {
                          auto result = Compile({.name = "resnet50", .batch = 4, .half = true});
                          if (result.ok()) compiled = *std::move(result);
                          return result.status();
                        }));
  VPOD_ASSIGN_OR_RETURN(const Report report, WriteReport(compiled, directory));
  std::printf(
      "ResNet-50, 224x224, batch 4, training in float16: compiled and planned in %.2f s, its "
      "profile written in %.2f s, together %.2f s (the aim is 5 s); %.1f MB (the aim is 100 MB)\n",
      compiling, report.seconds, compiling + report.seconds, report.megabytes);
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
