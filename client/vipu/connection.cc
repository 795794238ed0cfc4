#include "client/vipu/connection.h"

#include <algorithm>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/connection_failure.h"
#include "device/base/grpc_status.h"

namespace vpod::vipu {
namespace {

using std::chrono::milliseconds;

// Between attempts of a call.
constexpr milliseconds kFirstPause(50), kLongestPause(1000);

// From half of `longest` to all of it, so that clients that were refused together do not return
// together.
milliseconds RandomPart(milliseconds longest) {
  std::random_device random;
  return milliseconds(std::uniform_int_distribution(longest.count() / 2, longest.count())(random));
}

// Where the address comes from, as a sentence with a blank before it.
std::string SourceText(const std::string& source) {
  if (source.empty()) return "";
  if (source == "default")
    return " The address is the default; no flag, variable or file names another.";
  return absl::StrCat(" The address is from ", source, ".");
}

}  // namespace

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

Connection::Outcome Connection::Make(
    const std::function<grpc::Status(grpc::ClientContext&, Stubs&)>& call) {
  const auto deadline = std::chrono::system_clock::now() + timeout;
  for (auto longest = kFirstPause;; longest = std::min(2 * longest, kLongestPause)) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    context.AddMetadata("vipu-user-id", config.user_id);
    // No controller without TLS asks for it, and anybody could read it.
    if (!config.access_key.empty() && config.tls.has_value())
      context.AddMetadata("vipu-access-key", config.access_key);
    const std::shared_ptr<Stubs> used = Current();
    const grpc::Status status = call(context, *used);
    if (!base::IsBusy(status)) return {used, status};
    const auto pause = RandomPart(longest);
    if (std::chrono::system_clock::now() + pause >= deadline) return {used, status};
    std::this_thread::sleep_for(pause);
  }
}

absl::Status Connection::Ended(const Outcome& outcome) {
  const auto& [used, status] = outcome;
  if (base::IsConnectionFailure(status) && !IsOfTheStore(status)) {
    const bool connected = used->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
    Drop(used);
    if (connected && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::DeadlineExceededError(absl::StrCat(
          "No result within ", Patience(), " from the V-IPU server at ", config.address(), "."));
    }
    const std::string why = base::ConnectionFailure(config.tls, config.address(), status);
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("Cannot connect to the V-IPU server at ", config.address(),
                                     ". ", base::AsSentence(why), SourceText(config.source)));
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError(
        absl::StrCat("What listens at ", config.address(),
                     " does not know this call: it is another kind of server, or an older V-IPU "
                     "server.",
                     SourceText(config.source)));
  }
  return base::FromGrpc(status);
}

std::string Connection::Patience() const {
  return absl::StrCat(std::chrono::duration<double>(timeout).count(), " s");
}

}  // namespace vpod::vipu
