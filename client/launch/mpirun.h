// mpirun's process, and the signals that end it (spec/poprun.md 9).
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"

namespace vpod::launch {

// Sent to this process when IPUs of the job are lost: mpirun has ten seconds left. It may wait for
// ever for a host that is cut off.
inline constexpr int kDeviceLostSignal = SIGUSR1;
// Tells mpirun where its session directory goes.
inline constexpr char kSessionDirectory[] = "OMPI_MCA_orte_tmpdir_base";

// Holds SIGINT, SIGTERM and SIGHUP back for RunMpirun, and heeds SIGCHLD. Call before other threads
// are started.
void BlockSignals();
// Waits for one to come, up to a limit; it stays pending.
void AwaitSignal(std::chrono::milliseconds limit);

struct MpirunResult {
  int exit_code = 0;      // 128 + signal when mpirun itself was killed
  int signal = 0;         // the one that was forwarded, else 0
  int killed_by = 0;      // signal that ended mpirun itself, when nobody here sent one
  bool given_up = false;  // it did not end after IPUs were lost, and was killed
};

struct MpirunCommand {
  std::string path;
  std::vector<std::string> arguments;
  std::optional<uint32_t> only_output_from = std::nullopt;  // hides the output of all other ranks
  // Made for mpirun and removed after it: several that come and go in the same one remove it under
  // each other's feet. Empty: the one that all share.
  std::string session_directory = "";
  // The same for named shared memory of programs on this host. Empty: where they like.
  std::string shared_memory_directory = "";
  // Run after mpirun's end when this process was killed. Empty: nothing.
  std::vector<std::string> if_killed = {};
  // Variables of this process that mpirun and the instances do not get.
  std::vector<std::string> hidden_variables = {};
  // Its argv[0]; empty: the path. Open MPI takes an absolute one for a --prefix, whose programs the
  // instances would then find before those of the user's PATH.
  std::string name = "";
};

// Starts mpirun in a process group of its own, behind a watchdog (watchdog.h), and waits for it.
// Signals are forwarded to the group, and followed by SIGKILL after 10 s. Unavailable: it cannot be
// started.
absl::StatusOr<MpirunResult> RunMpirun(const MpirunCommand& command,
                                       const std::function<void(int pid)>& started);

}  // namespace vpod::launch
