// Bytes between the processes that hold IPUs. A seam: plain sockets (socket_transport.h), calls
// where the POD speaks TLS (server/rpc/grpc_transport.h), a queue in memory for tests.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace vpod::fabric {

// Where an arriving message's payload goes. Without a buffer the payload is dropped.
struct Landing {
  std::byte* buffer = nullptr;
  // Called once, when the payload is there or will never be. Keeps the buffer alive until then.
  std::function<void(absl::Status)> landed;
};

// Called for every message that arrives, on the transport's thread; must not block. `header` is
// valid during the call, `bytes` is the size of the payload that will follow.
using Receiver = std::function<Landing(absl::string_view header, size_t bytes)>;

// Thread-safe. Messages of one sender may overtake each other.
class Transport {
 public:
  // A header begins with a token of so many bytes, which names the job, and is at most this long.
  static constexpr size_t kTokenBytes = 32;
  static constexpr size_t kMaxHeaderBytes = 256;

  virtual ~Transport() = default;
  // Sends to the process with that address, of which each transport has its own kind. `payload`
  // stays valid until `sent`, which is called once, on the transport's thread. After an error what
  // was sent before may be lost too; the next message connects again.
  virtual void Send(const std::string& to, std::string header, absl::Span<const std::byte> payload,
                    std::function<void(absl::Status)> sent) = 0;
};

}  // namespace vpod::fabric
