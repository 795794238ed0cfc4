// Admission to the services of a daemon that speaks TLS.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/tls.h"
#include "server/controller/permissions.h"

namespace vpod::rpc {

// Finds the user of an access key; Unauthenticated if it is not the user's.
using Authenticate = std::function<absl::StatusOr<controller::Caller>(
    const std::string& user_id, const std::string& access_key)>;

// Runs before every call of every service, so that no handler can forget it: looks up the call's
// rule (server/controller/permissions.h) and demands a daemon's certificate or a user's key.
// Callers (callers.h) looks at the key again once the message is there. Rules about a partition are
// left to the user service.
class CallGuard : public grpc::AuthMetadataProcessor {
 public:
  // Without `authenticate`, certificates alone count: every client may do what users and
  // administrators do.
  explicit CallGuard(Authenticate authenticate) : authenticate_(std::move(authenticate)) {}

  bool IsBlocking() const override { return authenticate_ != nullptr; }  // it hashes keys
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  absl::Status Check(const InputMetadata& metadata, const grpc::AuthContext& context) const;

  const Authenticate authenticate_;
};

// Credentials of a daemon's end-point: guarded with TLS, open to everyone who reaches it without.
std::shared_ptr<grpc::ServerCredentials> GuardedCredentials(const std::optional<base::Tls>& tls,
                                                            Authenticate authenticate = nullptr);

}  // namespace vpod::rpc
