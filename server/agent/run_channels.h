// Connections over which clients of the same host run programs (device/shm/run_messages.h). A lease
// has one at most, and it ends with the lease.
#pragma once

#include <memory>
#include <string>

#include "device/base/unique_fd.h"
#include "server/agent/agent.h"

namespace vpod::agent {

// Thread-safe. Has a few threads of its own, because to begin a run may take long: variables that
// replicas share are compared and copied first. None of them waits for a client or for a run.
class RunChannels {
 public:
  // The agent outlives it.
  explicit RunChannels(Agent& agent);
  ~RunChannels();

  // Takes runs of the lease from a connected socket, and no longer from the one before.
  void Open(const std::string& lease_id, base::UniqueFd connection);
  // The lease has ended.
  void Close(const std::string& lease_id);

 private:
  struct State;
  struct Threads;
  // Runs that end later than this object hold it too.
  const std::shared_ptr<State> state_;
  const std::unique_ptr<Threads> threads_;
};

}  // namespace vpod::agent
