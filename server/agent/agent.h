// State and decisions of an agent process: its machines, the partitions on them, the holders of
// IPUs, and the jobs that run there. It uses no gRPC types; server/rpc adapts it.
//
// Threads: every method may be called from any thread. Callbacks run on an executor's thread or on
// the caller's, never with a lock held, and must not block.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/arch/device_id.h"
#include "device/base/device_use.h"
#include "device/base/mutex.h"
#include "device/base/random_id.h"
#include "device/base/unique_fd.h"
#include "device/engine/engine.h"
#include "device/engine/executors.h"
#include "device/fabric/collectives.h"
#include "device/fabric/socket_transport.h"
#include "device/fabric/transport.h"
#include "device/machine/machine.h"
#include "device/shm/segment.h"
#include "proto/ipuof/v1/ipuof.pb.h"
#include "proto/telemetry/v1/telemetry.pb.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "server/agent/hang_gate.h"
#include "server/agent/job_links.h"
#include "server/agent/link_arrivals.h"
#include "server/agent/machine_reading.h"
#include "server/agent/peers.h"

namespace vpod::agent {

// Memory of units: descriptors and sizes, by global unit.
using UnitArenas = std::vector<std::pair<uint32_t, std::pair<base::UniqueFd, uint64_t>>>;

struct MachineTraffic;
class Wiring;

inline constexpr uint32_t kMostMachines = 65534;  // of a POD: addresses that a prefix has

struct AgentOptions {
  uint32_t num_machines = 1;
  std::string machine_type = "m2000";
  uint64_t memory_limit_bytes = 16ull << 30;  // host memory of all loaded programs together
  int compute_threads = 0;                    // 0: one a core
  // Number of the first in its POD, which tells boards apart. Without one, machines of the prefixes
  // begin at 0, and one with an address of its own has a number made of that.
  std::optional<uint32_t> first_machine;
  std::string management_prefix = "127.10";  // machine m has <prefix>.<two octets of m+1>
  std::string data_prefix = "127.11";
  // Addresses of the only machine, as on a host of its own; empty: by the prefixes.
  std::string management_ip, data_ip;
  std::chrono::milliseconds wait_patience{4500};  // before those who wait are told for whom
  std::chrono::milliseconds peer_patience{4000};  // with a silent part of a job on another process
  std::chrono::milliseconds bind_patience{
      3000};  // with a client that is to bind its lease; below attach_patience
  // Attaches wait this long for kernels whose owner has left; then they are refused.
  std::chrono::milliseconds attach_patience{4500};
  // A reset waits this long for them, and then says what it waited for. Below the controller's
  // patience of 3 s.
  std::chrono::milliseconds reset_patience{2000};
  std::string transport;  // shm or tcp forces how processes exchange tensors; empty: what serves
  // The POD speaks TLS: tensors that leave shared memory go by calls.
  bool encrypted_fabric = false;
  // Jobs that would send tensors to other hosts in clear are refused.
  bool require_encrypted_fabric = false;
};

// Events for a client that holds a lease.
struct LeaseEvents {
  std::function<void(const ipuof::v1::AttachEvent&)> on_event;
  // The lease was ended by the agent (partition removed or reset); nothing follows.
  std::function<void(const absl::Status&)> on_revoked;
  // The client showed the fabric key of `user`; empty for the partition's own secret. Called before
  // the attach is answered or refused, and again whenever a waiting attach is tried again.
  std::function<void(const std::string& user)> on_admitted;
};

class Agent {
 public:
  using AttachDone = std::function<void(absl::StatusOr<ipuof::v1::Attached>)>;
  using RunDone = std::function<void(absl::StatusOr<base::Cycles>)>;

  static absl::StatusOr<std::unique_ptr<Agent>> Create(const AgentOptions& options);
  ~Agent();

  // Fails all jobs and ends the threads; afterwards no callback comes any more. Call before what
  // the callbacks use goes away.
  void Stop();

  engine::Executors& executors() { return executors_; }
  // Boot id of this process; another process at its address has another. With it agents prove to
  // each other who they are: the controller alone tells it, and tells it to agents alone.
  const std::string& boot_id() const { return boot_id_; }
  // host:port where this process serves, by which peers know it; set once before serving.
  void SetEndpoint(std::string endpoint) { endpoint_ = std::move(endpoint); }
  // How peers are reached; set once before serving. An agent without serves its own IPUs only.
  // `calls` reaches processes at their endpoints, `sockets` carries jobs where that is allowed.
  void SetPeers(PeerGateway* gateway, std::unique_ptr<fabric::Transport> calls,
                std::unique_ptr<fabric::SocketTransport> sockets = nullptr) {
    peers_ = gateway;
    calls_ = std::move(calls);
    sockets_ = std::move(sockets);
  }
  // Name of the abstract Unix socket told to clients; set once by the local listener before
  // serving.
  void SetLocalSocket(std::string name) { local_socket_ = std::move(name); }

  // --- Management ---
  std::vector<vipuagent::Machine> DescribeMachines() const;
  // NotFound when the machine is not on this agent.
  absl::StatusOr<vipuagent::DescribeMachineReply> DescribeMachine(const std::string& host);
  // Replaces or changes the partitions. A lease ends if its partition is named as removed or the
  // generation rose. If a complete configuration does not name the partition, the lease goes on
  // without it, as the controller may have lost it; its IPUs are unclaimed. FailedPrecondition if
  // the base is not the configuration here or the request is for another process; AlreadyExists if
  // another controller has taken over.
  absl::Status Configure(const vipuagent::ConfigureRequest& request);
  // Another process has the machines: nobody can attach here any more, and jobs end by themselves.
  void Disown();
  // Says which IPUs are held, and whose configuration is here.
  void DescribeState(vipuagent::RegisterRequest& request);
  // Describes the controller that configures this agent, for controllers that the agent refuses.
  vipuagent::LaterController DescribeController();
  // Ids under which the controller knows the machines, by management address.
  void SetAgentIds(std::map<std::string, std::string> id_by_host);
  // For the exporter. A process with more than kMachinesReadWhole machines leaves out those without
  // a partition, and links that were never used: monitoring grows with what is used, not with what
  // could be.
  std::vector<MachineReading> ReadMachines();
  static constexpr size_t kMachinesReadWhole = 64;
  const arch::MachineType& machine_type() const { return type_; }
  // NotFound when the partition is not on this agent.
  absl::StatusOr<telemetry::v1::GetPartitionTelemetryReply> GetTelemetry(
      absl::string_view partition_id);
  // Clears counters and errors of a device that nobody holds, errors of parity only with
  // `initialise_parity`.
  absl::Status ResetDevice(absl::string_view partition_id, absl::string_view fabric_key,
                           uint32_t gcd, uint32_t device_id, bool initialise_parity);

  // --- Faults (faults.cc) ---
  // Brings a fault about, or clears those of a link or a machine. Programs that it hits fail with a
  // named cause. InvalidArgument names the field; NotFound the machine or link.
  absl::Status Inject(const vipuagent::InjectRequest& request);
  // Ends the leases on a machine and clears its counters, faults and errors. FailedPrecondition:
  // that was done, but kernels still run there. Blocks for `reset_patience` at most.
  absl::Status ResetMachine(const std::string& host);
  // IPUs that nobody has and on which kernels still run; for the heartbeat.
  std::vector<vipuagent::ReleasingIpu> Releasing();
  // Waits until there are none, but not long: most kernels end within milliseconds.
  void AwaitRelease();
  // Sequence number of the last configuration.
  uint64_t configure_sequence();
  // Non-reconfigurable partitions that were used in their present generation and have no client
  // now, with that generation; for the heartbeat.
  std::vector<std::pair<std::string, uint64_t>> Detached();
  // Machines that are not well or have unclaimed IPUs, for the heartbeat.
  std::vector<vipuagent::MachineHealth> Unwell();
  // All answers and messages of this process first pass here (fault AGENT_HANG).
  HangGate& gate() { return gate_; }

  // --- Links (links.cc) ---
  // Links of the partition's IPUs on this process; NotFound as above.
  absl::StatusOr<telemetry::v1::GetPartitionLinksReply> GetLinks(absl::string_view partition_id);

  // --- Tests of single links (link_tests.cc) ---
  // Sends over a link from its near end and asks the far end, which may be another process, what
  // arrived: blocks for some seconds at most. A link that is bad is an answer, not an error.
  absl::StatusOr<vipuagent::TestLinkReply> TestLink(const vipuagent::TestLinkRequest& request);
  absl::StatusOr<vipuagent::AnswerLinkReply> AnswerLink(
      const vipuagent::AnswerLinkRequest& request);
  // Set by the server before serving: asks the process at an endpoint.
  std::function<absl::StatusOr<vipuagent::AnswerLinkReply>(
      const std::string& endpoint, const vipuagent::AnswerLinkRequest& request)>
      ask_far_end;

  // --- Leases ---
  // Takes a device; when the one who held it has just gone, waits a while for its last kernels to
  // end. Failures name the holder.
  // Returns what GiveUp takes.
  std::weak_ptr<void> Attach(const ipuof::v1::AttachOpen& request, LeaseEvents events,
                             AttachDone done);
  // The client of an attach went away: if it still waits, it is forgotten and not answered.
  void GiveUp(const std::weak_ptr<void>& attach);
  // Ends a lease; `lost` says that the client went without a word.
  void Release(absl::string_view lease_id, bool lost);
  bool HasLease(absl::string_view lease_id);
  // Couples a lease to a process of this host: the lease ends when the pidfd becomes readable.
  // Called by the local listener.
  absl::Status BindProcess(absl::string_view lease_id, pid_t pid, base::UniqueFd pidfd);
  // A user of this host shows the id of a lease at the local socket. PermissionDenied: another user
  // has done so before. Called by the local listener with the credentials of the peer.
  absl::Status AdmitUser(absl::string_view lease_id, uid_t user);
  // A Pulse of the lease has begun: its client is on another host, and lives. False if there is no
  // such lease, or it has a Pulse already.
  bool BeginPulse(absl::string_view lease_id);
  // A descriptor of the stream buffers and their size, for a process of this host.
  absl::StatusOr<std::pair<base::UniqueFd, uint64_t>> StreamSegment(absl::string_view lease_id);
  // Set by the local listener: releases the lease when the process of the pidfd ends; and stops
  // watching.
  std::function<void(base::UniqueFd pidfd, std::string lease_id)> watch_process;
  std::function<void(const std::string& lease_id)> unwatch_process;

  // --- Jobs that span processes (fabric_calls.cc) ---
  // A message of a peer's transport.
  fabric::Landing OnFabricMessage(absl::string_view header, size_t bytes);
  // A part elsewhere joins a job whose coordinator this is; and has gone.
  absl::StatusOr<std::shared_ptr<RemotePart>> JoinRemote(const fabric::v1::JobJoin& request,
                                                         RemotePart::SendEvent send);
  void RemotePartEnded(const RemotePart& part);
  // The arenas of the units here of a job that spans processes, for agents on this host that know
  // its arena key.
  absl::StatusOr<UnitArenas> JobArenas(absl::string_view arena_key);
  // Uses the stream buffers of another part of the same instance instead of the lease's own.
  absl::Status ShareStreams(absl::string_view lease_id, base::UniqueFd segment);

  // --- Use ---
  // Whether the lease may load an executable of so many bytes now. Until the result goes away they
  // count as host memory in use, and no other load of the lease may begin.
  absl::StatusOr<std::shared_ptr<void>> BeginLoad(absl::string_view lease_id, uint64_t bytes);
  // As in engine::EngineOptions.
  struct LoadOptions {
    bool check_finite = false;
    bool sharing = true;
  };
  // `origins` is a program.v1.Origins, or empty.
  absl::StatusOr<ipuof::v1::LoadReply> Load(absl::string_view lease_id,
                                            absl::string_view executable, absl::string_view origins,
                                            const LoadOptions& options);
  absl::StatusOr<ipuof::v1::LoadReply> Load(absl::string_view lease_id,
                                            absl::string_view executable,
                                            absl::string_view origins = {}) {
    return Load(lease_id, executable, origins, LoadOptions());
  }
  void Run(absl::string_view lease_id, uint32_t program, uint32_t slot, RunDone done);
  // Ends the run of a lease, if there is one; later ones fail, too, and so does the job, whose
  // other instances would wait for this one. The lease goes on, and its variables can be read. A
  // lease that has ended is left alone.
  void CancelRuns(absl::string_view lease_id);
  // The holder of a reservation says that an instance's process has ended. Jobs of the reservation,
  // also later ones, do not wait for it to join. Nothing happens if the lease reserves no IPUs.
  void InstanceEnded(absl::string_view lease_id, const ipuof::v1::AttachInstanceEnded& ended);
  // Copies to or from the stream buffers of a slot. Reads, also of a variable, return portions, so
  // that no reader makes us hold more: each call gives the first kReadPortion bytes, or all if
  // there are fewer.
  static constexpr uint64_t kReadPortion = 64 << 10;
  absl::Status WriteStream(absl::string_view lease_id, uint32_t slot, uint64_t offset,
                           absl::string_view data);
  absl::StatusOr<std::string> ReadStream(absl::string_view lease_id, uint32_t slot, uint64_t offset,
                                         uint64_t bytes);
  absl::Status WriteVariable(absl::string_view lease_id, absl::string_view variable,
                             bool all_replicas, uint32_t replica, uint64_t offset,
                             absl::string_view data);
  absl::StatusOr<std::string> ReadVariable(absl::string_view lease_id, absl::string_view variable,
                                           uint32_t replica, uint64_t offset = 0);
  absl::StatusOr<std::vector<base::Cycles>> Counters(absl::string_view lease_id);

 private:
  struct Member;
  struct Owner;
  struct Partition;
  struct Loaded;
  struct Lease;
  struct PendingAttach;
  using LeasePtr = std::shared_ptr<Lease>;
  using PartitionsById = std::map<std::string, std::unique_ptr<Partition>>;

  Agent(const AgentOptions& options, arch::MachineType type);
  void Tick();
  absl::StatusOr<std::unique_ptr<Partition>> MakePartition(
      const vipuagent::AgentPartition& spec) const;
  // --- Configurations (configurations.cc) ---
  // Whether a configuration follows the one that is here: it comes from no earlier controller, is
  // not late, and refers to nothing that this agent does not have.
  absl::Status CheckFollows(const vipuagent::ConfigureRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The partitions that are removed or replaced.
  std::set<std::string> Going(const vipuagent::ConfigureRequest& request,
                              const PartitionsById& changed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // No IPU of `changed` is in two partitions, nor in one that is not `going`.
  absl::Status CheckDisjoint(const PartitionsById& changed,
                             const std::set<std::string>& going) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReplacePartitions(const std::set<std::string>& going, PartitionsById changed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetPartitionOfIpus(const Partition& partition, const std::string& id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the lease's partition, also if the controller does not know it any more; may be null.
  const Partition* PartitionOf(const Lease& lease) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<vipuagent::Holding> Holdings(bool unclaimed_only) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the user's right by which the lease was taken has ended since.
  static bool HasEnded(const vipuagent::AgentPartition& spec, const Lease& lease);
  // Leases that a configuration ends, and why; the others of partitions that go have it kept.
  std::vector<std::pair<LeasePtr, std::string>> Revoked(const vipuagent::ConfigureRequest& request,
                                                        const PartitionsById& changed,
                                                        const std::set<std::string>& going)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Revoke(const std::vector<std::pair<LeasePtr, std::string>>& leases);
  machine::Ipu& IpuAt(uint32_t index);
  bool IsIdle(size_t machine) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadHardware(machine::Machine& machine, MachineReading& reading) const;
  // Makes the lease that an attach asks for, with the IPUs and units here. InvalidArgument: the
  // device does not have them.
  absl::StatusOr<LeasePtr> MakeLease(const ipuof::v1::AttachOpen& open,
                                     const std::vector<Member>& members) const;
  // Tries an attach. Returns false when it has to wait for IPUs that are being released.
  bool TryAttach(PendingAttach& pending, std::vector<std::function<void()>>& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The IPUs of a device, in order; those on other processes too.
  absl::StatusOr<std::vector<Member>> FindIpus(absl::string_view partition_id, uint32_t gcd,
                                               uint32_t device_id, const Partition** partition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::string JobKey(const std::string& partition_id, const std::string& job_id);
  static std::string ProcessName(const ipuof::v1::ProcessInfo& process);
  // Takes part in the job of the lease, at its coordinator if that is elsewhere; answers through
  // `done`.
  std::function<void()> JoinJob(const Partition& partition, const LeasePtr& lease, AttachDone done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  fabric::JobMember MemberOf(const LeasePtr& lease);
  ipuof::v1::Attached Describe(const Lease& lease, size_t device_ipus) const;
  void Tell(const Lease& lease, const std::string& text);
  std::shared_ptr<fabric::Job> FindOrMakeJob(const Partition& partition,
                                             const ipuof::v1::JobMember& member,
                                             bool spans_processes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells a new job which of its instances have ended already.
  void TellOfEnded(const Partition& partition, fabric::Job& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the group that the job's leases in this process share, or a new one.
  std::shared_ptr<engine::LeaseGroup> GroupOf(const Lease& lease) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetJobIfEmpty(const std::shared_ptr<fabric::Job>& job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens the way that a job's messages take, now that it is known whether its processes share
  // memory.
  absl::Status OpenWay(fabric::CollectivesOptions& options, bool shared);
  void FormJob(const std::shared_ptr<fabric::Job>& job, const vipuagent::AgentPartition& partition,
               const std::vector<fabric::JobPart>& parts);
  // Maps the arenas of the other sites of a job, which are on this host.
  static absl::Status MapPeers(const std::string& arena_key,
                               const std::map<std::string, std::string>& sockets,
                               fabric::CollectivesOptions& options);
  std::shared_ptr<PartLink> LinkToCoordinator(const Partition& partition, const LeasePtr& lease);
  fabric::v1::JobJoin DescribePart(const Partition& partition, const Lease& lease) const;
  // Sets `releasing` to a lease whose owner has left and whose kernels still run.
  absl::Status CheckFree(const std::vector<uint32_t>& ipus, const ipuof::v1::AttachOpen& open,
                         LeasePtr* releasing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A device that a lease uses, to a reader in this PID namespace who needs it and no other.
  static base::DeviceUse UseOf(const Lease& lease, uint32_t device_id,
                               absl::string_view readers_namespace);
  // The message for one to whom another device of the partition would do.
  absl::Status RefuseInUse(const Lease& lease, const ipuof::v1::AttachOpen& open)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lease for the log: id, process, partition, device, IPUs by machine.
  std::string LogText(const Lease& lease) const;
  // "a kernel of process 4711 (train) on node7, which left 12 s ago, still runs"
  static std::string WhyReleasing(const Lease& lease);
  static absl::Status RefuseReleasing(const ipuof::v1::AttachOpen& open, const Lease& lease);
  // Refuses attaches that have waited too long.
  void RefuseLateAttaches(std::chrono::steady_clock::time_point now);
  LeasePtr FindLease(absl::string_view lease_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lease and what is loaded on it, which stays while the caller holds it.
  absl::StatusOr<std::pair<LeasePtr, std::shared_ptr<Loaded>>> FindLoaded(
      absl::string_view lease_id);
  static absl::Status MayLoad(const LeasePtr& lease);
  // Between them the lease's IPUs stay in use, though it may be released.
  absl::StatusOr<LeasePtr> BeginPreparing(absl::string_view lease_id);
  void EndPreparing(const LeasePtr& lease);
  uint32_t DomainIpus(const Lease& lease);
  std::shared_ptr<Loaded> LoadedOn(const Lease& lease);
  std::shared_ptr<shm::Segment> StreamsOf(const Loaded& loaded);
  // The lease is bound, or nobody waits for that any more; attaches that waited are tried again.
  void SetBound(const LeasePtr& lease);
  void RetryPending(std::vector<std::function<void()>>& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the end of a lease; its IPUs become free when no run is active on them any more. Does
  // nothing if it ends already.
  void BeginRelease(const LeasePtr& lease, const absl::Status& cause, bool lost);
  // The two steps of a release. MarkReleasing returns false if the lease is being released already.
  bool MarkReleasing(const LeasePtr& lease, const absl::Status& cause);
  void GoOnReleasing(const LeasePtr& lease, const absl::Status& cause, bool lost);
  void FinishRelease(const LeasePtr& lease);

  // --- Reservers, the holders of a job's parent device (reservers.cc) ---
  // Whether a job that poprun started still has it: its reservation lives here.
  bool HasReserver(const ipuof::v1::AttachOpen& open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How many instances the job of a reservation can have.
  size_t MostInstances(const Lease& reserver) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the leases of a job whose last reservation here has ended.
  void RevokeReserved(const Lease& reserver, const std::string& reason);
  static bool Reserves(const Lease& reserver, const ipuof::v1::AttachOpen& open);
  // The job whose reservation a lease makes or uses. A process may attach several times in the life
  // of its job; it then appends "#<n>" to the job's id, so that each round of attaches is a job
  // record of its own under the reservation of the whole.
  static std::string ReservationOf(const ipuof::v1::AttachOpen& open);
  // Its end has begun, or its process has ended.
  static bool IsGone(const Lease& lease);
  void TellReservers(const Lease& lease, const ipuof::v1::AttachEvent& event);
  // The instance is gone: lost, or in an orderly way.
  void TellOfLeaving(const Lease& gone, bool lost);
  // An instance of this host has been stopped for a while, or goes on.
  void TellOfStopped(fabric::Job::Clock::time_point now);

  // Faults. BeforeLoad and BeforeRun say what keeps a program from the lease's IPUs and links.
  absl::Status BeforeLoad(const Lease& lease);
  absl::Status BeforeRun(Lease& lease, const Loaded& loaded);
  // After the fault itself: Unwell takes the mark from a machine on which it finds none.
  void MarkFaulty(uint32_t machine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status IpuStatus(uint32_t ipu) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LinkStatus(const Loaded& loaded) const;
  void RaiseSimulatedError(Lease& lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A reset of an IPU: its errors and the faults of its links are gone.
  void ClearIpu(uint32_t ipu, bool initialise_parity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::set<uint32_t> IpusHere(const Partition& partition);
  // A reset of a partition clears the IPUs that it keeps: what is wrong with those that it leaves
  // stays wrong.
  void ClearIpus(const Partition& before, const Partition& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends simulated errors of the IPUs that a partition leaves: their next holder did not ask for an
  // error. `after` is null when the partition is removed.
  void EndSimulatedErrors(const Partition& before, const Partition* after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint32_t> FindMachine(const std::string& host) const;
  absl::Status InjectOnLink(uint32_t machine, const vipuagent::InjectRequest& request);
  absl::Status InjectOnIpu(uint32_t machine, const vipuagent::InjectRequest& request);
  // Fails the jobs of leases that `hit` names, each with the cause that it gives.
  void FailJobs(const std::function<absl::Status(const Lease&)>& hit);

  // Returns the name of our socket for peers. All processes of a job decide alike from the same
  // names: they share memory if all sockets are of one host.
  std::string LocalSocketForPeers() const {
    return options_.transport == "tcp" ? "" : local_socket_;
  }

  // Links. Returns the traffic of each program of an executable on our machines' links in a run.
  std::vector<std::vector<MachineTraffic>> TrafficOfLease(const Lease& lease,
                                                          const program::Executable& executable);
  void CountTraffic(const Loaded& loaded, uint32_t program);
  telemetry::v1::LinkTelemetry DescribeLink(const Wiring& wiring, const arch::Link& link) const;
  absl::StatusOr<vipuagent::AnswerLinkReply> AskFarEnd(
      const vipuagent::TestLinkRequest& request, const vipuagent::AnswerLinkRequest& question);
  // Sends a pattern from memory here through a port to the far end that gave `answer`. Whether what
  // arrived there is what was sent.
  absl::StatusOr<bool> Transfer(const vipuagent::TestLinkRequest& request,
                                vipuagent::AnswerLinkRequest question,
                                const vipuagent::AnswerLinkReply& answer);
  absl::Status SendArrival(const std::string& arrival, const std::string& endpoint,
                           const std::shared_ptr<shm::Segment>& data);

  const AgentOptions options_;
  const std::string boot_id_ = base::RandomId();
  const arch::MachineType type_;
  engine::MemoryBudget budget_;
  std::vector<std::unique_ptr<machine::Machine>> machines_;
  std::map<std::string, size_t> machine_by_host_;
  std::string local_socket_, endpoint_;
  PeerGateway* peers_ = nullptr;
  HangGate gate_;

  base::Mutex mutex_;
  std::condition_variable released_;  // a lease has ended for good
  std::string controller_boot_id_ ABSL_GUARDED_BY(mutex_), controller_store_
      ABSL_GUARDED_BY(mutex_);
  std::string controller_proof_ ABSL_GUARDED_BY(mutex_);
  uint64_t configure_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t controller_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::shared_ptr<Partition>> partitions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Owner> owners_ ABSL_GUARDED_BY(mutex_);              // by IPU: 4 × machine + number
  std::vector<std::string> partition_of_ ABSL_GUARDED_BY(mutex_);  // by IPU; empty: free
  std::map<std::string, std::string> agent_ids_ ABSL_GUARDED_BY(mutex_);  // by management address
  std::map<std::string, LeasePtr> leases_ ABSL_GUARDED_BY(mutex_);
  std::multimap<std::string, LeasePtr> reservers_ ABSL_GUARDED_BY(mutex_);  // by their job
  // Partitions of which a lease has ended since they got their present generation.
  std::set<std::string> used_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<fabric::Job>> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<PendingAttach>> pending_ ABSL_GUARDED_BY(mutex_);
  // Machines that have or had a fault: the others need not be asked.
  std::set<uint32_t> faulty_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> any_faulty_ = false;
  // IPUs on which a process has had the error that it asked for.
  struct SimulatedError {
    std::string process;
    bool rearm_on_reset;
  };
  std::map<uint32_t, SimulatedError> simulated_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::weak_ptr<RemotePart>> remote_parts_ ABSL_GUARDED_BY(mutex_);

  base::Mutex fabric_mutex_;
  std::map<std::string, std::weak_ptr<fabric::Collectives>> collectives_
      ABSL_GUARDED_BY(fabric_mutex_);  // by token
  LinkArrivals arrivals_;

  // Last, so that their threads end before anything that they may touch.
  engine::Executors executors_;
  std::unique_ptr<fabric::Transport> calls_;
  std::unique_ptr<fabric::SocketTransport> sockets_;
  std::shared_ptr<void> ticker_;
};

}  // namespace vpod::agent
