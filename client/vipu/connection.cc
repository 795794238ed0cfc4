#include "client/vipu/connection.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"

namespace vpod::vipu {

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address, base::Peer peer,
                                           const std::optional<base::Tls>& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(256 << 20);
  // A stopped server must not be hidden by the back-off of another channel's attempt.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return base::Connect(address, peer, tls, arguments);
}

bool IsOfTheStore(const grpc::Status& status) {
  return absl::StartsWith(status.error_message(), "storage");
}

Connection::Stubs::Stubs(const ClientConfig& config)
    : channel(OpenChannel(config.address(), base::Peer::kController, config.tls)),
      user(vipuuser::VipuUser::NewStub(channel)),
      admin(vipuadmin::VipuAdmin::NewStub(channel)) {}

std::shared_ptr<Connection::Stubs> Connection::Current() {
  base::MutexLock lock(mutex);
  if (stubs == nullptr) stubs = std::make_shared<Stubs>(config);
  return stubs;
}

void Connection::Drop(const std::shared_ptr<Stubs>& failed) {
  base::MutexLock lock(mutex);
  if (stubs == failed) stubs = nullptr;
}

void Connection::Prepare(grpc::ClientContext& context) const {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  context.AddMetadata("vipu-user-id", config.user_id);
  // No controller without TLS asks for it, and anybody could read it.
  if (!config.access_key.empty() && config.tls.has_value())
    context.AddMetadata("vipu-access-key", config.access_key);
}

absl::Status Connection::Ended(const std::shared_ptr<Stubs>& used, const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !IsOfTheStore(status)) {
    Drop(used);
    return absl::UnavailableError(
        absl::StrCat("Cannot connect to the V-IPU server at ", config.address(), ".",
                     base::TlsHint(config.tls, config.address(), status.error_message())));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    Drop(used);
    return absl::DeadlineExceededError(absl::StrCat(
        "No result within ", Patience(), " from the V-IPU server at ", config.address(), "."));
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(absl::StrCat("The V-IPU server at ", config.address(),
                                                 " does not know this call; is it an older one?"));
  }
  return base::FromGrpc(status);
}

std::string Connection::Patience() const {
  return absl::StrCat(std::chrono::duration<double>(timeout).count(), " s");
}

}  // namespace vpod::vipu
