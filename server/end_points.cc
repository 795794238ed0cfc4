#include "server/end_points.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "server/rpc/refusal_log.h"

namespace vpod {
namespace {

// Threads of all end-points together. A call holds one while it is processed. The number is below
// TasksMax of the unit.
constexpr int kThreads = 256;
// Calls under way on one connection; further ones wait at the client.
constexpr int kCallsPerConnection = 100;
constexpr int kLookaheadBytes = 64 << 10;
// How long an answer waits for its client, which may have been stopped, or have lost its host.
constexpr std::chrono::seconds kReaderPatience{30};

}  // namespace

EndPoints::EndPoints(const ServerOptions& options, rpc::ControllerServices& services,
                     http::RequestCounter& requests, engine::Executors& executors)
    : options_(options), services_(services), requests_(requests), unread_(kThreads) {
  quota_.SetMaxThreads(kThreads);
  ticker_ = executors.Every(std::chrono::seconds(1),
                            [this] { unread_.EndThoseOlderThan(kReaderPatience); });
}

EndPoints::~EndPoints() {
  ticker_ = nullptr;
  for (const EndPoint& each : end_points_) each.listener->Close();
  const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(200);
  for (const EndPoint& each : end_points_) each.server->Shutdown(deadline);
}

absl::Status EndPoints::Open(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  VPOD_RETURN_IF_ERROR(Listen(options_.user_listen, credentials, [&](grpc::ServerBuilder& builder) {
    services_.RegisterUser(builder);
    if (options_.OneSocket()) services_.RegisterAdmin(builder);
  }));
  if (options_.OneSocket()) return absl::OkStatus();
  return Listen(options_.admin_listen, credentials,
                [&](grpc::ServerBuilder& builder) { services_.RegisterAdmin(builder); });
}

std::vector<rpc::Liveness::Question> EndPoints::Questions() const {
  // The registry does not know the agent that sends this heartbeat, and says so.
  static constexpr const char* kMethods[] = {"/vipuuser.VipuUser/GetServerInfo",
                                             "/vipuagent.VipuRegistry/Heartbeat"};
  std::vector<rpc::Liveness::Question> questions;
  for (size_t i = 0; i < end_points_.size(); ++i)
    questions.push_back({end_points_[i].listener->LocalEndpoint(), kMethods[i]});
  return questions;
}

absl::Status EndPoints::Listen(const std::string& address,
                               const std::shared_ptr<grpc::ServerCredentials>& credentials,
                               const std::function<void(grpc::ServerBuilder&)>& add_services) {
  grpc::ServerBuilder builder;
  // A third of the descriptors serves connections, whatever the number of end-points.
  const rpc::ConnectionLimits limits = {
      .descriptors_per_connection = options_.OneSocket() ? 3u : 6u, .incomplete_bytes = 128 << 20};
  VPOD_ASSIGN_OR_RETURN(auto listener,
                        rpc::BoundedListener::Open(address, credentials, builder, limits));
  builder.SetResourceQuota(quota_);
  builder.SetSyncServerOption(
      grpc::ServerBuilder::SyncServerOption::NUM_CQS,
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsPerConnection);
  // gRPC accepts this much of a message at once, and the rest when the call is read. By default it
  // would accept all that a fast client sends before the call is refused.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  add_services(builder);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> watchers;
  watchers.push_back(unread_.Watch(listener));
  watchers.push_back(requests_.Watch());
  watchers.push_back(rpc::LogRefusedCalls(options_.secure));
  builder.experimental().SetInterceptorCreators(std::move(watchers));
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::UnavailableError(absl::StrCat("cannot serve on ", address));
  listener->Start();
  end_points_.push_back({std::move(listener), std::move(server)});
  return absl::OkStatus();
}

}  // namespace vpod
