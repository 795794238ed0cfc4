#include "device/base/grpc_connect.h"

#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace vpod::base {
namespace {

// The process that first made a channel; 0: none has.
std::atomic<pid_t> connected_process = 0;

constexpr int kLongestBackoffMs = 1000;

// A call that is never sent, because its channel leads nowhere, ends at its deadline and begins
// again: an event for the callback threads twice a second. It lasts as long as the process, and
// so do the threads.
class Ticker : public grpc::ClientUnaryReactor {
 public:
  Ticker() : channel_(UnconnectedChannel()) {
    const grpc::Slice empty;
    request_ = grpc::ByteBuffer(&empty, 1);  // without a slice it would not be a message
    Start();
  }

  // The call's callbacks follow one another, so that one thread at a time is here.
  void OnDone(const grpc::Status&) override { Start(); }

 private:
  static std::shared_ptr<grpc::Channel> UnconnectedChannel() {
    constexpr int kDayMs = 24 * 60 * 60 * 1000;
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kDayMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kDayMs);
    return grpc::CreateCustomChannel("unix:nowhere", grpc::InsecureChannelCredentials(), arguments);
  }

  void Start() {
    context_.emplace();
    context_->set_wait_for_ready(true);
    context_->set_deadline(std::chrono::system_clock::now() + kTick);
    grpc::GenericStub(channel_).PrepareUnaryCall(&*context_, "/none", {}, &request_, &reply_, this);
    StartCall();
  }

  static constexpr std::chrono::milliseconds kTick{500};  // half of what the threads wait
  const std::shared_ptr<grpc::Channel> channel_;
  std::optional<grpc::ClientContext> context_;
  grpc::ByteBuffer request_, reply_;
};

// Credentials that ask for a certificate of the POD's authority, whatever name it has.
std::shared_ptr<grpc::ChannelCredentials> AnyMember(const Tls& tls) {
  namespace api = grpc::experimental;
  api::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(std::make_shared<api::StaticDataCertificateProvider>(
      tls.ca, std::vector<api::IdentityKeyCertPair>{{tls.key, tls.certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_certificate_verifier(std::make_shared<api::NoOpCertificateVerifier>());
  options.set_check_call_host(false);
  return api::TlsCredentials(options);
}

}  // namespace

void PrepareGrpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr)
    gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

absl::Status CheckMayConnect() {
  const pid_t connected = connected_process.load();
  if (connected == 0 || connected == getpid()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this process was forked from process ", connected,
      ", which had connected to a POD, and cannot do so itself: fork it earlier, or start it "
      "without fork (in Python with the start method spawn)"));
}

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, Peer peer,
                                       const std::optional<Tls>& tls,
                                       grpc::ChannelArguments arguments) {
  PrepareGrpc();
  pid_t none = 0;
  connected_process.compare_exchange_strong(none, getpid());
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // gRPC's own limit is two minutes, in which one who is back would be taken for gone.
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestBackoffMs);
  if (!tls.has_value()) {
    return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
  }
  if (peer == Peer::kSelf) return grpc::CreateCustomChannel(endpoint, AnyMember(*tls), arguments);
  if (peer == Peer::kAgent) arguments.SetSslTargetNameOverride(kAgentName);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls->ca;
  options.pem_cert_chain = tls->certificate;
  options.pem_private_key = tls->key;
  return grpc::CreateCustomChannel(endpoint, grpc::SslCredentials(options), arguments);
}

void KeepCallbackThreads() {
  static Ticker* const ticker = new Ticker;
  (void)ticker;
}

}  // namespace vpod::base
