// A listening socket that bounds what its connections hold. gRPC 1.51 by itself accepts connections
// until the process has no descriptor left, and from then on none (grpc/grpc#20418); this listener
// accepts as many as there are descriptors for, and then closes those that have been idle longest.
// gRPC also buffers a message of any length, whatever its limit, until all of it has come
// (grpc/grpc#43012); if the incomplete messages of all connections exceed a limit, connections of
// the hosts with most of them are closed (held_messages.h). And gRPC sometimes misses that a
// connection with much traffic was reset, and would keep its calls for ever; this listener looks
// for itself.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace vpod::rpc {

struct ConnectionLimits {
  // A client of an agent takes more descriptors than its connection: its process, its streams, the
  // local socket.
  size_t descriptors_per_connection = 3;
  // Bytes of incomplete messages of all connections together: far more than well-behaved clients
  // have on their way.
  uint64_t incomplete_bytes = 64ull << 20;
};

class BoundedListener {
 public:
  // Listens on `address` (host:port; port 0 takes a free one) for the server that `builder` makes,
  // which gives a client five seconds to begin. Connections of lost hosts end
  // (EndConnectionsOfLostHosts). Unavailable if it cannot listen.
  static absl::StatusOr<std::shared_ptr<BoundedListener>> Open(
      const std::string& address, const std::shared_ptr<grpc::ServerCredentials>& credentials,
      grpc::ServerBuilder& builder, ConnectionLimits limits = {});
  ~BoundedListener();
  int port() const;
  // host:port at which processes of this host reach it.
  std::string LocalEndpoint() const;
  // How many it accepts at once, given the descriptors that the process may have now.
  static size_t MostConnections(
      size_t descriptors_per_connection = ConnectionLimits().descriptors_per_connection);
  // Returns how many connections the listener watches: the open ones, and some that ended a moment
  // ago.
  size_t NumConnections() const;
  // Call once the server runs.
  void Start();
  // Accepts no more connections. Call before the server ends.
  void Close();

  // A call on the connection of a peer ("ipv4:127.0.0.1:4711", as gRPC names it) begins or ends;
  // in between the connection is not idle.
  void CallBegins(const std::string& peer);
  void CallEnds(const std::string& peer);
  // gRPC tells of a call of that peer, whether or not it waits for its client afterwards; and has
  // done with it.
  void CallIsKnown(const std::string& peer, bool begins);
  // gRPC delivered a message of `bytes` from that peer, or the headers of a call (0 bytes).
  void MessageDelivered(const std::string& peer, size_t bytes);
  // A message of `bytes` begins to be sent to that peer.
  void MessageSent(const std::string& peer, size_t bytes);
  // Ends the connection of that peer with all its calls. Returns false if there is none, or it has
  // been ended before.
  bool EndConnection(const std::string& peer);

 private:
  struct Impl;
  explicit BoundedListener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vpod::rpc
