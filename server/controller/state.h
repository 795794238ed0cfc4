// State of the controller, and the indices over it: agents, clusters, allocations, partitions, and
// the processes that hold the machines. Keeps them in step with each other; the rules for changes
// are in the controller's files by object.
//
// Nothing here grows with the number of IPUs: a partition is a run of its cluster's IPUs, and what
// lies on a machine is found by its position. Not thread-safe: guarded by the controller's lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "device/base/id_order.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "server/controller/permissions.h"
#include "server/controller/placement.h"
#include "server/controller/store/state.pb.h"

namespace vpod::controller {

using Clock = std::chrono::steady_clock;

struct Agent;
struct Allocation;
struct Cluster;
struct Partition;
struct Process;

// What is wrong with a machine or a partition, or for which kernels it waits, is shown to everybody
// in so many bytes; agents write parts of it, which may be longer. The reason of a partition quotes
// that of a machine.
inline constexpr size_t kMostTroubleBytes = 600;
inline constexpr size_t kMostReasonBytes = 700;

// A machine as its process registered it.
struct Machine {
  vipuagent::Machine description;
  Process* process = nullptr;
  Agent* agent = nullptr;       // added for it; null: none
  uint32_t failed_ipus = 0;     // bit i: PCIe id i cannot be used
  uint32_t parity_ipus = 0;     // bit i: PCIe id i loads no program before a parity init
  bool gateway_failed = false;  // GW-Links of it are down
  std::string trouble;          // what is wrong, for people; empty when well
  // IPUs that nobody can use yet because a kernel of one who left still runs, by PCIe id, and the
  // words for it.
  std::map<uint32_t, std::string> releasing;
};

// When something was heard: the time, and how many Ticks the controller had done by then.
struct SignOfLife {
  Clock::time_point time;
  uint64_t ticks = 0;
};

// A process that holds machines.
struct Process {
  std::string endpoint;  // host:port
  std::string boot_id;
  std::string metrics_endpoint;
  // IPUs that it said were held when it registered, for partitions that the controller does not
  // know. Its heartbeats tell of them only once it has taken a configuration.
  vipuagent::HeartbeatRequest unclaimed;
  std::string heard_on;    // the controller's network interface on which it registered
  Clock::time_point seen;  // its last heartbeat
  SignOfLife heard;        // its last heartbeat, or its last answer to a configuration
  bool up = false;
  std::list<Process*>::iterator by_age;  // place in State::processes_by_age while up
  std::vector<Machine*> machines;
  std::unordered_map<std::string, Machine*> machine_by_host;
  std::vector<Machine*> unwell;                  // or with parity errors, as of the last heartbeat
  std::vector<Machine*> releasing;               // with IPUs that are, as last told
  std::map<std::string, Partition*> partitions;  // with IPUs on it

  // --- Its configuration ---
  bool in_flight = false;     // a Configure is under way
  uint64_t sequence = 0;      // of the last Configure that it confirmed; 0: it has to be sent all
  bool was_sent_all = false;  // since it or the controller started
  std::set<std::string> changed;   // partitions that it has to be told of, also those that are gone
  bool one_new_at_a_time = false;  // it refused several together: which of them is found out singly
  std::string put_off;  // partition that it refused and is asked to take again, after the others
  std::unordered_map<std::string, uint64_t> confirmed;  // partition -> generation
};

// An IPU-Machine that an administrator added.
struct Agent {
  store::StoredAgent stored;
  Machine* machine = nullptr;  // null: not registered
  // One that was there before is awaited, and missing when it has not come in time; one that was
  // just added, or moved to another address, may come whenever it likes.
  Clock::time_point awaited_since;
  bool missing = false;
  Cluster* cluster = nullptr;
  Allocation* allocation = nullptr;
  uint32_t position = 0;  // in the cluster's order
};

struct Cluster {
  store::StoredCluster stored;
  std::vector<Agent*> agents;
  std::map<uint32_t, Partition*> partitions;                      // by first IPU
  std::map<std::string, Allocation*, base::IdOrder> allocations;  // the default one too
  Allocation* default_allocation = nullptr;
  uint32_t used_ipus = 0;
  std::map<std::string, vipuadmin::TestClusterReply> last_tests;  // by name

  const std::string& id() const { return stored.id(); }
  uint32_t ipus_per_ild() const;
};

struct Allocation {
  std::string id;
  Cluster* cluster = nullptr;
  bool is_default = false;
  std::vector<uint32_t> positions;  // of its machines in the cluster, rising
  Room room;
  uint32_t num_partitions = 0;

  // Default allocations are hidden while empty.
  bool visible() const { return !is_default || !positions.empty(); }
  // From a position in the room to one in the cluster, and back (UINT32_MAX: not of it).
  uint32_t ToCluster(uint32_t ipu) const;
  uint32_t FromCluster(uint32_t ipu) const;
};

// Why a partition is in ERROR.
enum class Trouble {
  kNone,
  kAgentLost,  // an agent does not answer, or has not come back
  kUnwell,     // hardware of it failed
  kRefused,    // an agent refused its configuration
  kTimeout,    // not configured in time
};

struct Partition {
  store::StoredPartition stored;
  Cluster* cluster = nullptr;
  Allocation* allocation = nullptr;
  vipuuser::PartitionState state = vipuuser::PS_PENDING;
  Trouble trouble = Trouble::kNone;
  std::string last_error;
  Clock::time_point pending_since;
  std::list<Partition*>::iterator pending;  // place in the controller's list while PENDING
  uint64_t room_without_place = 0;  // version of the allocation's room that had none to move to
  // Processes that hold IPUs of it, by its first IPU; complete when `unregistered` is 0.
  std::vector<Process*> holders;
  uint32_t unregistered = 0;  // machines of it that no process registered

  const std::string& id() const { return stored.requirements().id(); }
  uint32_t first() const { return stored.first_ipu(); }
  uint32_t size() const { return stored.requirements().size(); }
};

class State {
 public:
  std::map<std::string, std::unique_ptr<Agent>, base::IdOrder> agents;
  std::map<std::string, std::unique_ptr<Cluster>, base::IdOrder> clusters;
  std::map<std::string, std::unique_ptr<Allocation>, base::IdOrder> allocations;
  std::map<std::string, std::unique_ptr<Partition>, base::IdOrder> partitions;
  std::unordered_map<std::string, std::unique_ptr<Machine>> machines;  // by host:port
  std::map<std::string, std::unique_ptr<Process>> processes;           // by endpoint
  std::list<Process*> processes_by_age;  // those that are up, longest silent first
  std::set<Process*> silent;             // those that are not up
  std::set<std::pair<Clock::time_point, Agent*>> awaited;    // longest first; not those missing
  std::map<std::string, Process*> dirty;                     // those that have to be told something
  std::unordered_map<std::string, Agent*> agent_by_address;  // host:port

  // --- Objects; the caller has checked that they fit ---
  Agent& AddAgent(store::StoredAgent stored);
  void RemoveAgent(Agent& agent);
  // An agent that has registered before is to do so again; has not done so in time.
  void Await(Agent& agent, Clock::time_point now);
  void SetMissing(Agent& agent);
  // The machine at the agent's new address takes the place of the one before.
  void MoveAgent(Agent& agent, const std::string& host, uint32_t port);
  Cluster& AddCluster(store::StoredCluster stored);
  void SetClusterAgents(Cluster& cluster, store::StoredCluster stored);
  void RemoveCluster(Cluster& cluster);
  Allocation& AddAllocation(const store::StoredAllocation& stored);
  void SetAllocationAgents(Allocation& allocation, const store::StoredAllocation& stored);
  void RemoveAllocation(Allocation& allocation);
  Partition& AddPartition(store::StoredPartition stored);
  // Gives the partition another place, or the same again.
  void ReplacePartition(Partition& partition, store::StoredPartition stored);
  void RemovePartition(Partition& partition);

  // --- Processes ---
  Process& AddProcess(const std::string& endpoint);
  // A heartbeat or a registration has come: the process is up.
  void SetSeen(Process& process, const SignOfLife& now);
  // Another sign of life has come, of a process that is up.
  void SetHeard(Process& process, const SignOfLife& now);
  // The process was not heard for too long.
  void SetSilent(Process& process);
  // Nothing is known to be wrong with its machines.
  void ForgetHealth(Process& process);
  // Sets the machines of the process; returns the partitions whose holders changed. Machines that
  // it had before keep their health.
  std::map<std::string, Partition*> SetMachines(
      Process& process, const google::protobuf::RepeatedPtrField<vipuagent::Machine>& descriptions);
  // Forgets the process and its machines, which are not agents.
  void RemoveProcess(Process& process);
  // Has the room of the agent's allocation follow its process's liveness and its machine's health.
  void RefreshService(const Agent& agent);
  // Has every process that holds IPUs of the partition told of it.
  void Touch(const Partition& partition);
  // The same; what they have confirmed counts no more.
  void Reconfirm(const Partition& partition);

  // --- Questions ---
  Agent* FindAgent(const std::string& id) const;
  Cluster* FindCluster(const std::string& id) const;
  Partition* FindPartition(const std::string& id) const;
  // Only those that are visible.
  Allocation* FindAllocation(const std::string& id) const;
  // Partitions with IPUs on the machine at a position of a cluster, by first IPU.
  std::vector<Partition*> PartitionsAt(const Cluster& cluster, uint32_t position) const;
  // Partition of one IPU of an agent, or null.
  Partition* PartitionOfIpu(const Agent& agent, uint32_t pcie_id) const;
  uint32_t FreeIpus(const Agent& agent) const;
  std::vector<Agent*> AgentsOf(const Partition& partition) const;

 private:
  // Connects the agent with the machine at its address; null: there is none.
  void SetMachine(Agent& agent, Machine* machine);
  void Place(Partition& partition);
  void Displace(Partition& partition);
  void FindHolders(Partition& partition);
  void RebuildRoom(Allocation& allocation);
  void RebuildDefault(Cluster& cluster);
};

// "10.1.2.1:8080"
std::string HostPort(const std::string& host, uint32_t port);
// Whether a failure of the machine concerns the partition.
bool Concerns(const Machine& machine, const Partition& partition);
// Returns the facts about the partition that the rules of calls need.
PartitionAccess AccessTo(const Partition& partition);
// Agents of the partition that no process registered.
std::vector<const Agent*> Unregistered(const Partition& partition);
// For which kernels of those who had its IPUs before it waits; empty: for none.
std::string FindReleasing(const Partition& partition);
// "IPU 1" or "IPUs 1 2"; `ipus` has bit i for PCIe id i.
std::string IpusText(uint32_t ipus);
// What initialises the parity of an IPU of a partition.
inline constexpr char kPartitionParityCure[] = "'gc-reset -p', or 'reset partition'";
// "IPU 1 needs a parity init: <cure>."
std::string ParityText(uint32_t ipus, absl::string_view cure);
// Returns which IPUs of the partition need a parity init, and what does it, for the first machine
// that has such IPUs; empty: none.
std::string FindParityError(const Partition& partition);
// Why the partition cannot be used now, from its agents and their machines, and the words for it.
std::pair<Trouble, std::string> FindTrouble(const Partition& partition);

}  // namespace vpod::controller
