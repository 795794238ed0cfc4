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
  // The process itself parses or serializes these messages of the call, so that interceptors see
  // bytes.
  enum class Raw { kNone, kRequests, kAll };

  // Listener and context outlive it; without a listener it tells nobody.
  CallWatch(BoundedListener* listener, const grpc::ServerContextBase& context, Raw raw)
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
  // Bytes of a message of the call's answer, as interceptors see it.
  size_t SizeOfAnswer(const void* message) const;

 private:
  BoundedListener* const listener_;
  const grpc::ServerContextBase& context_;
  const Raw raw_;
  std::string peer_;
  bool busy_ = false;
};

}  // namespace vpod::rpc
