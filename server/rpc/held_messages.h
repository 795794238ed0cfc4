// Which connections end when the messages that are not complete take too much memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vpod::rpc {

// The incomplete messages of a connection.
struct HeldMessages {
  std::string host;  // of the client
  uint64_t bytes = 0;
};

// Positions of the connections that are to end until the others hold `limit` at most, in that
// order: of the host that holds most, the connection with most, and so on. Somebody who spreads
// messages over many connections so ends none of another host.
std::vector<size_t> ConnectionsToEnd(const std::vector<HeldMessages>& connections, uint64_t limit);

}  // namespace vpod::rpc
