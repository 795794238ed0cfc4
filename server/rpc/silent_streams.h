// Streams of a synchronous service that wait for their client's next message. Each of them holds a
// thread, and gRPC by itself would wait without end. SilentStreams ends the call of a client that
// is silent for too long, and, if too many calls wait, the calls that have waited longest.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/sync_stream.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "server/rpc/eviction_queue.h"

namespace vpod::rpc {

// Thread-safe.
class SilentStreams {
 public:
  explicit SilentStreams(uint64_t most) : waiting_(most) {}

  // The stream's next message, as its Read. False also if the call was ended meanwhile.
  template <class Message>
  bool Read(const grpc::ServerContextBase& context,
            grpc::internal::ReaderInterface<Message>& stream, Message* message) {
    return Wait(context, [&] { return stream.Read(message); });
  }

  // Ends the calls that have waited for `patience`. Call from time to time.
  void EndThoseOlderThan(std::chrono::seconds patience);

 private:
  bool Wait(const grpc::ServerContextBase& context, const std::function<bool()>& read);

  EvictionQueue waiting_;
};

}  // namespace vpod::rpc
