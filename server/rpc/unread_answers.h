// Bounds what the clients of a server cost that do not read their answers. A synchronous server
// keeps a thread and the bytes for each such answer, without end; here the connection of the client
// that has not read for longest ends when there are too many answers, or too long ones, and that of
// every client that has not read for too long.
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
