// Bounds the cost of clients that do not read their answers. A synchronous server by itself keeps a
// thread and the bytes of each such answer without end. UnreadAnswers ends the connection of every
// client that has not read for too long and, when unread answers are too many or too large, that of
// the client that has not read for longest.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "server/rpc/bounded_listener.h"
#include "server/rpc/eviction_queue.h"

namespace vpod::rpc {

// Thread-safe. Outlives the servers that it watches.
class UnreadAnswers {
 public:
  // `threads` of the servers serve calls. Half of them may wait for clients.
  explicit UnreadAnswers(uint64_t threads);

  // Says of a method ("/vipuuser.VipuUser/ListPartitions") whether its handler takes and gives
  // bytes instead of messages.
  using IsRaw = bool (*)(absl::string_view method);

  // For a server behind `listener`: watches its answers, and tells the listener of its calls.
  // Without `is_raw` no method is.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Watch(
      std::shared_ptr<BoundedListener> listener, IsRaw is_raw = nullptr);

  // Ends the connections of clients that have not read for `patience`. Call from time to time.
  void EndThoseOlderThan(std::chrono::seconds patience);

 private:
  class Interceptor;
  class Factory;

  const uint64_t weight_;  // of an answer besides its bytes, for its thread
  EvictionQueue answers_;
};

}  // namespace vpod::rpc
