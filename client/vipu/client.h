// Management client: the controller's calls as plain functions. gRPC stays inside.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/vipu/config.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::vipu {

// Thread-safe. Calls end within `timeout`; an unreachable server gives Unavailable with the message
// "Cannot connect to the V-IPU server at host:port.", the reason, and where the address is from.
class Client {
 public:
  explicit Client(ClientConfig config,
                  std::chrono::milliseconds timeout = std::chrono::seconds(120));
  ~Client();
  const ClientConfig& config() const;

  absl::StatusOr<vipuuser::GetServerInfoReply> ServerInfo();

  // The user end-point: what the user may see and use, for an administrator everything.
  absl::StatusOr<std::vector<vipuuser::Allocation>> ListAllocations();
  absl::StatusOr<std::vector<vipuuser::IpuAttributes>> ListIpuAttributes();
  absl::StatusOr<std::vector<vipuuser::Partition>> ListPartitions(bool with_devices = false);
  absl::StatusOr<vipuuser::Partition> GetPartition(const std::string& id);
  absl::StatusOr<vipuuser::PartitionStatus> GetPartitionStatus(const std::string& id);
  // `gcd` negative: the only one.
  absl::StatusOr<vipuuser::PartitionConfig> GetPartitionConfig(const std::string& id, int64_t gcd);
  // Without a request id it gets one, with which it is asked for again when the answer was lost: a
  // controller that started again within five seconds says what became of it.
  absl::Status CreatePartition(vipuuser::CreatePartitionRequest request);
  absl::Status UpdatePartition(const vipuuser::UpdatePartitionRequest& request);
  absl::Status ResetPartition(const std::string& id);
  absl::Status RemovePartition(const std::string& id);
  // Waits until the partition is no longer PENDING or RELEASING. DeadlineExceeded after the
  // timeout; Aborted when it ended in ERROR; Cancelled when `stop`, asked every tenth of a second,
  // says so.
  absl::Status WaitUntilActive(const std::string& id, const std::function<bool()>& stop = nullptr);
  // Waits until the partition is in the state, whatever comes before; PS_REMOVED: until it is gone.
  // DeadlineExceeded after the timeout; NotFound or Aborted when it is gone and should not be.
  absl::Status WaitForState(const std::string& id, vipuuser::PartitionState state);

  // The administration end-point. PermissionDenied for other users.
  absl::Status CreateAgent(const std::string& id, const std::string& host, uint32_t port);
  absl::StatusOr<std::vector<vipuadmin::Agent>> ListAgents();
  absl::StatusOr<vipuadmin::Agent> GetAgent(const std::string& id);
  absl::Status UpdateAgent(const vipuadmin::UpdateAgentRequest& request);
  absl::Status ResetAgent(const std::string& id);
  absl::Status RemoveAgent(const std::string& id);
  absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> DiscoverAgents(bool add);
  absl::Status CreateCluster(const vipuadmin::Cluster& cluster);
  absl::StatusOr<std::vector<vipuadmin::Cluster>> ListClusters();
  absl::StatusOr<vipuadmin::GetClusterReply> GetCluster(const std::string& id);
  absl::Status UpdateCluster(const vipuadmin::UpdateClusterRequest& request);
  absl::Status ResetCluster(const std::string& id);
  absl::Status RemoveCluster(const std::string& id);
  // Calls `row` for each test as it ends, in this thread.
  absl::Status TestCluster(const vipuadmin::TestClusterRequest& request,
                           const std::function<void(const vipuadmin::TestClusterReply&)>& row);
  absl::Status CreateAllocation(const vipuadmin::Allocation& allocation);
  // With the users of each.
  absl::StatusOr<std::vector<vipuadmin::Allocation>> ListAllAllocations();
  absl::StatusOr<vipuadmin::Allocation> GetAllocation(const std::string& id);
  absl::Status UpdateAllocation(const vipuadmin::UpdateAllocationRequest& request);
  absl::Status RemoveAllocation(const std::string& id);
  // The access key, which cannot be asked for again.
  absl::StatusOr<std::string> CreateUser(const vipuadmin::User& user);
  absl::StatusOr<std::vector<vipuadmin::User>> ListUsers();
  absl::StatusOr<vipuadmin::User> GetUser(const std::string& id);
  // The new access key; empty when none was asked for.
  absl::StatusOr<std::string> UpdateUser(const vipuadmin::UpdateUserRequest& request);
  absl::Status RemoveUser(const std::string& id,
                          vipuadmin::JobsOfUser jobs = vipuadmin::JOBS_UNDECIDED);
  absl::StatusOr<std::vector<vipuadmin::Event>> ListEvents(
      const vipuadmin::ListEventsRequest& request);
  absl::Status Inject(const vipuadmin::InjectRequest& request);
  // The bytes of a backup of the controller's store, complete, and what they are.
  absl::StatusOr<std::pair<std::string, vipuadmin::BackupSummary>> Backup();

 private:
  // Judges a status for Wait, which goes on if there is no verdict.
  using Verdict = std::function<std::optional<absl::Status>(const vipuuser::PartitionStatus&)>;
  absl::Status Wait(const std::string& id, const Verdict& verdict,
                    const std::function<bool()>& stop);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "ACTIVE" from PS_ACTIVE.
std::string StateText(vipuuser::PartitionState state);

}  // namespace vpod::vipu
