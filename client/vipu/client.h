// Management client: the controller's calls as plain functions. gRPC stays inside.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/vipu/config.h"
#include "proto/telemetry/v1/telemetry.pb.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::vipu {

// Thread-safe. Calls end within `timeout`; an unreachable server gives Unavailable with the message
// "Cannot connect to the V-IPU server at host:port." at once.
class Client {
 public:
  explicit Client(ClientConfig config, std::chrono::seconds timeout = std::chrono::seconds(120));
  ~Client();
  const ClientConfig& config() const { return config_; }

  absl::StatusOr<std::string> ServerVersion();

  absl::StatusOr<std::vector<vipuuser::Allocation>> ListAllocations();
  absl::StatusOr<std::vector<vipuuser::Partition>> ListPartitions();
  absl::StatusOr<vipuuser::Partition> GetPartition(const std::string& id);
  absl::StatusOr<vipuuser::PartitionStatus> GetPartitionStatus(const std::string& id);
  // `gcd` negative: the only one.
  absl::StatusOr<vipuuser::PartitionConfig> GetPartitionConfig(const std::string& id, int64_t gcd);
  // Creates; retries of one call carry the same request id.
  absl::Status CreatePartition(const vipuuser::CreatePartitionRequest& request);
  absl::Status UpdatePartition(const vipuuser::PartitionRequirements& requirements);
  absl::Status ResetPartition(const std::string& id);
  absl::Status RemovePartition(const std::string& id);
  // Waits until the partition is no longer PENDING. DeadlineExceeded after the timeout; Aborted
  // when it ended in ERROR.
  // Cancelled when `stop`, asked every tenth of a second, says so.
  absl::Status WaitUntilActive(const std::string& id, const std::function<bool()>& stop = nullptr);

  absl::Status CreateAgent(const std::string& id, const std::string& host, uint32_t port);
  absl::StatusOr<std::vector<vipuadmin::Agent>> ListAgents();
  absl::StatusOr<vipuadmin::Agent> GetAgent(const std::string& id);
  absl::Status RemoveAgent(const std::string& id);
  absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> DiscoverAgents();
  absl::Status CreateCluster(const vipuadmin::Cluster& cluster);
  absl::StatusOr<std::vector<vipuadmin::Cluster>> ListClusters();
  absl::Status RemoveCluster(const std::string& id);

 private:
  struct Impl;
  const ClientConfig config_;
  const std::chrono::seconds timeout_;
  std::unique_ptr<Impl> impl_;
};

// Asks an agent's process (host:port) for the devices of a partition.
absl::StatusOr<telemetry::v1::GetPartitionTelemetryReply> GetTelemetry(
    const std::string& endpoint, const std::string& partition_id);

// "ACTIVE" from PS_ACTIVE.
std::string StateText(vipuuser::PartitionState state);

}  // namespace vpod::vipu
