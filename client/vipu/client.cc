#include "client/vipu/client.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "proto/telemetry/v1/telemetry.grpc.pb.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"

namespace vpod::vipu {
namespace {

using vipuadmin::VipuAdmin;
using vipuuser::VipuUser;

template <class Message>
std::vector<Message> ToVector(google::protobuf::RepeatedPtrField<Message>* field) {
  return {std::make_move_iterator(field->begin()), std::make_move_iterator(field->end())};
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(256 << 20);
  // A stopped server must not be hidden by the back-off of another channel's attempt.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

struct Client::Impl {
  explicit Impl(std::string address)
      : address(std::move(address)), connection(std::make_shared<Connection>(this->address)) {}

  struct Connection {
    explicit Connection(const std::string& address)
        : channel(Connect(address)),
          user(VipuUser::NewStub(channel)),
          admin(VipuAdmin::NewStub(channel)) {}
    VipuUser::Stub& Get(VipuUser::Stub*) { return *user; }
    VipuAdmin::Stub& Get(VipuAdmin::Stub*) { return *admin; }

    const std::shared_ptr<grpc::Channel> channel;
    const std::unique_ptr<VipuUser::Stub> user;
    const std::unique_ptr<VipuAdmin::Stub> admin;
  };

  std::shared_ptr<Connection> Current() {
    base::MutexLock lock(mutex);
    return connection;
  }

  // A channel that failed reconnects in its own time (seconds, as nothing polls it between calls);
  // a new one connects when it is next used.
  void Replace(const std::shared_ptr<Connection>& failed) {
    base::MutexLock lock(mutex);
    if (connection == failed) connection = std::make_shared<Connection>(address);
  }

  template <class Stub, class Request, class Reply>
  absl::Status Call(const Client& client,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                    const Request& request, Reply* reply) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + client.timeout_);
    context.AddMetadata("vipu-user-id", client.config_.user_id);
    if (!client.config_.access_key.empty())
      context.AddMetadata("vipu-access-key", client.config_.access_key);
    const std::shared_ptr<Connection> used = Current();
    Stub& stub = used->Get(static_cast<Stub*>(nullptr));
    const grpc::Status status = (stub.*method)(&context, request, reply);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE &&
        status.error_message().rfind("storage", 0) != 0) {
      Replace(used);
      return absl::UnavailableError(
          absl::StrCat("Cannot connect to the V-IPU server at ", client.config_.address(), "."));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      Replace(used);
      return absl::DeadlineExceededError(absl::StrCat("No result within ", client.timeout_.count(),
                                                      " s from the V-IPU server at ",
                                                      client.config_.address(), "."));
    }
    return base::FromGrpc(status);
  }

  const std::string address;
  base::Mutex mutex;
  std::shared_ptr<Connection> connection ABSL_GUARDED_BY(mutex);
};

Client::Client(ClientConfig config, std::chrono::seconds timeout)
    : config_(std::move(config)),
      timeout_(timeout),
      impl_(std::make_unique<Impl>(config_.address())) {}
Client::~Client() = default;

absl::StatusOr<std::string> Client::ServerVersion() {
  vipuuser::GetServerInfoReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuUser::Stub::GetServerInfo, {}, &reply));
  return reply.version();
}

absl::StatusOr<std::vector<vipuuser::Allocation>> Client::ListAllocations() {
  vipuuser::ListAllocationsReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuUser::Stub::ListAllocations, {}, &reply));
  return ToVector(reply.mutable_allocations());
}

absl::StatusOr<std::vector<vipuuser::Partition>> Client::ListPartitions() {
  vipuuser::ListPartitionsReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuUser::Stub::ListPartitions, {}, &reply));
  return ToVector(reply.mutable_partitions());
}

absl::StatusOr<vipuuser::Partition> Client::GetPartition(const std::string& id) {
  vipuuser::GetPartitionRequest request;
  request.set_partition_id(id);
  vipuuser::GetPartitionReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuUser::Stub::GetPartition, request, &reply));
  return std::move(*reply.mutable_partition());
}

absl::StatusOr<vipuuser::PartitionStatus> Client::GetPartitionStatus(const std::string& id) {
  vipuuser::GetPartitionStatusRequest request;
  request.set_partition_id(id);
  vipuuser::GetPartitionStatusReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuUser::Stub::GetPartitionStatus, request, &reply));
  return std::move(*reply.mutable_status());
}

absl::StatusOr<vipuuser::PartitionConfig> Client::GetPartitionConfig(const std::string& id,
                                                                     int64_t gcd) {
  vipuuser::GetPartitionIpuofConfigRequest request;
  request.set_partition_id(id);
  if (gcd >= 0) request.mutable_gcd_id()->set_id(static_cast<uint32_t>(gcd));
  vipuuser::GetPartitionIpuofConfigReply reply;
  VPOD_RETURN_IF_ERROR(
      impl_->Call(*this, &VipuUser::Stub::GetPartitionIpuofConfig, request, &reply));
  return std::move(*reply.mutable_ipuof_config());
}

absl::Status Client::CreatePartition(const vipuuser::CreatePartitionRequest& request) {
  vipuuser::CreatePartitionRequest with_id = request;
  if (with_id.request_id().empty()) with_id.set_request_id(base::RandomId());
  vipuuser::CreatePartitionReply reply;
  return impl_->Call(*this, &VipuUser::Stub::CreatePartition, with_id, &reply);
}

absl::Status Client::UpdatePartition(const vipuuser::PartitionRequirements& requirements) {
  vipuuser::UpdatePartitionRequest request;
  *request.mutable_requirements() = requirements;
  vipuuser::UpdatePartitionReply reply;
  return impl_->Call(*this, &VipuUser::Stub::UpdatePartition, request, &reply);
}

absl::Status Client::ResetPartition(const std::string& id) {
  vipuuser::ResetPartitionRequest request;
  request.set_partition_id(id);
  vipuuser::ResetPartitionReply reply;
  return impl_->Call(*this, &VipuUser::Stub::ResetPartition, request, &reply);
}

absl::Status Client::RemovePartition(const std::string& id) {
  vipuuser::RemovePartitionRequest request;
  request.set_partition_id(id);
  vipuuser::RemovePartitionReply reply;
  return impl_->Call(*this, &VipuUser::Stub::RemovePartition, request, &reply);
}

absl::Status Client::WaitUntilActive(const std::string& id, const std::function<bool()>& stop) {
  // The published API is asynchronous: clients poll.
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  auto pause = std::chrono::milliseconds(2);
  while (true) {
    VPOD_ASSIGN_OR_RETURN(const vipuuser::PartitionStatus status, GetPartitionStatus(id));
    if (status.state() == vipuuser::PS_ACTIVE) return absl::OkStatus();
    if (status.state() != vipuuser::PS_PENDING) {
      return absl::AbortedError(absl::StrCat("Partition is in state ", StateText(status.state()),
                                             ": ", status.message()));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("No result within ", timeout_.count(), " s; partition is PENDING."));
    }
    if (stop && stop()) return absl::CancelledError("interrupted");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
}

absl::Status Client::CreateAgent(const std::string& id, const std::string& host, uint32_t port) {
  vipuadmin::CreateAgentRequest request;
  request.set_id(id);
  request.set_host(host);
  request.set_port(port);
  vipuadmin::CreateAgentReply reply;
  return impl_->Call(*this, &VipuAdmin::Stub::CreateAgent, request, &reply);
}

absl::StatusOr<std::vector<vipuadmin::Agent>> Client::ListAgents() {
  vipuadmin::ListAgentsReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuAdmin::Stub::ListAgents, {}, &reply));
  return ToVector(reply.mutable_agents());
}

absl::StatusOr<vipuadmin::Agent> Client::GetAgent(const std::string& id) {
  vipuadmin::GetAgentRequest request;
  request.set_id(id);
  vipuadmin::GetAgentReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuAdmin::Stub::GetAgent, request, &reply));
  return std::move(*reply.mutable_agent());
}

absl::Status Client::RemoveAgent(const std::string& id) {
  vipuadmin::RemoveAgentRequest request;
  request.set_id(id);
  vipuadmin::RemoveAgentReply reply;
  return impl_->Call(*this, &VipuAdmin::Stub::RemoveAgent, request, &reply);
}

absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> Client::DiscoverAgents() {
  vipuadmin::DiscoverAgentsReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuAdmin::Stub::DiscoverAgents, {}, &reply));
  return ToVector(reply.mutable_agents());
}

absl::Status Client::CreateCluster(const vipuadmin::Cluster& cluster) {
  vipuadmin::CreateClusterRequest request;
  *request.mutable_cluster() = cluster;
  vipuadmin::CreateClusterReply reply;
  return impl_->Call(*this, &VipuAdmin::Stub::CreateCluster, request, &reply);
}

absl::StatusOr<std::vector<vipuadmin::Cluster>> Client::ListClusters() {
  vipuadmin::ListClustersReply reply;
  VPOD_RETURN_IF_ERROR(impl_->Call(*this, &VipuAdmin::Stub::ListClusters, {}, &reply));
  return ToVector(reply.mutable_clusters());
}

absl::Status Client::RemoveCluster(const std::string& id) {
  vipuadmin::RemoveClusterRequest request;
  request.set_id(id);
  vipuadmin::RemoveClusterReply reply;
  return impl_->Call(*this, &VipuAdmin::Stub::RemoveCluster, request, &reply);
}

absl::StatusOr<telemetry::v1::GetPartitionTelemetryReply> GetTelemetry(
    const std::string& endpoint, const std::string& partition_id) {
  const auto stub = telemetry::v1::Telemetry::NewStub(Connect(endpoint));
  telemetry::v1::GetPartitionTelemetryRequest request;
  request.set_partition_id(partition_id);
  telemetry::v1::GetPartitionTelemetryReply reply;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(4));
  const grpc::Status status = stub->GetPartitionTelemetry(&context, request, &reply);
  if (!status.ok()) {
    return absl::UnavailableError(
        absl::StrCat("the agent at ", endpoint, " does not answer: ", status.error_message()));
  }
  return reply;
}

std::string StateText(vipuuser::PartitionState state) {
  const std::string name = vipuuser::PartitionState_Name(state);
  return name.size() > 3 ? name.substr(3) : "UNKNOWN";
}

}  // namespace vpod::vipu
