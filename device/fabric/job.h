// The record of a replicated job (docs/architecture.md, "Job") has the instances that belong to the
// job, knows whether they agree, and is the place where their replicas meet. Client processes come
// and go; the job makes sure that a collective completes on all replicas or fails on all of them
// with one named cause.
//
// A unit is one (replica, IPU of the replica), numbered replica × ipus_per_replica + IPU over the
// whole job. An instance whose units several processes host takes part in as many parts. Each
// process has a Job of its own. The Job of the partition's first process, the coordinator, decides
// when all parts are there; the other Jobs follow it through a CoordinatorLink for each of their
// parts.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"
#include "device/fabric/replica_group.h"

namespace vpod::fabric {

class Collectives;

// The shape of a job, on which all its instances agree.
struct JobShape {
  uint32_t num_instances = 1;
  uint32_t total_replicas = 1;
  uint32_t ipus_per_replica = 1;
  uint64_t units() const { return uint64_t{total_replicas} * ipus_per_replica; }
  friend bool operator==(const JobShape&, const JobShape&) = default;
};

// A part of an instance, and the process that hosts its units.
struct JobPart {
  uint32_t instance = 0;
  uint32_t part = 0;
  // The instance drives the replicas [replica_offset, replica_offset + local_replicas).
  uint32_t replica_offset = 0;
  uint32_t local_replicas = 1;
  std::string process;          // the client, for messages: "pid 4711 on host"
  std::vector<uint32_t> units;  // the units of this part, ascending; empty: all of the instance's
  std::string endpoint;         // the endpoint of the process that hosts them; empty: this process
  std::string local_socket;     // the socket of that process; empty: the process shares no memory
};

// Secrets that only the processes of a job know; a job of one process has none. The coordinator
// makes them up at random, 32 characters each, and hands them to each part that joins.
struct JobSecrets {
  std::string token;      // begins every message between the processes (transport.h)
  std::string arena_key;  // opens the memory of the job's units to processes of the same host
};

// The way from a part to the record of its job at the coordinator. Calls do not block.
class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;
  virtual void Loaded(const std::string& executable_hash) = 0;
  virtual void Waits() = 0;
  // `address` is where this process takes the job's messages.
  virtual void Ready(const std::string& address) = 0;
  virtual void Alive() = 0;
  // The part leaves. Its instance has begun `runs` runs with collectives, all of which have ended.
  virtual void Leave(bool lost, uint64_t runs) = 0;
  virtual void Fail(const absl::Status& cause, bool lost, uint32_t culprit) = 0;
};

// A part that joins a job, with functions that tell it of events.
struct JobMember : JobPart {
  std::function<void(const std::string& text)> notice;  // e.g. "waiting for 1 of 4 instances: 2"
  // Tells that the job cannot go on.
  std::function<void(const absl::Status& cause, bool lost, uint32_t culprit)> failed;
  // The coordinator calls these for parts on other processes.
  std::function<void(const std::vector<JobPart>&)> formed;
  std::function<void(const std::map<std::string, std::string>& address_of)> go;
  std::function<void(uint32_t instance, uint64_t runs)> left;  // as CoordinatorLink::Leave
  // Parts on other processes have this link to the coordinator.
  std::shared_ptr<CoordinatorLink> coordinator;
};

// The action that a meeting of replicas performs. It gets the participants of this process in the
// order of their positions and calls `finish` once, later or at once. It runs on the thread of the
// last participant.
using RendezvousAction = std::function<void(const std::vector<void*>& participants,
                                            std::function<void(absl::Status)> finish)>;

// The number from which on runs have no collectives; they concern their instance only.
inline constexpr uint64_t kFirstLoneRun = uint64_t{1} << 62;

// Identifies a rendezvous. All participants have the same key.
struct RendezvousKey {
  // The number of the run. Each instance counts its runs with collectives; a lone run has a number
  // from kFirstLoneRun on.
  uint64_t run = 0;
  // A number below ipus_per_replica says that this IPU of every replica meets; other numbers say
  // that IPUs of one replica do.
  uint32_t channel = 0;
  uint64_t sequence = 0;  // the number of the rendezvous on the channel within the run
  ReplicaGroup group;     // the replicas that a collective is for
  uint32_t ipus = 2;      // how many IPUs of one replica meet
  friend auto operator<=>(const RendezvousKey&, const RendezvousKey&) = default;
};

// Thread-safe. Callbacks run without a lock held, on the thread that caused them.
class Job : public std::enable_shared_from_this<Job> {
 public:
  using Resume = std::function<void(absl::Status)>;
  using Clock = std::chrono::steady_clock;

  // The record that decides when all are there.
  enum class Role {
    kLocal,        // all parts are of this process
    kCoordinator,  // this record, for parts elsewhere too
    kFollower,     // the record at the coordinator
  };
  // Unless the job is local, `form` is called when the parts are known. It prepares the collectives
  // among their processes and calls Formed, or Fail.
  Job(std::string id, JobShape shape, Role role = Role::kLocal,
      std::function<void(const std::vector<JobPart>&)> form = nullptr);

  const std::string& id() const { return id_; }
  const JobShape& shape() const { return shape_; }
  bool spans_processes() const { return role_ != Role::kLocal; }
  JobSecrets secrets() const;
  // A follower calls SetSecrets when the coordinator has taken a part, before anything is loaded on
  // the part.
  void SetSecrets(JobSecrets secrets);

  // Adds a part. If it contradicts the parts that have joined, the whole job fails, and the error
  // names the contradiction.
  absl::Status Join(const JobShape& shape, JobMember member);
  // A part has loaded an executable. The job fails if parts load different ones.
  void Loaded(uint32_t instance, uint32_t part, const std::string& executable_hash);
  // A part leaves. If it leaves in an orderly way (`lost` is false), others fail only when they
  // need the part, never in a run that the part has completed. A lost part fails the job at once,
  // and so does a part that leaves in the middle of a run; `broken_run` tells the others why.
  void Leave(uint32_t instance, uint32_t part, bool lost,
             const absl::Status& broken_run = absl::OkStatus());
  // A process tells the coordinator by CoordinatorLink::Leave that its part leaves.
  void LeaveElsewhere(uint32_t instance, uint32_t part, bool lost, uint64_t runs);
  // The process of an instance has ended without an error. If no part of the instance has joined,
  // none will: the job fails as soon as somebody waits for its start. `process` names it as in
  // JobMember.
  void InstanceEnded(uint32_t instance, const std::string& process);
  // Returns whether all parts have left.
  bool Empty() const;

  // The coordinator tells a follower that all parts are there (Complete), that all their processes
  // are ready (Go), or that an instance has left (LeftElsewhere).
  void Complete(const std::vector<JobPart>& parts);
  // `address_of` says where each process takes the job's messages, by its endpoint as in JobPart.
  void Go(const std::map<std::string, std::string>& address_of);
  void LeftElsewhere(uint32_t instance, uint64_t runs);
  // This process is ready for collectives with the other processes of the job. When all processes
  // are ready, runs begin.
  void Formed(std::shared_ptr<Collectives> collectives);
  // A process tells the coordinator that its part waits for a run to start (WaitsElsewhere), or
  // that the process is ready for collectives (ReadyElsewhere).
  void WaitsElsewhere(uint32_t instance);
  void ReadyElsewhere(uint32_t instance, uint32_t part, const std::string& address);

  // Calls `ready` once, when all instances are there and agree, or with the reason why they cannot.
  // `program` is the program that the instance wants to run as its run number `run`. All instances
  // must run the same one, unless it is a lone run.
  void StartRun(uint32_t instance, uint64_t run, uint32_t program, Resume ready);
  // The collectives among replicas on several processes; null while this process has all replicas.
  std::shared_ptr<Collectives> collectives() const;

  // A participant arrives at a rendezvous. `position` is its number in the group of the collective,
  // or among the IPUs. The last participant of this process performs `action`, and then the
  // `resume` of every participant is called with the result. The run must have started.
  void Meet(const RendezvousKey& key, size_t position, uint32_t instance, void* participant,
            Resume resume, RendezvousAction action);

  // Fails all meetings of a run with `cause`, until every instance has begun a later run. All units
  // of the run must be in this process. If the run has failed already, its first cause stays.
  void FailRun(uint64_t run, const absl::Status& cause);
  bool HasFailedRun(uint64_t run) const;
  // A failed run has ended on all its units, and its number will be used again.
  void ForgetFailedRun(uint64_t run);

  // Fails the job with `cause`: everyone who waits now or later gets it.
  void Fail(const absl::Status& cause, bool lost = false, uint32_t culprit = 0);

  // Must be called about four times a second. It tells the coordinator that the parts of this
  // process live, names missing instances, and IPUs on other processes, to parts that have waited
  // for `patience`, and fails the job if no instance has joined for `join_timeout` while some are
  // missing.
  void Tick(Clock::time_point now, Clock::duration patience, Clock::duration join_timeout);

 private:
  struct Entry {
    JobMember member;
    std::string hash;
    bool left = false;
    uint64_t runs = 0;  // the runs of a part on another process, which has left
  };
  using PartKey = std::pair<uint32_t, uint32_t>;  // instance, part
  struct Start {
    uint32_t instance;
    Resume ready;
    Clock::time_point since;
    bool noticed = false;
  };
  struct Rendezvous {
    // These three are indexed by position.
    std::vector<void*> participants;
    std::vector<Resume> resumes;
    std::vector<bool> arrived;
    std::vector<uint32_t> instances;  // the instances of participants that have arrived
    size_t missing = 0;               // participants of this process that have not arrived
    Clock::time_point since;
    bool noticed = false;
  };
  struct RunRecord {
    uint32_t program;
    uint32_t first_instance;
    size_t seen = 0;  // the number of parts of this process that have started the run
  };
  using Calls = std::vector<std::function<void()>>;
  static void CallAll(const Calls& calls);

  // `runs` is given for a part on another process; this process counts the runs of its own parts.
  void LeaveAfter(std::optional<uint64_t> runs, uint32_t instance, uint32_t part, bool lost,
                  const absl::Status& broken_run);

  // The following functions are called with mutex_ held. Functions that return Calls give callbacks
  // to their caller, who calls them after unlocking.
  absl::Status Contradiction(const JobShape& shape, const JobMember& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllLoaded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Disagreement() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t LocalParts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether replicas meet by the key, and not IPUs of one replica.
  bool IsCollective(const RendezvousKey& key) const {
    return key.channel < shape_.ipus_per_replica;
  }
  // Returns whether this process hosts a unit of a job that has formed.
  bool IsHere(size_t replica, uint32_t ipu) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return role_ == Role::kLocal || is_here_[replica * shape_.ipus_per_replica + ipu];
  }
  // Returns a rendezvous at which nobody has arrived yet.
  Rendezvous NewRendezvous(const RendezvousKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the first difference between what the instances run as the same run.
  absl::Status NoteRun(uint32_t instance, uint64_t run, uint32_t program)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the cause of a run's failure, or OK if the run has not failed.
  absl::Status RunFailure(uint64_t run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets failed runs that no instance is in any more, now that `instance` begins `run`.
  void ForgetFailedRuns(uint32_t instance, uint64_t run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t InstanceOfReplica(size_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Name(uint32_t instance) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint32_t> MissingInstances() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitingText(const std::vector<uint32_t>& missing) const;
  Calls FailLocked(const absl::Status& cause, bool lost, uint32_t culprit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The coordinator lets runs begin when all processes are ready.
  Calls GoWhenReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets runs begin, or the job form, when everything needed for it is there.
  Calls Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a collective waits for one of a part's replicas.
  static bool WaitsFor(const RendezvousKey& key, const Rendezvous& rendezvous, const JobPart& part);
  // Returns whether a rendezvous, or the start of the job, waits for the instance of a part that
  // has left.
  bool IsNeeded(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Calls InstanceLeft(const Entry& entry, bool lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether a collective under way waits for a part on another process that has left.
  bool AwaitsMessagesOf(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails a job that somebody waits for and that can never form, because a part has left or an
  // instance has ended.
  Calls FailUnlessItCanForm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TickStarts(Clock::time_point now, Clock::duration patience, Clock::duration join_timeout,
                  Calls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TickRendezvous(Clock::time_point now, Clock::duration patience, Calls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TickCollectives(Clock::time_point now, Clock::duration patience, Calls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(uint32_t instance, const std::string& text, Calls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string id_;
  const JobShape shape_;
  const Role role_;
  const std::function<void(const std::vector<JobPart>&)> form_;
  mutable base::Mutex mutex_;
  std::map<PartKey, Entry> members_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, std::string> ended_ ABSL_GUARDED_BY(mutex_);  // processes that never joined
  std::vector<Start> starts_ ABSL_GUARDED_BY(mutex_);
  std::map<RendezvousKey, Rendezvous> open_rendezvous_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, RunRecord> runs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, absl::Status> failed_runs_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, uint64_t> last_runs_ ABSL_GUARDED_BY(mutex_);  // begun, by instance
  JobSecrets secrets_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_join_ ABSL_GUARDED_BY(mutex_) = Clock::now();
  bool forming_ ABSL_GUARDED_BY(mutex_) = false;
  bool formed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<PartKey, std::string> ready_elsewhere_ ABSL_GUARDED_BY(mutex_);  // their addresses
  std::shared_ptr<Collectives> collectives_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> is_here_ ABSL_GUARDED_BY(mutex_);  // by unit, when formed and not local
};

}  // namespace vpod::fabric
