// Admission to the services of a daemon that speaks TLS.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "device/base/tls.h"
#include "server/controller/permissions.h"

namespace vpod::rpc {

// Finds the user of an access key and tells `done`, at once or later on another thread;
// Unauthenticated if the key is not the user's.
using Authenticate =
    std::function<void(const std::string& user_id, const std::string& access_key,
                       const std::function<void(const absl::StatusOr<controller::Caller>&)>& done)>;

// Credentials of a daemon's end-point. Without TLS it is open to everyone who reaches it. With TLS
// only clients with a certificate of the POD's authority are let in, and a guard looks at every
// call of every service before its handler, so that no handler can forget it. The guard looks up
// the call's rule (server/controller/permissions.h) and demands a daemon's certificate or a user's
// key. Callers (callers.h) looks at the key again once the message is there. Rules about a
// partition are left to the user service. Without `authenticate`, certificates alone count: every
// client may do what users and administrators do.
std::shared_ptr<grpc::ServerCredentials> GuardedCredentials(const std::optional<base::Tls>& tls,
                                                            Authenticate authenticate = nullptr);

}  // namespace vpod::rpc
