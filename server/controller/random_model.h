// A model of V-IPU's rules for the random-operation test: what spec/vipu.md says, written a second
// time in the plainest way (every IPU by itself, everything looked for from the beginning), knowing
// nothing of how the controller does it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace vpod::controller {

// The real state of an agent process, whatever the controller knows of it.
struct ModelProcess {
  std::string boot;
  bool alive = true;
  bool slow = false;                       // answers no Configure
  std::set<std::string> hosts;             // its machines
  std::map<std::string, uint32_t> failed;  // failed IPUs of a machine, by PCIe id
  std::set<std::string> gateways_down;     // machines whose GW-Links are down
  std::set<std::string> rejects;           // partitions it refuses
  std::map<std::string, uint64_t> view;    // partitions it was told, with generations
};

class Model {
 public:
  using Code = absl::StatusCode;
  enum State { kPending, kActive, kError };
  enum Cause { kNone, kLost, kSick, kRefused, kTimeout };

  struct Wanted {
    std::string id;
    uint32_t size = 1, gcds = 0;
    std::string allocation, cluster, routing;
    std::optional<bool> reconfigurable;
    std::optional<uint32_t> index;
    std::optional<bool> relocatable, no_auto_reset;
    std::string request_id;
  };
  struct Partition {
    Wanted wanted;  // completed
    uint32_t first = 0;
    uint64_t generation = 0;
    State state = kPending;
    Cause cause = kNone;
    int64_t pending_since = 0;
  };
  struct Cluster {
    std::vector<std::string> agents;
    uint32_t ilds = 1;
    bool torus = false, gateways = false;
  };
  struct Allocation {
    std::string cluster;
    std::set<std::string> agents;
  };
  // A process as the controller knows it.
  struct Known {
    std::string boot;
    std::set<std::string> hosts;
    bool up = true;
    int64_t seen = 0;
    bool may_be_told = false;  // once is for ever
    std::map<std::string, uint64_t> told;
  };

  // --- Commands: the code that the controller must answer; on kOk the model has changed ---
  Code CreateAgent(const std::string& id, const std::string& host);
  Code UpdateAgent(const std::string& id, const std::string& host);
  Code RemoveAgent(const std::string& id);
  // All machines become agents; `ids` as the controller chose them, by host.
  void DiscoverAgents(const std::map<std::string, std::string>& ids);
  Code CreateCluster(const std::string& id, const Cluster& cluster);
  Code UpdateCluster(const std::string& id, const std::vector<std::string>& agents);
  Code RemoveCluster(const std::string& id);
  Code CreateAllocation(const std::string& id, const Allocation& allocation);
  Code UpdateAllocation(const std::string& id, const std::set<std::string>& agents);
  Code RemoveAllocation(const std::string& id);
  Code CreatePartition(Wanted wanted);
  Code UpdatePartition(Wanted wanted);
  Code ResetPartition(const std::string& id);
  Code RemovePartition(const std::string& id);

  // --- The world ---
  void Registered(const std::string& process, const ModelProcess& world);
  // The controller was restarted.
  void Restarted();
  // All that live send heartbeats; then the controller ticks; then those not slow are told.
  void Heartbeats(const std::map<std::string, ModelProcess>& world);
  void Tick(const std::map<std::string, ModelProcess>& world);
  void Told(const std::map<std::string, ModelProcess>& world);
  // Whether the process must know exactly its partitions now.
  bool MustKnowAll(const std::string& process, const ModelProcess& world) const;
  // Partitions with IPUs on the process's machines that it should have been told, with generations.
  std::map<std::string, uint64_t> PartitionsOf(const std::string& process) const;

  // --- Questions ---
  std::set<std::string> AgentsOfAllocation(const std::string& id) const;  // default ones too
  std::vector<std::string> Allocations() const;                           // visible ones
  std::string StatusOf(const std::string& agent) const;
  uint32_t FreeIpus(const std::string& agent) const;
  // "agent:pcie" of a partition's IPUs in order.
  std::vector<std::string> Ipus(const Partition& partition) const;

  int64_t now = 0, started = 0;  // milliseconds
  uint64_t generation = 0;
  std::map<std::string, std::string> agents;  // id -> host
  std::map<std::string, Cluster> clusters;
  std::map<std::string, Allocation> allocations;  // without the default ones
  std::map<std::string, Partition> partitions;
  std::map<std::string, Known> known;

 private:
  bool MayBeTold(const std::string& process) const;
  std::string ClusterOf(const std::string& agent) const;
  std::string AllocationOf(const std::string& agent) const;
  std::vector<std::string> AgentsOf(const Partition& partition) const;
  std::string ProcessOf(const std::string& agent) const;
  bool AgentLost(const std::string& agent) const;
  std::string PartitionOf(const std::string& agent, uint32_t pcie_id) const;
  bool Usable(const std::string& agent, uint32_t pcie_id) const;
  bool HasGateway(const std::string& agent) const;
  static uint32_t IpusPerIld(const Cluster& cluster);
  Code Complete(const Cluster& cluster, Wanted& wanted) const;
  Code Place(const std::string& allocation, const Wanted& wanted, const std::string& replaced,
             uint32_t& first) const;
  Code Plan(Wanted& wanted, const std::string& replaced, uint32_t& first) const;
  Code CheckMembers(const std::string& cluster, const std::string& allocation,
                    const std::set<std::string>& agents) const;
  Code CheckShape(const Cluster& cluster) const;
  bool Lost(const Partition& partition) const;
  bool Sick(const Partition& partition) const;
  bool Confirmed(const Partition& partition) const;
  // Confirmations of partitions on these machines count no more.
  void Reconfirm(const std::set<std::string>& hosts);
  void SetPending(Partition& partition);
  void Follow(bool fresh);
  void Relocate(Partition& partition);

  std::map<std::string, std::map<std::string, uint32_t>>
      failed_;                                                  // as told: process -> host -> mask
  std::map<std::string, std::set<std::string>> gateways_down_;  // as told: process -> hosts
  // Agents that were there before the controller was restarted, and those of them that have not
  // registered in time.
  std::set<std::string> awaited_, missing_;
};

}  // namespace vpod::controller
