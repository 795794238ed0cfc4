// V-IPU: agents, clusters, allocations and partitions, and the rules between them (spec/vipu.md).
// It uses no gRPC types.
//
// Every change is committed to the store before it is reported, together with its event in the log.
// Partitions are configured asynchronously: the controller keeps telling each agent process what
// changed about its partitions until it confirms; PENDING becomes ACTIVE when all the processes
// that hold IPUs of the partition have confirmed its generation.
//
// The operations on an object are in the file of its name: agents.cc, clusters.cc, allocations.cc,
// partitions.cc, and for users accounts.cc; load.cc reads the state at start, registry.cc listens
// to the agents' processes, health.cc to what they tell of their machines, reconcile.cc keeps them
// informed and partitions' states in step.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"
#include "device/base/version.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "server/controller/events.h"
#include "server/controller/permissions.h"
#include "server/controller/removals.h"
#include "server/controller/state.h"
#include "server/controller/store/store.h"
#include "server/controller/users.h"

namespace vpod::controller {

struct ClusterUnderTest;
struct RightsChange;

using base::kVersion;

// Way to the agents' processes; implemented over gRPC.
class AgentGateway {
 public:
  virtual ~AgentGateway() = default;
  // Sends the configuration; calls `done` once, from any thread, never before returning.
  virtual void Configure(const std::string& endpoint, const vipuagent::ConfigureRequest& request,
                         std::function<void(absl::StatusOr<vipuagent::ConfigureReply>)> done) = 0;
  // The following block for at most some seconds and are called without a lock.
  // Returns a machine's description of itself.
  virtual absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(
      const std::string& endpoint, const std::string& host) = 0;
  // Restarts a machine and clears its errors.
  virtual absl::Status ResetMachine(const std::string& endpoint, const std::string& host) = 0;
  // Exercises one link of a machine.
  virtual absl::StatusOr<vipuagent::TestLinkReply> TestLink(
      const std::string& endpoint, const vipuagent::TestLinkRequest& request) = 0;
  // Brings a fault about.
  virtual absl::Status Inject(const std::string& endpoint,
                              const vipuagent::InjectRequest& request) = 0;
  // The process is not known any more; drops what is kept to reach it.
  virtual void Forget(const std::string& endpoint) = 0;
};

// Whether nobody waits any more for what a long call finds out. Asked before each question to an
// agent, by several threads.
using IsCancelled = std::function<bool()>;

struct ControllerOptions {
  std::chrono::milliseconds agent_poll_interval{1000};  // between heartbeats of an agent
  // Without a sign of life for so long an agent is Down. After half of it the agent is asked.
  std::chrono::milliseconds agent_timeout{5000};
  // Between two Ticks. Later Ticks are the controller's own fault: an agent gets as many Ticks as
  // fit into its timeout.
  std::chrono::milliseconds tick_interval{250};
  std::chrono::milliseconds longest_pause{1000};    // between two Ticks; after a longer one, the
                                                    // controller's own, all timeouts start again
  std::chrono::seconds partition_timeout{300};      // PENDING for longer becomes ERROR
  std::chrono::milliseconds provisioning_delay{0};  // PENDING for at least so long
  std::chrono::seconds removed_status_kept{60};     // REMOVED is answered for so long …
  size_t most_removed_kept = 1024;                  // … of so many partitions, the last ones
  // Another controller has taken over: nothing can be changed any more. Called once.
  std::function<void()> on_fenced = [] {};
  // Machines whose management address is on one of these network interfaces become agents when they
  // register; others when an administrator says so.
  std::vector<std::string> autodiscovery_interfaces;
  std::function<Clock::time_point()> now = [] { return Clock::now(); };
};

// Thread-safe. Calls that change something take the user's id for the log of events.
class Controller {
 public:
  using Clock = controller::Clock;

  // Machines that registered beyond the number of agents, and processes that were refused: twice a
  // POD65536. Machines that fall silent are forgotten.
  static constexpr size_t kMaxUnknownMachines = 32768;

  // Reads the state. The gateway outlives the controller; the store too.
  static absl::StatusOr<std::unique_ptr<Controller>> Create(Store* store, AgentGateway* gateway,
                                                            ControllerOptions options = {});

  // --- Agents ---
  absl::Status CreateAgent(const vipuadmin::CreateAgentRequest& request, const std::string& user);
  absl::Status UpdateAgent(const vipuadmin::UpdateAgentRequest& request, const std::string& user);
  absl::Status ResetAgent(const std::string& id, const std::string& user);
  absl::Status RemoveAgent(const std::string& id, const std::string& user);
  std::vector<vipuadmin::Agent> ListAgents();
  absl::StatusOr<vipuadmin::Agent> GetAgent(const std::string& id);
  // Machines that registered, by address; with `add`, those without an agent become agents.
  absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> DiscoverAgents(bool add,
                                                                         const std::string& user);

  // --- Processes of agents ---
  // Refused are software of another minor version, machines that another living process holds
  // (FailedPrecondition), and more unknown machines than kMaxUnknownMachines (ResourceExhausted).
  // `heard_on` is the network interface of this host over which the call came; empty: unknown.
  absl::Status Register(const vipuagent::RegisterRequest& request,
                        const std::string& heard_on = "");
  std::chrono::milliseconds agent_poll_interval() const { return options_.agent_poll_interval; }
  vipuagent::HeartbeatReply Heartbeat(const vipuagent::HeartbeatRequest& request);

  // --- Clusters and allocations ---
  absl::Status CreateCluster(const vipuadmin::Cluster& cluster, const std::string& user);
  absl::Status UpdateCluster(const vipuadmin::UpdateClusterRequest& request,
                             const std::string& user);
  absl::Status ResetCluster(const std::string& id, const std::string& user);
  absl::Status RemoveCluster(const std::string& id, const std::string& user);
  std::vector<vipuadmin::Cluster> ListClusters();
  absl::StatusOr<vipuadmin::GetClusterReply> GetCluster(const std::string& id);
  // The following changes, those of users and Backup are refused as `check` says.
  absl::Status CreateAllocation(const vipuadmin::Allocation& allocation, const std::string& user,
                                const CallerCheck& check = {});
  absl::Status UpdateAllocation(const vipuadmin::UpdateAllocationRequest& request,
                                const std::string& user, const CallerCheck& check = {});
  absl::Status RemoveAllocation(const std::string& id, const std::string& user,
                                const CallerCheck& check = {});
  std::vector<vipuadmin::Allocation> ListAllocations();
  absl::StatusOr<vipuadmin::Allocation> GetAllocation(const std::string& id);

  // --- Users ---
  // The new user's access key.
  absl::StatusOr<std::string> CreateUser(const vipuadmin::User& user, const std::string& by,
                                         const CallerCheck& check = {});
  std::vector<vipuadmin::User> ListUsers();
  absl::StatusOr<vipuadmin::User> GetUser(const std::string& id);
  // The new access key, or nothing when none was asked for.
  absl::StatusOr<std::string> UpdateUser(const vipuadmin::UpdateUserRequest& request,
                                         const std::string& by, const CallerCheck& check = {});
  // UpdateUser, RemoveUser and UpdateAllocation are refused if they take a user's right to a
  // partition and `jobs` does not say what becomes of the jobs there.
  absl::Status RemoveUser(const std::string& id, const std::string& by,
                          vipuadmin::JobsOfUser jobs = vipuadmin::JOBS_UNDECIDED,
                          const CallerCheck& check = {});
  // The records of users, for services that authenticate callers.
  Users& users() { return *users_; }

  // --- Diagnostics ---
  // Tests cables and links; `row` is called for each test as it is complete, in this thread, until
  // it says false. Cancelled when that or `is_cancelled` ended it.
  absl::Status TestCluster(const vipuadmin::TestClusterRequest& request,
                           const std::function<bool(const vipuadmin::TestClusterReply&)>& row,
                           const IsCancelled& is_cancelled, const std::string& user);
  absl::Status Inject(const vipuadmin::InjectRequest& request, const std::string& user);

  // --- Partitions ---
  // In the allocation named, else in the first by id that the caller may use and that has room.
  absl::StatusOr<std::string> CreatePartition(const vipuuser::CreatePartitionRequest& request,
                                              const Caller& caller, const CallerCheck& check = {});
  // The following calls about one partition are refused as `check` says. If an update
  // leaves them out, size, place and flags keep their values; everything else gets its default
  // again.
  absl::Status UpdatePartition(const vipuuser::UpdatePartitionRequest& request,
                               const Caller& caller, const PartitionCheck& check = {});
  absl::Status ResetPartition(const std::string& id, const std::string& user,
                              const PartitionCheck& check = {});
  absl::Status RemovePartition(const std::string& id, const std::string& user,
                               const PartitionCheck& check = {});
  std::vector<vipuuser::Partition> ListPartitions(bool with_devices = false);
  absl::StatusOr<vipuuser::Partition> GetPartition(const std::string& id,
                                                   const PartitionCheck& check = {});
  // REMOVED for a while after a partition was removed, for callers that could see it before.
  absl::StatusOr<vipuuser::PartitionStatus> GetPartitionStatus(const std::string& id,
                                                               const PartitionCheck& check = {});
  // `gcd` unset: the only one.
  absl::StatusOr<vipuuser::PartitionConfig> GetPartitionConfig(const std::string& id,
                                                               std::optional<uint32_t> gcd,
                                                               const PartitionCheck& check = {});
  // How many of the size could be created in allocations that the caller may use.
  absl::StatusOr<uint32_t> AvailablePartitions(uint32_t size, const Caller& caller);
  // From the machines of allocations that the caller may use, without those that do not answer.
  // Asks one machine after the other, until `is_cancelled`.
  std::vector<vipuuser::IpuAttributes> ListIpuAttributes(const Caller& caller,
                                                         const IsCancelled& is_cancelled);

  absl::StatusOr<std::vector<StoredEvent>> ListEvents(const vipuadmin::ListEventsRequest& request);
  // The bytes of a backup (store/backup.h), and what they are. Changes wait only while the store is
  // copied in memory.
  absl::StatusOr<std::pair<std::string, vipuadmin::BackupSummary>> Backup(
      const std::string& user, const CallerCheck& check = {});

  // FailedPrecondition once another controller has taken over: agents that were configured by one
  // of a higher epoch do not listen to this one any more.
  absl::Status fenced();

  // Ages agents and partitions; called about four times a second.
  void Tick();

 private:
  // A process that wanted to register the machine in vain.
  struct Refused {
    std::string reason;
    Clock::time_point seen;
  };
  struct RemovedPartition {
    vipuuser::PartitionStatus status;
    PartitionAccess access;
    Clock::time_point since;
  };
  // Where to ask about a machine.
  struct MachineAddress {
    std::string agent_id, endpoint, host;
  };

  Controller(Store* store, AgentGateway* gateway, ControllerOptions options);

  // --- Start (load.cc) ---
  absl::Status LoadState();
  // Partitions of stores that an older version wrote have no fabric key: no agent would let anyone
  // use their devices.
  absl::Status GiveMissingKeys() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Rules; called with mutex_ held ---
  // Commits changes and the event that tells of them.
  absl::Status Commit(std::vector<Change> changes, const std::string& object,
                      const std::string& user, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same, with the events and confirmed removals that wait.
  absl::Status CommitWithWaiting(std::vector<Change> changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Commits where a partition is to be, and that it leaves the machines where it is not any more.
  absl::Status CommitMove(const Partition& partition, const store::StoredPartition& next,
                          const std::string& user, std::string text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The same, and who may use an allocation when `users` is not null.
  absl::Status CommitAllocation(std::vector<Change> changes, const std::string& id,
                                const google::protobuf::RepeatedPtrField<std::string>* users,
                                RightsChange change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // UpdateAllocation without what follows for the agents.
  absl::Status ChangeAllocation(const vipuadmin::UpdateAllocationRequest& request,
                                const std::string& user, const CallerCheck& check)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // --- Rights that users lose (rights.cc) ---
  // Notes what a user loses by changing from `before` to `after`; null if the user is removed.
  void AddLosses(const Caller& before, const Caller* after, bool new_key, RightsChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FailedPrecondition if the request does not say what becomes of the jobs concerned, or if nobody
  // is left to take a partition over.
  absl::Status CheckDecided(const RightsChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Commits changes of users with what follows for partitions: those who lose a right may have kept
  // fabric keys and hold leases. Call Reconcile afterwards.
  absl::Status CommitRights(std::vector<Change> changes, const RightsChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Commits the events and confirmed removals that wait.
  absl::Status FlushEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Agent*> FindAgent(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Cluster*> FindCluster(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Allocation*> FindAllocation(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Partition*> FindPartition(const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Partition*> FindPartition(const std::string& id, const PartitionCheck& check)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckAddressFree(const std::string& host, uint32_t port)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The machines that registered; those that `add` says become agents.
  absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> Discover(
      const std::function<bool(const Machine&)>& add, const std::string& user)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds machines of the process that are to be agents without anybody's asking.
  absl::Status AddDiscovered(const Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // FailedPrecondition: to clients UNAVAILABLE means the controller itself.
  static absl::Status Silent(const std::string& agent_id);
  absl::StatusOr<MachineAddress> AddressOf(const Agent& agent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The cluster as it is to be tested; refused while jobs may run there.
  absl::StatusOr<ClusterUnderTest> PrepareTest(const vipuadmin::TestClusterRequest& request);
  // Keeps the row of a test for the metrics.
  void RecordTest(const std::string& cluster_id, const vipuadmin::TestClusterReply& row)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Restarts machines one after the other.
  absl::Status ResetMachines(const std::vector<MachineAddress>& machines)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the agents are there, once each, and free or of that cluster.
  absl::Status CheckMembers(const google::protobuf::RepeatedPtrField<std::string>& agent_ids,
                            const Cluster* cluster) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether partitions can stay where they are when the cluster's agents become these.
  absl::Status CheckPartitionsStay(const Cluster& cluster, const store::StoredCluster& next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether an allocation (null: a new one) may consist of these agents; puts them in order.
  absl::Status CheckAllocationMembers(const Cluster& cluster, const Allocation* allocation,
                                      store::StoredAllocation& next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the partition ACTIVE once it was PENDING for the time that is to be simulated.
  void EndProvisioningDelays() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckAllocationsExist(const vipuadmin::Names& ids)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What follows once the partition's removal is committed.
  void Removed(Partition& partition, store::StoredRemoval removal)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ids of partitions by who created them.
  std::multimap<std::string, std::string> PartitionsByUser() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Completes the requirements and finds a place for them. IPUs of `replaced` count as free.
  absl::Status Plan(store::StoredPartition& partition, Partition* replaced, const Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status PlanIn(const Allocation& allocation, store::StoredPartition& partition,
                      Partition* replaced) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the partition's next generation a number and a key of its own.
  void RaiseGeneration(store::StoredPartition& partition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldestRemoved() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the partition configured again where it is; `text` is for the log.
  absl::Status Renew(Partition& partition, const std::string& user, const std::string& text)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  vipuadmin::Agent DescribeAgent(const Agent& agent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuadmin::Cluster DescribeCluster(const Cluster& cluster) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuadmin::Allocation DescribeAllocation(const Allocation& allocation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuuser::PartitionStatus DescribeStatus(const Partition& partition,
                                           bool with_target_options = true)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Target options come with the devices: long lists are quicker without.
  vipuuser::Partition DescribePartition(const Partition& partition, bool with_devices)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuuser::PartitionConfig DescribeGcd(const Partition& partition, uint32_t gcd)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Processes (registry.cc, health.cc) ---
  // Why the process may not register, if so.
  absl::Status CheckClaims(const vipuagent::RegisterRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Records the refusal in the log of events and for `get agent` of the machines concerned.
  void NoteRefusal(const vipuagent::RegisterRequest& request, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether `other` has taken over from this controller, on a copy of its store.
  bool IsLater(const vipuagent::LaterController& other) const;
  // The end of this controller if the agent's word for a later one is proven. FailedPrecondition.
  absl::Status FenceIfProven(const vipuagent::LaterController& other, const std::string& endpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Proof that a controller of this boot id and epoch has the store or a copy of it. An agent that
  // shows one has been configured by that controller: it cannot make it up.
  std::string ProofOf(const std::string& boot_id, uint64_t epoch) const;
  // The proof of this controller. It goes with each configuration, and is kept, since to make one
  // takes 20 us.
  const std::string& OwnProof() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The end of this controller, also over restarts.
  void Fence(const std::string& how_known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The process runs for the first time, or has restarted.
  void Admit(Process& process, const vipuagent::RegisterRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Silent processes whose machines nobody added, and refusals that are not asked for any more.
  void ForgetUnknownMachines() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SignOfLife Now() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return {options_.now(), ticks_}; }
  // The process has answered; so it lives, even if its heartbeats do not come through for a while.
  void NoteAnswer(Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetUp(Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetDown(Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks processes that have been silent for a while, and sets those Down that have been for the
  // whole timeout.
  void SetSilentDown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives up agents that have not come back in time since the controller started.
  void SetMissing(Clock::time_point awaited_before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Updates the health of machines from a heartbeat, and the states of the partitions affected.
  void SetHealth(Process& process, const vipuagent::HeartbeatRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes over which IPUs of the process nobody can use yet; returns the partitions to which that
  // may matter.
  std::map<std::string, Partition*> SetReleasing(
      Process& process, const google::protobuf::RepeatedPtrField<vipuagent::ReleasingIpu>& ipus)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tidies partitions up whose last client has gone. They stay ACTIVE, and clients' configurations
  // good.
  void AutoReset(const vipuagent::HeartbeatRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the IPUs that processes hold there without a partition of ours, as health.
  vipuagent::HeartbeatRequest UnclaimedOf(const vipuagent::RegisterRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddNames(const Process& process, const vipuagent::HeartbeatRequest& request,
                vipuagent::HeartbeatReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- States and configuration (reconcile.cc) ---
  void SetPending(Partition& partition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // ACTIVE, or RELEASING where kernels of those before still run.
  void SetUsable(Partition& partition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetState(Partition& partition, vipuuser::PartitionState state, Trouble trouble = {},
                const std::string& error = "") ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Updates the partition's state from its processes and machines, whose health was told just now
  // or earlier.
  void UpdateState(Partition& partition, bool health_is_fresh = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A relocatable partition in ERROR moves to IPUs that are well, when there are some.
  void Relocate(Partition& partition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RelocateStranded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Describe(const Partition& partition, vipuagent::AgentPartition& spec)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsDue(const Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  vipuagent::ConfigureRequest NextConfiguration(Process& process)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends what is due. Called without the lock.
  void Reconcile() ABSL_LOCKS_EXCLUDED(mutex_);
  // The process with the request's boot id answered.
  void Configured(const std::string& endpoint, const vipuagent::ConfigureRequest& sent,
                  const absl::StatusOr<vipuagent::ConfigureReply>& reply)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Confirmed(Process& process, const vipuagent::ConfigureRequest& sent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the process is to be sent another configuration at once: one that says something else.
  bool NotConfirmed(Process& process, const vipuagent::ConfigureRequest& sent,
                    const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store* const store_;
  AgentGateway* const gateway_;
  const ControllerOptions options_;
  const std::string boot_id_;
  uint64_t own_proof_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string own_proof_ ABSL_GUARDED_BY(mutex_);  // of that epoch; empty: none was made yet
  const Clock::time_point started_;
  Clock::time_point last_tick_ ABSL_GUARDED_BY(mutex_);
  uint64_t ticks_ ABSL_GUARDED_BY(mutex_) = 0;          // that were done
  SignOfLife listening_since_ ABSL_GUARDED_BY(mutex_);  // without a pause of our own
  std::unique_ptr<Users> users_;  // has a lock of its own, which is taken after this one
  base::Mutex mutex_;
  absl::Status fenced_ ABSL_GUARDED_BY(mutex_);
  State state_ ABSL_GUARDED_BY(mutex_);
  EventLog events_ ABSL_GUARDED_BY(mutex_);
  Removals removals_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;         // the last that was given
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;           // of the last Configure
  uint64_t names_version_ ABSL_GUARDED_BY(mutex_) = 0;      // rises when agents come, go or move
  std::list<Partition*> pending_ ABSL_GUARDED_BY(mutex_);   // longest first
  std::set<std::string> stranded_ ABSL_GUARDED_BY(mutex_);  // relocatable partitions in ERROR
  std::map<std::string, RemovedPartition> removed_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<Clock::time_point, std::string>> removed_order_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Refused> refused_ ABSL_GUARDED_BY(mutex_);  // by machine address
};

// Ids match [A-Za-z0-9][A-Za-z0-9._-]{0,62}: no blank and no bar, since scripts cut columns.
absl::Status CheckId(absl::string_view id);
// Whether an agent can be at the address.
absl::Status CheckAddress(const std::string& host, uint32_t port);

}  // namespace vpod::controller
