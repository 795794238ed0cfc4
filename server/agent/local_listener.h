// Where the agent serves clients on the same host: an abstract Unix socket. Reaching it proves a
// common host (host names, boot ids and /proc lie in network namespaces). Through it a client binds
// its lease to its process, so that the lease ends with the process even while a forked child keeps
// the sockets open, and receives the stream buffers as shared memory.
//
// Protocol: one request per connection, one operation byte and the 32 characters of the lease id.
// 'B' binds and is answered by 'k'; 'S' asks for the stream segment and is answered by its size (8
// bytes, host order) with the descriptor; 'U', followed by a descriptor along with one byte, makes
// the lease use that segment for its streams and is answered by 'k'; 'R' is answered by 'k', and
// the connection then carries runs of the lease (run_channels.h). The user who first shows the id
// of a lease is the only one who may use it here. 'A', with a job's arena key in place of the lease
// id, is for agents of the same host, and the listener answers its own user alone: with one message
// a unit, its number and the size of its memory (4 and 8 bytes) with the descriptor, and a last one
// without. A refused request closes the connection.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "device/shm/segment.h"
#include "server/agent/agent.h"

namespace vpod::agent {

// Whether the agents with these sockets can share memory: they run as one user of one host. All
// agents of a job come to the same answer. Empty names belong to nobody.
bool OnOneHost(const std::string& socket_name, const std::string& other);

// Fetches the memory of a job's units from the agent that listens on a socket, by global unit.
// Waits for two seconds at most. Unavailable when the agent does not answer; PermissionDenied,
// before the key is shown, when the listener is another user's.
absl::StatusOr<std::vector<std::pair<uint32_t, shm::Segment>>> FetchArenas(
    const std::string& socket_name, const std::string& arena_key);

class LocalListener {
 public:
  // Opens the socket and tells the agent its name and how to watch processes. The agent outlives
  // the listener.
  static absl::StatusOr<std::unique_ptr<LocalListener>> Open(Agent& agent);
  ~LocalListener();

 private:
  struct Impl;
  explicit LocalListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::agent
