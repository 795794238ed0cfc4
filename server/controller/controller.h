// V-IPU: agents, clusters, allocations and partitions, and the rules between them (spec/vipu.md).
// No gRPC type in it.
//
// Every change is committed to the store before it is reported. Partitions are configured
// asynchronously: the controller keeps telling each agent process the whole set of its partitions
// until it confirms; PENDING becomes ACTIVE when all the processes that hold IPUs of the partition
// have confirmed its generation.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "server/controller/store/state.pb.h"
#include "server/controller/store/store.h"

namespace vpod::controller {

inline constexpr char kVersion[] = "1.18.0";

// Way to the agents' processes; implemented over gRPC.
class AgentGateway {
 public:
  virtual ~AgentGateway() = default;
  // Sends the configuration; calls `done` once, from any thread, never before returning.
  virtual void Configure(const std::string& endpoint, const vipuagent::ConfigureRequest& request,
                         std::function<void(absl::Status)> done) = 0;
  // What a machine says of itself. Blocks for at most some seconds; called without a lock.
  virtual absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(
      const std::string& endpoint, const std::string& host) = 0;
};

struct ControllerOptions {
  std::chrono::milliseconds agent_timeout{
      5000};                                     // without a heartbeat for so long an agent is Down
  std::chrono::seconds partition_timeout{300};   // PENDING for longer becomes ERROR
  std::chrono::seconds removed_status_kept{60};  // REMOVED is answered for so long
  std::function<std::chrono::steady_clock::time_point()> now = [] {
    return std::chrono::steady_clock::now();
  };
};

// Thread-safe.
class Controller {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads the state. The gateway outlives the controller.
  static absl::StatusOr<std::unique_ptr<Controller>> Create(std::unique_ptr<Store> store,
                                                            AgentGateway* gateway,
                                                            ControllerOptions options = {});

  // --- Agents ---
  absl::Status CreateAgent(const vipuadmin::CreateAgentRequest& request);
  absl::Status RemoveAgent(const std::string& id);
  std::vector<vipuadmin::Agent> ListAgents();
  absl::StatusOr<vipuadmin::Agent> GetAgent(const std::string& id);
  std::vector<vipuadmin::DiscoveredAgent> DiscoverAgents();
  void Register(const vipuagent::RegisterRequest& request);
  vipuagent::HeartbeatReply Heartbeat(const vipuagent::HeartbeatRequest& request);

  // --- Clusters and allocations ---
  absl::Status CreateCluster(const vipuadmin::Cluster& cluster);
  absl::Status RemoveCluster(const std::string& id);
  std::vector<vipuadmin::Cluster> ListClusters();
  std::vector<vipuuser::Allocation> ListAllocations();

  // --- Partitions ---
  absl::StatusOr<std::string> CreatePartition(const vipuuser::CreatePartitionRequest& request,
                                              const std::string& user);
  absl::Status UpdatePartition(const vipuuser::PartitionRequirements& requirements);
  absl::Status ResetPartition(const std::string& id);
  absl::Status RemovePartition(const std::string& id);
  std::vector<vipuuser::Partition> ListPartitions();
  absl::StatusOr<vipuuser::Partition> GetPartition(const std::string& id);
  absl::StatusOr<vipuuser::PartitionStatus> GetPartitionStatus(const std::string& id);
  absl::StatusOr<vipuuser::PartitionConfig> GetPartitionConfig(const std::string& id,
                                                               absl::StatusOr<uint32_t> gcd);
  absl::StatusOr<uint32_t> AvailablePartitions(uint32_t size);

  // Ages agents and partitions; called about four times a second.
  void Tick();

 private:
  // A machine as its process registered it.
  struct Registration {
    std::string endpoint;
    vipuagent::Machine machine;
  };
  // A process that holds machines.
  struct Endpoint {
    std::string boot_id;
    std::string fabric_address;
    std::string metrics_endpoint;
    Clock::time_point seen;
    bool up = true;
    bool in_flight = false;                     // a Configure is under way
    bool dirty = false;                         // something changed since it was sent
    std::map<std::string, uint64_t> confirmed;  // partition -> generation
  };
  struct Partition {
    store::StoredPartition stored;
    vipuuser::PartitionState state = vipuuser::PS_PENDING;
    std::string last_error;
    Clock::time_point pending_since;
  };

  Controller(std::unique_ptr<Store> store, AgentGateway* gateway, ControllerOptions options);
  absl::Status LoadState();

  // --- Rules; called with mutex_ held ---
  absl::Status CheckAgentsFree(const vipuadmin::Cluster& cluster)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills in every default and checks the requirements against a cluster.
  absl::Status CompleteRequirements(const store::StoredCluster& cluster,
                                    vipuuser::PartitionRequirements& r)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Chooses IPUs for completed requirements; the partition `ignored` counts as absent.
  absl::StatusOr<std::vector<store::StoredIpu>> PlaceIn(const store::StoredCluster& cluster,
                                                        const vipuuser::PartitionRequirements& r,
                                                        const std::string& ignored)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Completes and places, in the named allocation or the first with room.
  absl::StatusOr<std::vector<store::StoredIpu>> Plan(vipuuser::PartitionRequirements& r,
                                                     const std::string& ignored)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Partition*> FindPartition(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // IPUs (agent, PCIe id) in use, with their partitions.
  std::map<std::pair<std::string, uint32_t>, std::string> IpusInUse(const std::string& ignored)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string ClusterOfAgent(const std::string& agent_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Registration* RegistrationOf(const store::StoredAgent& agent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuadmin::Agent DescribeAgent(const store::StoredAgent& agent, bool with_ipus)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuuser::Partition DescribePartition(const Partition& partition, bool with_gcds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuuser::PartitionConfig DescribeGcd(const Partition& partition, uint32_t gcd)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<std::string, std::string> TargetOptions(const store::StoredPartition& partition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Configuration of agents ---
  // Tells a process under which ids its machines are known, if that changed.
  void AddNames(const vipuagent::HeartbeatRequest& request, vipuagent::HeartbeatReply& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::set<std::string> EndpointsOf(const store::StoredPartition& partition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MarkDirty(const std::set<std::string>& endpoints) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The IPUs of a partition and the processes that hold them, as agents are told.
  void AddSlices(const store::StoredPartition& partition, vipuagent::AgentPartition& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuagent::ConfigureRequest ConfigurationOf(const std::string& endpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetPending(Partition& partition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateStates() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends what is dirty. Called without the lock.
  void Reconcile();
  // The process with `boot_id` answered.
  void Configured(const std::string& endpoint, const std::string& boot_id,
                  const vipuagent::ConfigureRequest& sent, const absl::Status& status);

  AgentGateway* const gateway_;
  const ControllerOptions options_;
  const std::string boot_id_;
  base::Mutex mutex_;
  const std::unique_ptr<Store> store_ ABSL_PT_GUARDED_BY(mutex_);
  std::map<std::string, store::StoredAgent> agents_ ABSL_GUARDED_BY(mutex_);
  uint64_t agents_version_ ABSL_GUARDED_BY(mutex_) = 0;  // rises when agents_ changes
  std::map<std::string, store::StoredCluster> clusters_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Partition> partitions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::pair<vipuuser::PartitionStatus, Clock::time_point>> removed_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Registration> registered_ ABSL_GUARDED_BY(mutex_);  // by host:port
  std::map<std::string, Endpoint> endpoints_ ABSL_GUARDED_BY(mutex_);
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Ids match [A-Za-z0-9][A-Za-z0-9._-]{0,62}: no blank and no bar, since scripts cut columns.
absl::Status CheckId(absl::string_view id);

}  // namespace vpod::controller
