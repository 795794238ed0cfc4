// The agent's door for clients on the same host: an abstract Unix socket. Reaching it proves a
// common host (host names, boot ids and /proc lie in network namespaces). Through it a client binds
// its lease to its process, so that the lease ends with the process even while a forked child keeps
// the sockets open, and receives the stream buffers as shared memory.
//
// Protocol: one request per connection, one operation byte and the 32 characters of the lease id.
// 'B' binds and is answered by 'k'; 'S' asks for the stream segment and is answered by its size (8
// bytes, host order) with the descriptor. A refused request closes the connection.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/agent/agent.h"

namespace vpod::agent {

class LocalDoor {
 public:
  // Opens the door and tells the agent its name and how to watch processes. The agent outlives the
  // door.
  static absl::StatusOr<std::unique_ptr<LocalDoor>> Open(Agent& agent);
  ~LocalDoor();

 private:
  struct Impl;
  explicit LocalDoor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::agent
