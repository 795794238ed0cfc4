// The transport over UCX: TCP at memory speed on any network, RDMA where a site has it. UCX's own
// environment variables (UCX_TLS, UCX_NET_DEVICES …) have the last word.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "device/fabric/transport.h"

namespace vpod::fabric {

struct UcxOptions {
  // Name or address that peers shall reach us at; chooses the network interface. Empty: UCX
  // chooses.
  std::string host;
  bool tcp_only = false;  // VPOD_TRANSPORT=tcp
};

// InvalidArgument when no interface has the host's address, Unavailable when UCX cannot be started.
// The receiver may be called before this returns.
absl::StatusOr<std::unique_ptr<Transport>> CreateUcxTransport(const UcxOptions& options,
                                                              Receiver receiver);

}  // namespace vpod::fabric
