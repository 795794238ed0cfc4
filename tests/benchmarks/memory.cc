// For memory.py: "memory NETWORK BATCH REPLICAS" trains one step of a network on the POD whose
// environment is set, prints "ready", and keeps its replicas until the standard input ends.
#include <cstdio>
#include <iostream>

#include "absl/strings/numbers.h"
#include "client/ipuof/ipuof_device.h"
#include "client/popdist/job.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"
#include "tests/benchmarks/networks.h"

namespace vpod::benchmarks {
namespace {

absl::Status Hold(const NetworkOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, vipu::FindActivePartition());
  VPOD_ASSIGN_OR_RETURN(
      auto device,
      ipuof::AttachDevice(partition, {popdist::ThisJobMember(options.replicas, 1), -1}));
  VPOD_ASSIGN_OR_RETURN(const compiler::Compiled compiled, Compile(options));
  VPOD_ASSIGN_OR_RETURN(const auto session, session::Session::Create(std::move(device), compiled));
  VPOD_RETURN_IF_ERROR(FillStreams(options, *session));
  VPOD_RETURN_IF_ERROR(session->Run("run").status());
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  NetworkOptions options;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &options.batch) ||
      !absl::SimpleAtoi(argv[3], &options.replicas)) {
    std::fprintf(stderr, "usage: memory NETWORK BATCH REPLICAS\n");
    return 2;
  }
  options.name = argv[1];
  const absl::Status status = Hold(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "memory: error: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace vpod::benchmarks

int main(int argc, char** argv) { return vpod::benchmarks::Main(argc, argv); }
