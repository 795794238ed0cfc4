// The transport over gRPC: what travels between hosts when the POD speaks TLS, and the data of link
// tests. It has no listener of its own: messages come to the agent's own end-point, where the call
// guard lets in daemons only.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>
#include <string>

#include "device/base/tls.h"
#include "device/fabric/transport.h"

namespace vpod::rpc {

// The sending side. Keeps one stream to each peer, on a connection of its own, so that the signs of
// life of jobs do not queue behind tensors. Payloads are copied piece by piece as the peer takes
// them: what it has not taken waits in the sender's memory. Thread-safe.
class GrpcTransport : public fabric::Transport {
 public:
  explicit GrpcTransport(std::optional<base::Tls> tls);
  ~GrpcTransport() override;

  // `to` is the host:port of a peer's process. `sent` comes on a thread of gRPC's.
  void Send(const std::string& to, std::string header, absl::Span<const std::byte> payload,
            std::function<void(absl::Status)> sent) override;
  // Cancels the streams and waits for their ends; what waits, and what is sent later, fails.
  void Stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The receiving side of one stream, which lives until gRPC is done with it. The receiver must not
// block. A stream that is no sequence of messages ends with InvalidArgument.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* TakeCargo(fabric::Receiver receiver);

}  // namespace vpod::rpc
