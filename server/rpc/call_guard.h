// Who is let in to the services of a daemon that speaks TLS.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "device/base/tls.h"
#include "server/controller/users.h"

namespace vpod::rpc {

// Stands before every call of every service, so that no handler can forget it: looks up the call's
// rule (server/controller/permissions.h), demands a daemon's certificate or a user's key, and keeps
// the key from the handlers. What a rule says of a partition is left to the user service.
class CallGuard : public grpc::AuthMetadataProcessor {
 public:
  // Without `users`, certificates alone count: every client may do what users and administrators
  // do. The users outlive the guard.
  explicit CallGuard(controller::Users* users) : users_(users) {}

  bool IsBlocking() const override { return users_ != nullptr; }  // hashes keys
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  absl::Status Check(const InputMetadata& metadata, const grpc::AuthContext& context) const;

  controller::Users* const users_;
};

// Credentials of a daemon's end-point: guarded with TLS, open to everyone who reaches it without.
std::shared_ptr<grpc::ServerCredentials> GuardedCredentials(const std::optional<base::Tls>& tls,
                                                            controller::Users* users);

}  // namespace vpod::rpc
