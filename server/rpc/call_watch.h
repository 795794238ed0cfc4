// What a server's interceptor tells the listener of the call that it sees.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <string>

#include "server/rpc/bounded_listener.h"

namespace vpod::rpc {

// A call from its beginning to its end; part of an interceptor.
class CallWatch {
 public:
  // Both outlive it; without a listener it tells nobody. `raw`: the process parses the call's
  // messages itself, so that interceptors see bytes.
  CallWatch(BoundedListener* listener, const grpc::ServerContextBase& context, bool raw)
      : listener_(listener), context_(context), raw_(raw) {}
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // Call first in Intercept.
  void See(grpc::experimental::InterceptorBatchMethods& methods);
  // The server has done its part, and waits for the client: the call keeps the connection busy no
  // longer, until it goes on.
  void AwaitClient();
  void GoOn();

  // As gRPC names it; empty until the call has begun.
  const std::string& peer() const { return peer_; }
  // Bytes of a message of the call, as interceptors see it.
  size_t SizeOf(const void* message) const;

 private:
  BoundedListener* const listener_;
  const grpc::ServerContextBase& context_;
  const bool raw_;
  std::string peer_;
  bool busy_ = false;
};

}  // namespace vpod::rpc
