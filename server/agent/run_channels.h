// Connections over which clients of the same host run programs (device/shm/run_messages.h). A lease
// has one at most, and it ends with the lease.
#pragma once

#include <memory>
#include <string>

#include "device/base/unique_fd.h"
#include "server/agent/agent.h"

namespace vpod::agent {

// Thread-safe. The channels have a few threads of their own, because the start of a run may take
// long: variables that replicas share are compared and copied first. No thread waits for a client
// or for the end of a run.
class RunChannels {
 public:
  // The agent outlives it.
  explicit RunChannels(Agent& agent);
  ~RunChannels();

  // Takes the lease's runs from a connected socket, in place of the socket that it had before.
  void Open(const std::string& lease_id, base::UniqueFd connection);
  // Ends the connection of a lease that has ended.
  void Close(const std::string& lease_id);

 private:
  struct State;
  struct Threads;
  // Runs that end later than this object hold it too.
  const std::shared_ptr<State> state_;
  const std::unique_ptr<Threads> threads_;
};

}  // namespace vpod::agent
