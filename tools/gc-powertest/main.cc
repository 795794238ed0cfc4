// gc-powertest: keeps the IPUs of a device busy and shows power and temperature every second until
// Ctrl-C. The load is element-by-element arithmetic, all of whose cycles are compute; when it ends,
// the IPUs are idle again.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "client/ipuof/telemetry.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "tools/device_check/device_check.h"
#include "tools/device_check/program_builder.h"
#include "tools/gc-powertest/power.h"

namespace vpod::tools {
namespace {

constexpr char kTool[] = "gc-powertest";

absl::StatusOr<compiler::Compiled> Load() {
  const program::TensorType type{program::v1::FLOAT32, {arch::kTilesPerIpu, 512}};
  ProgramBuilder builder;
  const uint32_t a = builder.Tensor(type), b = builder.Tensor(type);
  Steps round = builder.Function();
  round.Binary(program::v1::MULTIPLY, a, a, b);
  round.Binary(program::v1::ADD, a, b, a);
  Steps load = builder.Program("load");
  load.Fill(a, 1);
  load.Repeat(100, round);
  return builder.Compile();
}

// Runs the load over and over until it is told to stop, or fails.
class Burner {
 public:
  explicit Burner(std::unique_ptr<session::Session> session)
      : session_(std::move(session)), thread_([this] { Burn(); }) {}
  ~Burner() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Waits for the end.
  absl::Status Join() {
    stop_ = true;
    thread_.join();
    return status_;
  }

 private:
  void Burn() {
    while (!stop_) {
      status_ = session_->Run("load").status();
      if (status_.ok()) continue;
      kill(getpid(), SIGTERM);  // wakes the table
      return;
    }
  }

  const std::unique_ptr<session::Session> session_;
  std::atomic<bool> stop_ = false;
  absl::Status status_;  // of the thread until it is joined
  std::thread thread_;
};

absl::Status PrintRows(uint32_t device_id, bool with_heading) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, ipuof::LookAtActiveGcd());
  VPOD_ASSIGN_OR_RETURN(const auto ids, IpusOfActiveDevice(device_id));
  std::vector<telemetry::v1::IpuTelemetry> ipus;
  for (uint32_t id : ids) ipus.push_back(partition.ipus.at(id));
  const std::vector<TestedBoard> boards = BoardsOf(ipus);
  const bool several = boards.size() > 1;
  for (const TestedBoard& board : boards) {
    if (several || with_heading) std::fputs(PowerHeading(board, several).c_str(), stdout);
    std::fputs(PowerRow(board).c_str(), stdout);
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Run(uint32_t device_id) {
  // Before any thread is made, so that all leave the signals to the loop below.
  sigset_t ends;
  sigemptyset(&ends);
  for (int signal : {SIGINT, SIGTERM}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  VPOD_ASSIGN_OR_RETURN(auto device, AttachForTest({.device_id = device_id, .monitoring = true}));
  VPOD_ASSIGN_OR_RETURN(const auto compiled, Load());
  VPOD_ASSIGN_OR_RETURN(auto session, session::Session::Create(std::move(device), compiled));
  Burner burner(std::move(session));
  const timespec period{1, 0};
  bool first = true;
  while (sigtimedwait(&ends, nullptr, &period) < 0) {
    VPOD_RETURN_IF_ERROR(PrintRows(device_id, first));
    first = false;
  }
  return burner.Join();
}

int Main(int argc, char** argv) {
  DeviceOption device;
  po::options_description options("Allowed options");
  options.add_options()("help,h", "help")("version,v", "version")  //
      ("device-id,d", po::value(&device)->default_value({}, "0"), "device to keep busy");
  po::variables_map values;
  if (const int code = ParseGcOptions(kTool, argc, argv, options, values); code >= 0) return code;
  const absl::Status status = Run(device.id);
  return status.ok() ? 0 : GcError(kTool, status);
}

}  // namespace
}  // namespace vpod::tools

int main(int argc, char** argv) { return vpod::tools::Main(argc, argv); }
