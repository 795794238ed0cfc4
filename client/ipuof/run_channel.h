// Runs of a lease over a local connection to its agent (device/shm/run_messages.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"
#include "device/base/units.h"

namespace vpod::ipuof {

// Thread-safe; carries one run at a time.
class RunChannel {
 public:
  // A connection on which the agent awaits runs.
  explicit RunChannel(base::UniqueFd connection);

  // Begins a run, which must then be awaited. False if the channel carries one, or is broken.
  bool Start(uint32_t program, uint32_t slot);
  // The run's result as the agent gives it; nothing if the connection ended first.
  std::optional<absl::StatusOr<base::Cycles>> Await();
  // Ends the connection, and the wait for a run on it.
  void ShutDown();

 private:
  const base::UniqueFd connection_;
  std::atomic<bool> busy_ = false;  // stays true once the connection has ended
};

}  // namespace vpod::ipuof
