#include "server/announcer.h"

#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <map>
#include <utility>

#include "device/base/connection_failure.h"
#include "device/base/grpc_connect.h"
#include "device/base/thread_priority.h"
#include "device/base/version.h"

namespace vpod {

namespace {

// LimitNICE of the units permits it.
constexpr int kNice = -10;
// How long a call may take. A call that hangs and the next one, on a new connection, fit into the
// controller's default timeout, which is five seconds; on a busy machine a call takes longer than
// on another, and its next attempt, too.
constexpr std::chrono::seconds kPatience{3};

}  // namespace

Announcer::Announcer(const Options& options, const std::optional<base::Tls>& tls,
                     agent::Agent& agent)
    : controller_(options.controller), tls_(tls), agent_(agent) {
  registration_.set_endpoint(options.endpoint);
  registration_.set_metrics_endpoint(options.metrics_endpoint);
  registration_.set_boot_id(agent.boot_id());
  registration_.set_version(base::kVersion);
  for (vipuagent::Machine& machine : agent.DescribeMachines())
    *registration_.add_machines() = std::move(machine);
  thread_ = std::thread([this] { Loop(); });
}

Announcer::~Announcer() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
    changed_.notify_all();
  }
  thread_.join();
}

void Announcer::Loop() {
  if (!base::SetThreadNice(kNice)) spdlog::debug("heartbeats have the priority of clients' calls");
  grpc::StatusCode state = grpc::StatusCode::OK;
  bool registered = false;
  auto stub = Connect();
  while (true) {
    // A process that hangs is silent.
    const grpc::Status status = agent_.gate().closed() ? grpc::Status::OK : Call(*stub, registered);
    if (IsStopping()) return;
    if (std::exchange(state, status.error_code()) != status.error_code()) Log(status);
    // A channel that failed reconnects ever more rarely, a new one at once.
    if (!status.ok()) stub = Connect();
    const bool at_once = status.ok() && !registered && !agent_.gate().closed();
    const auto pause = at_once       ? std::chrono::milliseconds(0)
                       : status.ok() ? interval_
                                     : std::chrono::milliseconds(1000);
    const auto next = std::chrono::steady_clock::now() + pause;
    base::MutexLock lock(mutex_);
    if (lock.WaitUntil(changed_, next, [&] { return stopping_; })) return;
  }
}

bool Announcer::IsStopping() {
  base::MutexLock lock(mutex_);
  return stopping_;
}

void Announcer::Log(const grpc::Status& status) const {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return spdlog::info("connected to the controller");
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return spdlog::error("refused by the controller: {}", status.error_message());
    default:
      return spdlog::info("no connection to the controller: {}",
                          base::IsConnectionFailure(status)
                              ? base::ConnectionFailure(tls_, controller_, status)
                              : status.error_message());
  }
}

grpc::Status Announcer::Call(vipuagent::VipuRegistry::Stub& stub, bool& registered) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  {
    base::MutexLock lock(mutex_);
    if (stopping_) return grpc::Status::CANCELLED;
    call_ = &context;
  }
  const grpc::Status status = Announce(context, stub, registered);
  base::MutexLock lock(mutex_);
  call_ = nullptr;
  return status;
}

grpc::Status Announcer::Announce(grpc::ClientContext& context, vipuagent::VipuRegistry::Stub& stub,
                                 bool& registered) {
  if (!registered) {
    agent_.DescribeState(registration_);
    vipuagent::RegisterReply reply;
    const grpc::Status status = stub.Register(&context, registration_, &reply);
    registered = status.ok();
    if (reply.heartbeat_interval_ms() > 0)
      interval_ = std::chrono::milliseconds(reply.heartbeat_interval_ms());
    names_version_.clear();
    // Another process has its machines. Jobs go on here; new ones attach there.
    if (status.error_code() == grpc::StatusCode::ALREADY_EXISTS) agent_.Disown();
    return status;
  }
  vipuagent::HeartbeatRequest request;
  request.set_endpoint(registration_.endpoint());
  request.set_boot_id(registration_.boot_id());
  request.set_names_version(names_version_);
  request.set_configure_sequence(agent_.configure_sequence());  // before what follows from it
  for (vipuagent::MachineHealth& health : agent_.Unwell())
    *request.add_unwell() = std::move(health);
  for (const auto& [partition, generation] : agent_.Detached()) {
    request.add_detached_partitions(partition);
    request.add_detached_generations(generation);
  }
  for (vipuagent::ReleasingIpu& ipu : agent_.Releasing()) *request.add_releasing() = std::move(ipu);
  vipuagent::HeartbeatReply reply;
  const grpc::Status status = stub.Heartbeat(&context, request, &reply);
  registered = !reply.register_();
  if (status.ok() && registered && reply.names_version() != names_version_) TakeNames(reply);
  return status;
}

void Announcer::TakeNames(const vipuagent::HeartbeatReply& reply) {
  std::map<std::string, std::string> id_by_host;
  for (const vipuagent::MachineName& name : reply.names())
    id_by_host[name.host()] = name.agent_id();
  agent_.SetAgentIds(std::move(id_by_host));
  names_version_ = reply.names_version();
}

std::unique_ptr<vipuagent::VipuRegistry::Stub> Announcer::Connect() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return vipuagent::VipuRegistry::NewStub(
      base::Connect(controller_, base::Peer::kController, tls_, arguments));
}

}  // namespace vpod
