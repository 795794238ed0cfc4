// What a client and an agent of the same host send each other to run programs, over a connection
// that the agent's local listener took for runs (server/agent/local_listener.h): one request, then
// its answer, in host order. gRPC takes several times as long for a message of this size.
#pragma once

#include <cstdint>

namespace vpod::shm {

struct RunRequest {
  uint32_t program = 0;
  uint32_t slot = 0;
};

// Followed by `message_bytes` bytes of the error's message.
struct RunAnswer {
  uint64_t cycles = 0;
  uint32_t code = 0;  // absl::StatusCode
  uint32_t message_bytes = 0;
};

// Longer messages are cut.
inline constexpr uint32_t kMaxRunMessageBytes = 2048;

}  // namespace vpod::shm
