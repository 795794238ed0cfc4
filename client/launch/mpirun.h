// mpirun's process, and the signals that end it (spec/poprun.md 9).
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::launch {

// Sent to this process when IPUs of the job are lost: mpirun has ten seconds left. It may wait for
// ever for a host that is cut off.
inline constexpr int kDeviceLostSignal = SIGUSR1;

// Holds SIGINT, SIGTERM and SIGHUP back for RunMpirun. Call before other threads are started.
void BlockSignals();
// One of them that has come meanwhile; 0 when none has.
int PendingSignal();

struct MpirunResult {
  int exit_code = 0;      // 128 + signal when mpirun itself was killed
  int signal = 0;         // the one that was forwarded, else 0
  int killed_by = 0;      // signal that ended mpirun itself, when nobody here sent one
  bool given_up = false;  // it did not end after IPUs were lost, and was killed
};

// Starts mpirun in a process group of its own, behind a keeper (keeper.h), and waits for it.
// Signals are forwarded to the group, and followed by SIGKILL after 10 s. `only_output_from` hides
// the output of all other ranks. Unavailable: it cannot be started.
absl::StatusOr<MpirunResult> RunMpirun(const std::string& path,
                                       const std::vector<std::string>& arguments,
                                       std::optional<uint32_t> only_output_from,
                                       const std::function<void(int pid)>& started);

}  // namespace vpod::launch
