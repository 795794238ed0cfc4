#include "server/rpc/call_guard.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/status.h"
#include "server/rpc/metadata.h"
#include "server/rpc/refusal_log.h"

namespace vpod::rpc {
namespace {

// "/vipuuser.VipuUser/ListPartitions"; a server sees it once.
std::string PathOf(const grpc::AuthMetadataProcessor::InputMetadata& metadata) {
  const auto it = metadata.find(":path");
  return it == metadata.end() ? "" : std::string(it->second.data(), it->second.size());
}

// "vipuuser.VipuUser.ListPartitions" from "/vipuuser.VipuUser/ListPartitions".
std::string MethodOf(const std::string& path) {
  return absl::StrReplaceAll(absl::StripPrefix(path, "/"), {{"/", "."}});
}

bool IsMember(const grpc::AuthContext& context) {
  const auto certificates = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return certificates.size() == 1 &&
         base::IsServerCertificate(std::string(certificates[0].data(), certificates[0].size()));
}

}  // namespace

absl::Status CallGuard::Check(const InputMetadata& metadata,
                              const grpc::AuthContext& context) const {
  VPOD_ASSIGN_OR_RETURN(const controller::Permission permission,
                        controller::PermissionOf(MethodOf(PathOf(metadata))));
  if (permission.rule == controller::Rule::kAnyone) return absl::OkStatus();
  if (permission.rule == controller::Rule::kMember) {
    if (IsMember(context)) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("Only controller and agents may ", permission.words,
                     "; that takes the certificate of a server, and this is a client's."));
  }
  if (authenticate_ == nullptr) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const std::string user, OnlyValue(metadata, kUserIdHeader));
  VPOD_ASSIGN_OR_RETURN(const std::string key, OnlyValue(metadata, kAccessKeyHeader));
  VPOD_ASSIGN_OR_RETURN(const controller::Caller caller, authenticate_(user, key));
  return controller::CheckCaller(permission, caller);
}

grpc::Status CallGuard::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                OutputMetadata*, OutputMetadata*) {
  const absl::Status status = Check(metadata, *context);
  if (!status.ok()) {
    // Interceptors do not see it: the call ends before they begin.
    const std::string user = OnlyValue(metadata, kUserIdHeader).value_or("");
    LogRefusal(WordsOf(PathOf(metadata)), absl::StrCat("user=\"", user, "\""), status);
  }
  return base::ToGrpc(status);
}

std::shared_ptr<grpc::ServerCredentials> GuardedCredentials(const std::optional<base::Tls>& tls,
                                                            Authenticate authenticate) {
  auto credentials = base::ServerCredentials(tls);
  if (tls.has_value())
    credentials->SetAuthMetadataProcessor(std::make_shared<CallGuard>(std::move(authenticate)));
  return credentials;
}

}  // namespace vpod::rpc
