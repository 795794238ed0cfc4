#include "server/rpc/call_guard.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpcpp/support/string_ref.h>

#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/status.h"
#include "server/rpc/metadata.h"
#include "server/rpc/refusal_log.h"

namespace vpod::rpc {
namespace {

using Headers = std::multimap<grpc::string_ref, grpc::string_ref>;
// `is_accepted`: an access key has proved the caller's name.
using Done = std::function<void(const absl::Status&, bool is_accepted)>;

grpc::string_ref TextOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// Whether the peer shows the certificate of a daemon.
bool IsMember(const grpc_auth_context* peer) {
  auto certificates =
      grpc_auth_context_find_properties_by_name(peer, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const grpc_auth_property* first = grpc_auth_property_iterator_next(&certificates);
  return first != nullptr && grpc_auth_property_iterator_next(&certificates) == nullptr &&
         base::IsServerCertificate(std::string(first->value, first->value_length));
}

// Answers whether calls may begin.
class CallGuard {
 public:
  explicit CallGuard(Authenticate authenticate) : authenticate_(std::move(authenticate)) {}

  // Calls `done` once, now or, while a key is tried, later on another thread. `headers` and `peer`
  // are not used afterwards.
  void Check(const std::string& path, const Headers& headers, const grpc_auth_context* peer,
             const Done& done) const {
    if (const absl::Status status = Begin(path, headers, peer, done); !status.ok())
      done(status, /*is_accepted=*/false);
  }

 private:
  // OK if `done` was called or will be.
  absl::Status Begin(const std::string& path, const Headers& headers, const grpc_auth_context* peer,
                     const Done& done) const {
    VPOD_ASSIGN_OR_RETURN(const controller::Permission permission,
                          controller::PermissionOfPath(path));
    if (permission.rule == controller::Rule::kMember && !IsMember(peer)) {
      return absl::PermissionDeniedError(
          absl::StrCat("Only controller and agents may ", permission.words,
                       "; that takes the certificate of a server, and this is a client's."));
    }
    if (!controller::NeedsKey(permission.rule) || authenticate_ == nullptr) {
      done(absl::OkStatus(), /*is_accepted=*/false);
      return absl::OkStatus();
    }
    VPOD_ASSIGN_OR_RETURN(const std::string user, OnlyValue(headers, kUserIdHeader));
    VPOD_ASSIGN_OR_RETURN(const std::string key, OnlyValue(headers, kAccessKeyHeader));
    authenticate_(user, key, [permission, done](const absl::StatusOr<controller::Caller>& caller) {
      done(caller.ok() ? controller::CheckCaller(permission, *caller) : caller.status(),
           caller.ok());
    });
    return absl::OkStatus();
  }

  const Authenticate authenticate_;
};

// A call that waits for the guard. It may outlast the server whose call it was, and keeps gRPC
// itself until it has been answered.
class WaitingCall {
 public:
  WaitingCall(grpc_process_auth_metadata_done_cb done, void* call) : done_(done), call_(call) {
    grpc_init();
  }
  ~WaitingCall() { grpc_shutdown(); }
  WaitingCall(const WaitingCall&) = delete;
  WaitingCall& operator=(const WaitingCall&) = delete;

  void Answer(const absl::Status& status) const {
    const grpc::Status answer = base::ToGrpc(status);
    done_(call_, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(answer.error_code()),
          answer.error_message().c_str());
  }

 private:
  const grpc_process_auth_metadata_done_cb done_;
  void* const call_;
};

// gRPC asks the guard about a call. The C++ interface would run the guard on a pool of threads,
// where a call waits behind the trials of the keys of all other users.
void Process(void* guard, grpc_auth_context* peer, const grpc_metadata* metadata, size_t count,
             grpc_process_auth_metadata_done_cb done, void* call) {
  Headers headers;
  for (size_t i = 0; i < count; ++i)
    headers.emplace(TextOf(metadata[i].key), TextOf(metadata[i].value));
  const auto found = headers.find(":path");
  const std::string path =
      found == headers.end() ? "" : std::string(found->second.data(), found->second.size());
  const auto waiting = std::make_shared<WaitingCall>(done, call);
  // A refused call ends before interceptors see it, so its line is written here.
  std::string user = OnlyValue(headers, kUserIdHeader).value_or("");
  static_cast<CallGuard*>(guard)->Check(
      path, headers, peer,
      [waiting, path, user = std::move(user)](const absl::Status& status, bool is_accepted) {
        if (!status.ok()) LogRefusal(WordsOf(path), CallerField(user, is_accepted), status);
        waiting->Answer(status);
      });
}

void DestroyGuard(void* guard) { delete static_cast<CallGuard*>(guard); }

// TLS with a guard.
class GuardedTls final : public grpc::ServerCredentials {
 public:
  GuardedTls(const base::Tls& tls, Authenticate authenticate) {
    grpc_ssl_pem_key_cert_pair pair{tls.key.c_str(), tls.certificate.c_str()};
    credentials_ = grpc_ssl_server_credentials_create_ex(
        tls.ca.c_str(), &pair, 1, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
        nullptr);
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {Process, DestroyGuard, new CallGuard(std::move(authenticate))});
  }
  ~GuardedTls() override { grpc_server_credentials_release(credentials_); }

  // There is a guard already; nobody is to take its place.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    std::abort();
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> GuardedCredentials(const std::optional<base::Tls>& tls,
                                                            Authenticate authenticate) {
  base::PrepareGrpc();
  if (!tls.has_value()) return grpc::InsecureServerCredentials();
  return std::make_shared<GuardedTls>(*tls, std::move(authenticate));
}

}  // namespace vpod::rpc
