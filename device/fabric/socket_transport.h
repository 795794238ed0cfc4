// The transport over plain sockets: TCP between hosts, abstract Unix sockets on one host. It
// listens only while a job needs it, accepts messages only from senders that know the job's token,
// and writes what arrives only where its own receiver says: no sender can name an address in this
// process. Bytes travel in clear.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/fabric/transport.h"

namespace vpod::fabric {

// Where the senders of a job's messages run.
enum class Reach { kThisHost, kOtherHosts };

// Thread-safe.
class SocketTransport : public Transport {
 public:
  // `host` is the address at which other hosts reach this one. Nothing is opened yet; the receiver
  // is called after the first Open at the earliest. InvalidArgument if the name is unknown.
  static absl::StatusOr<std::unique_ptr<SocketTransport>> Create(const std::string& host,
                                                                 Receiver receiver);
  ~SocketTransport() override;

  // Accepts messages that begin with `token` as long as `open` lives; peers send them to `address`.
  // The first binding of its kind opens the listener and the last one closes it. Each ends its
  // job's connections, in both directions. Unavailable if this host cannot listen at its address.
  struct Binding {
    std::string address;
    std::shared_ptr<void> open;
  };
  absl::StatusOr<Binding> Open(absl::string_view token, Reach reach);

  // The first message of a token to `to` opens a connection. Unavailable if the peer is not there,
  // refuses the token, or takes nothing for ten seconds.
  void Send(const std::string& to, std::string header, absl::Span<const std::byte> payload,
            std::function<void(absl::Status)> sent) override;

 private:
  struct Impl;
  explicit SocketTransport(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace vpod::fabric
