#include "client/vipu/client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/vipu/connection.h"
#include "device/base/random_id.h"
#include "device/base/sha256.h"
#include "device/base/status.h"

namespace vpod::vipu {
namespace {

using vipuadmin::VipuAdmin;
using vipuuser::VipuUser;

// The one part of a reply that matters.
template <class Reply, class Part>
absl::StatusOr<Part> One(absl::StatusOr<Reply> reply, Part* (Reply::*part)()) {
  if (!reply.ok()) return reply.status();
  return std::move(*((*reply).*part)());
}

// The same for replies that are a list.
template <class Reply, class Message>
absl::StatusOr<std::vector<Message>> All(
    absl::StatusOr<Reply> reply, google::protobuf::RepeatedPtrField<Message>* (Reply::*list)()) {
  if (!reply.ok()) return reply.status();
  auto* messages = ((*reply).*list)();
  return std::vector<Message>(std::make_move_iterator(messages->begin()),
                              std::make_move_iterator(messages->end()));
}

// How long a call waits for a controller that ends during the call and may start again.
constexpr std::chrono::seconds kRestartPatience(5);

// Whether the controller was reached but its answer was lost, which leaves the outcome unknown.
bool AnswerWasLost(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && !IsOfTheStore(status) &&
         !absl::StrContains(status.error_message(), "failed to connect");
}

}  // namespace

struct Client::Impl : Connection {
  using Connection::Connection;
};

Client::Client(ClientConfig config, std::chrono::milliseconds timeout)
    : impl_(std::make_unique<Impl>(std::move(config), timeout)) {}
Client::~Client() = default;

const ClientConfig& Client::config() const { return impl_->config; }

absl::StatusOr<vipuuser::GetServerInfoReply> Client::ServerInfo() {
  return impl_->Call(&VipuUser::Stub::GetServerInfo, {});
}

absl::StatusOr<std::vector<vipuuser::Allocation>> Client::ListAllocations() {
  return All(impl_->Call(&VipuUser::Stub::ListAllocations, {}),
             &vipuuser::ListAllocationsReply::mutable_allocations);
}

absl::StatusOr<std::vector<vipuuser::IpuAttributes>> Client::ListIpuAttributes() {
  return All(impl_->Call(&VipuUser::Stub::ListIpuAttributes, {}),
             &vipuuser::ListIpuAttributesReply::mutable_ipus);
}

absl::StatusOr<std::vector<vipuuser::Partition>> Client::ListPartitions(bool with_devices) {
  vipuuser::ListPartitionsRequest request;
  request.set_with_devices(with_devices);
  return All(impl_->Call(&VipuUser::Stub::ListPartitions, request),
             &vipuuser::ListPartitionsReply::mutable_partitions);
}

absl::StatusOr<vipuuser::Partition> Client::GetPartition(const std::string& id) {
  return One(impl_->Call(&VipuUser::Stub::GetPartition, Named<vipuuser::GetPartitionRequest>(id)),
             &vipuuser::GetPartitionReply::mutable_partition);
}

absl::StatusOr<vipuuser::PartitionStatus> Client::GetPartitionStatus(const std::string& id) {
  return One(impl_->Call(&VipuUser::Stub::GetPartitionStatus,
                         Named<vipuuser::GetPartitionStatusRequest>(id)),
             &vipuuser::GetPartitionStatusReply::mutable_status);
}

absl::StatusOr<vipuuser::PartitionConfig> Client::GetPartitionConfig(const std::string& id,
                                                                     int64_t gcd) {
  auto request = Named<vipuuser::GetPartitionIpuofConfigRequest>(id);
  if (gcd >= 0) request.mutable_gcd_id()->set_id(static_cast<uint32_t>(gcd));
  return One(impl_->Call(&VipuUser::Stub::GetPartitionIpuofConfig, request),
             &vipuuser::GetPartitionIpuofConfigReply::mutable_ipuof_config);
}

absl::Status Client::CreatePartition(vipuuser::CreatePartitionRequest request) {
  VPOD_RETURN_IF_ERROR(base::CheckMayConnect());
  VPOD_RETURN_IF_ERROR(base::CheckUtf8(request));
  if (request.request_id().empty()) request.set_request_id(base::RandomId());
  const auto deadline = std::chrono::system_clock::now() + kRestartPatience;
  bool reached = false;
  while (true) {
    vipuuser::CreatePartitionReply reply;
    const auto outcome = impl_->Make([&](grpc::ClientContext& context, Connection::Stubs& stubs) {
      return stubs.user->CreatePartition(&context, request, &reply);
    });
    reached = reached || AnswerWasLost(outcome.status);
    const absl::Status status = impl_->Ended(outcome);
    if (!absl::IsUnavailable(status) || IsOfTheStore(outcome.status) || !reached) return status;
    if (!impl_->Current()->channel->WaitForConnected(deadline)) return status;
  }
}

absl::Status Client::UpdatePartition(const vipuuser::UpdatePartitionRequest& request) {
  return impl_->Call(&VipuUser::Stub::UpdatePartition, request).status();
}

absl::Status Client::ResetPartition(const std::string& id) {
  return impl_->Call(&VipuUser::Stub::ResetPartition, Named<vipuuser::ResetPartitionRequest>(id))
      .status();
}

absl::Status Client::RemovePartition(const std::string& id) {
  return impl_->Call(&VipuUser::Stub::RemovePartition, Named<vipuuser::RemovePartitionRequest>(id))
      .status();
}

absl::Status Client::Wait(const std::string& id, const Verdict& verdict,
                          const std::function<bool()>& stop) {
  // The published API is asynchronous: clients poll.
  const auto deadline = std::chrono::steady_clock::now() + impl_->timeout;
  auto pause = std::chrono::milliseconds(2);
  while (true) {
    VPOD_ASSIGN_OR_RETURN(const vipuuser::PartitionStatus status, GetPartitionStatus(id));
    if (const auto end = verdict(status); end.has_value()) return *end;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::milliseconds(0)) {
      return absl::DeadlineExceededError(absl::StrCat(
          "No result within ", impl_->Patience(), "; partition is ", StateText(status.state()),
          status.message().empty() ? "." : ": ", status.message()));
    }
    if (stop && stop()) return absl::CancelledError("interrupted");
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(pause, left));
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
}

absl::Status Client::WaitUntilActive(const std::string& id, const std::function<bool()>& stop) {
  const auto verdict = [](const vipuuser::PartitionStatus& status) -> std::optional<absl::Status> {
    if (status.state() == vipuuser::PS_ACTIVE) return absl::OkStatus();
    if (status.state() == vipuuser::PS_PENDING || status.state() == vipuuser::PS_RELEASING)
      return std::nullopt;
    return absl::AbortedError(
        absl::StrCat("Partition is in state ", StateText(status.state()), ": ", status.message()));
  };
  return Wait(id, verdict, stop);
}

absl::Status Client::WaitForState(const std::string& id, vipuuser::PartitionState state) {
  const auto verdict =
      [state](const vipuuser::PartitionStatus& status) -> std::optional<absl::Status> {
    if (status.state() == state) return absl::OkStatus();
    if (status.state() != vipuuser::PS_REMOVED) return std::nullopt;
    return absl::AbortedError("Partition was removed.");
  };
  const absl::Status status = Wait(id, verdict, nullptr);
  return state == vipuuser::PS_REMOVED && absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::Status Client::CreateAgent(const std::string& id, const std::string& host, uint32_t port) {
  auto request = Named<vipuadmin::CreateAgentRequest>(id);
  request.set_host(host);
  request.set_port(port);
  return impl_->Call(&VipuAdmin::Stub::CreateAgent, request).status();
}

absl::StatusOr<std::vector<vipuadmin::Agent>> Client::ListAgents() {
  return All(impl_->Call(&VipuAdmin::Stub::ListAgents, {}),
             &vipuadmin::ListAgentsReply::mutable_agents);
}

absl::StatusOr<vipuadmin::Agent> Client::GetAgent(const std::string& id) {
  return One(impl_->Call(&VipuAdmin::Stub::GetAgent, Named<vipuadmin::GetAgentRequest>(id)),
             &vipuadmin::GetAgentReply::mutable_agent);
}

absl::Status Client::UpdateAgent(const vipuadmin::UpdateAgentRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::UpdateAgent, request).status();
}

absl::Status Client::ResetAgent(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::ResetAgent, Named<vipuadmin::ResetAgentRequest>(id))
      .status();
}

absl::Status Client::RemoveAgent(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::RemoveAgent, Named<vipuadmin::RemoveAgentRequest>(id))
      .status();
}

absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> Client::DiscoverAgents(bool add) {
  vipuadmin::DiscoverAgentsRequest request;
  request.set_add(add);
  return All(impl_->Call(&VipuAdmin::Stub::DiscoverAgents, request),
             &vipuadmin::DiscoverAgentsReply::mutable_agents);
}

absl::Status Client::CreateCluster(const vipuadmin::Cluster& cluster) {
  vipuadmin::CreateClusterRequest request;
  *request.mutable_cluster() = cluster;
  return impl_->Call(&VipuAdmin::Stub::CreateCluster, request).status();
}

absl::StatusOr<std::vector<vipuadmin::Cluster>> Client::ListClusters() {
  return All(impl_->Call(&VipuAdmin::Stub::ListClusters, {}),
             &vipuadmin::ListClustersReply::mutable_clusters);
}

absl::StatusOr<vipuadmin::GetClusterReply> Client::GetCluster(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::GetCluster, Named<vipuadmin::GetClusterRequest>(id));
}

absl::Status Client::UpdateCluster(const vipuadmin::UpdateClusterRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::UpdateCluster, request).status();
}

absl::Status Client::ResetCluster(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::ResetCluster, Named<vipuadmin::ResetClusterRequest>(id))
      .status();
}

absl::Status Client::RemoveCluster(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::RemoveCluster, Named<vipuadmin::RemoveClusterRequest>(id))
      .status();
}

absl::Status Client::TestCluster(
    const vipuadmin::TestClusterRequest& request,
    const std::function<void(const vipuadmin::TestClusterReply&)>& row) {
  return impl_->Stream(&VipuAdmin::Stub::TestCluster, request, row);
}

absl::StatusOr<std::pair<std::string, vipuadmin::BackupSummary>> Client::Backup() {
  std::pair<std::string, vipuadmin::BackupSummary> backup;
  auto& [bytes, summary] = backup;
  const std::function<void(const vipuadmin::BackupReply&)> take = [&](const auto& reply) {
    bytes += reply.data();
    if (reply.has_summary()) summary = reply.summary();
  };
  VPOD_RETURN_IF_ERROR(impl_->Stream(&VipuAdmin::Stub::Backup, vipuadmin::BackupRequest(), take));
  if (summary.bytes() == bytes.size() && summary.sha256() == base::Sha256Hex(bytes)) return backup;
  return absl::DataLossError("The backup did not arrive whole; try again.");
}

absl::Status Client::CreateAllocation(const vipuadmin::Allocation& allocation) {
  vipuadmin::CreateAllocationRequest request;
  *request.mutable_allocation() = allocation;
  return impl_->Call(&VipuAdmin::Stub::CreateAllocation, request).status();
}

absl::StatusOr<std::vector<vipuadmin::Allocation>> Client::ListAllAllocations() {
  return All(impl_->Call(&VipuAdmin::Stub::ListAllocations, {}),
             &vipuadmin::ListAllocationsReply::mutable_allocations);
}

absl::StatusOr<vipuadmin::Allocation> Client::GetAllocation(const std::string& id) {
  return One(
      impl_->Call(&VipuAdmin::Stub::GetAllocation, Named<vipuadmin::GetAllocationRequest>(id)),
      &vipuadmin::GetAllocationReply::mutable_allocation);
}

absl::Status Client::UpdateAllocation(const vipuadmin::UpdateAllocationRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::UpdateAllocation, request).status();
}

absl::Status Client::RemoveAllocation(const std::string& id) {
  return impl_
      ->Call(&VipuAdmin::Stub::RemoveAllocation, Named<vipuadmin::RemoveAllocationRequest>(id))
      .status();
}

absl::StatusOr<std::string> Client::CreateUser(const vipuadmin::User& user) {
  vipuadmin::CreateUserRequest request;
  *request.mutable_user() = user;
  VPOD_ASSIGN_OR_RETURN(auto reply, impl_->Call(&VipuAdmin::Stub::CreateUser, request));
  return std::move(*reply.mutable_access_key());
}

absl::StatusOr<std::vector<vipuadmin::User>> Client::ListUsers() {
  return All(impl_->Call(&VipuAdmin::Stub::ListUsers, {}),
             &vipuadmin::ListUsersReply::mutable_users);
}

absl::StatusOr<vipuadmin::User> Client::GetUser(const std::string& id) {
  return One(impl_->Call(&VipuAdmin::Stub::GetUser, Named<vipuadmin::GetUserRequest>(id)),
             &vipuadmin::GetUserReply::mutable_user);
}

absl::StatusOr<std::string> Client::UpdateUser(const vipuadmin::UpdateUserRequest& request) {
  VPOD_ASSIGN_OR_RETURN(auto reply, impl_->Call(&VipuAdmin::Stub::UpdateUser, request));
  return std::move(*reply.mutable_access_key());
}

absl::Status Client::RemoveUser(const std::string& id, vipuadmin::JobsOfUser jobs) {
  auto request = Named<vipuadmin::RemoveUserRequest>(id);
  request.set_jobs(jobs);
  return impl_->Call(&VipuAdmin::Stub::RemoveUser, request).status();
}

absl::StatusOr<std::vector<vipuadmin::Event>> Client::ListEvents(
    const vipuadmin::ListEventsRequest& request) {
  return All(impl_->Call(&VipuAdmin::Stub::ListEvents, request),
             &vipuadmin::ListEventsReply::mutable_events);
}

absl::Status Client::Inject(const vipuadmin::InjectRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::Inject, request).status();
}

std::string StateText(vipuuser::PartitionState state) {
  const std::string name = vipuuser::PartitionState_Name(state);
  return name.size() > 3 ? name.substr(3) : "UNKNOWN";
}

}  // namespace vpod::vipu
