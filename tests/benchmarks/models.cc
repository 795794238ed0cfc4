// Times steps of the models of client/models on the IPUModel, for models.py and replicas.py: each
// line of the standard input is "MODEL BATCH train|infer float32|float16 STEPS REPLICAS", and is
// answered by the milliseconds of a step. A model is compiled when it is first asked for.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/session/ipu_model.h"
#include "client/session/session.h"
#include "device/base/status.h"
#include "tests/benchmarks/networks.h"

namespace vpod::benchmarks {
namespace {

constexpr int kThreads = 2;

absl::StatusOr<std::unique_ptr<session::Session>> Open(const NetworkOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, Compile(options));
  VPOD_ASSIGN_OR_RETURN(auto device, session::CreateIpuModel({.replicas = options.replicas,
                                                              .compute_threads = kThreads}));
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  VPOD_RETURN_IF_ERROR(FillStreams(options, *session));
  return session;
}

absl::StatusOr<double> MillisecondsOfAStep(session::Session& session, int steps) {
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) VPOD_RETURN_IF_ERROR(session.Run("run").status());
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  return taken.count() / steps;
}

absl::Status Serve() {
  std::map<std::string, std::unique_ptr<session::Session>> sessions;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name, mode, type;
    int64_t batch = 0;
    int steps = 0;
    uint32_t replicas = 0;
    words >> name >> batch >> mode >> type >> steps >> replicas;
    if (!words || steps < 1)
      return absl::InvalidArgumentError(absl::StrCat("cannot time '", line, "'"));
    auto& session = sessions[absl::StrCat(name, batch, mode, type, replicas)];
    if (session == nullptr) {
      VPOD_ASSIGN_OR_RETURN(session, Open({.name = name,
                                           .batch = batch,
                                           .training = mode == "train",
                                           .half = type == "float16",
                                           .replicas = replicas,
                                           .allow_out_of_memory = true}));
    }
    VPOD_ASSIGN_OR_RETURN(const double milliseconds, MillisecondsOfAStep(*session, steps));
    std::printf("%.4f\n", milliseconds);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace vpod::benchmarks

int main() {
  const absl::Status status = vpod::benchmarks::Serve();
  if (status.ok()) return 0;
  std::fprintf(stderr, "models: error: %s\n", std::string(status.message()).c_str());
  return 1;
}
