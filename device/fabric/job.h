// The record of a replicated job (docs/architecture.md, "Job"): which instances belong to it,
// whether they agree, and where their replicas meet. Client processes come and go; the job makes
// sure that a collective completes on all replicas or fails on all of them with one named cause.
//
// A unit is one (replica, IPU of the replica), numbered replica × ipus_per_replica + IPU over the
// whole job. An instance whose units several processes host takes part in as many parts. Each
// process has a Job of its own; that of the partition's first process, the coordinator, decides
// when all are there, and the others follow it through a CoordinatorLink for each of their parts.
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

// Shape of a job, the same for all its instances.
struct JobShape {
  uint32_t num_instances = 1;
  uint32_t total_replicas = 1;
  uint32_t ipus_per_replica = 1;
  uint64_t units() const { return uint64_t{total_replicas} * ipus_per_replica; }
  friend bool operator==(const JobShape&, const JobShape&) = default;
};

// A part of an instance and where it lies.
struct JobPart {
  uint32_t instance = 0;
  uint32_t part = 0;
  uint32_t replica_offset = 0;  // of the instance, which drives replicas [replica_offset,
  uint32_t local_replicas = 1;  // replica_offset + local_replicas)
  std::string process;          // "pid 4711 on host": for messages
  std::vector<uint32_t> units;  // that this part hosts, ascending; empty: all of the instance's
  std::string endpoint;         // of the process that hosts them; empty: this one
  std::string local_socket;     // of that process; empty: it shares no memory
};

// What the processes of a job know and nobody else; of a job of one process there is none. The
// coordinator makes it up at random, 32 characters each, and hands it to each part as it joins.
struct JobSecrets {
  std::string token;      // begins every message between them (transport.h)
  std::string arena_key;  // opens the memory of their units, among processes of one host
};

// Way from a part to the job's record at its coordinator. Calls do not block.
class CoordinatorLink {
 public:
  virtual ~CoordinatorLink() = default;
  virtual void Loaded(const std::string& executable_hash) = 0;
  virtual void Waits() = 0;
  // `address` is where this process takes the job's messages.
  virtual void Ready(const std::string& address) = 0;
  virtual void Alive() = 0;
  // After the part's instance has begun `runs` runs with collectives, all of which have ended.
  virtual void Leave(bool lost, uint64_t runs) = 0;
  virtual void Fail(const absl::Status& cause, bool lost, uint32_t culprit) = 0;
};

// A part as it joins: where it is and what it wants to hear.
struct JobMember : JobPart {
  std::function<void(const std::string& text)> notice;  // e.g. "waiting for 1 of 4 instances: 2"
  std::function<void(const absl::Status& cause, bool lost, uint32_t culprit)>
      failed;  // the job cannot go on
  // At the coordinator, of parts elsewhere.
  std::function<void(const std::vector<JobPart>&)> formed;
  std::function<void(const std::map<std::string, std::string>& address_of)> go;
  std::function<void(uint32_t instance, uint64_t runs)> left;  // as CoordinatorLink::Leave
  // Elsewhere, of the parts there.
  std::shared_ptr<CoordinatorLink> coordinator;
};

// Action when replicas meet: given the participants of this process in order of their position, it
// calls `finish` once, later or at once. Runs on the thread of the last participant.
using RendezvousAction = std::function<void(const std::vector<void*>& participants,
                                            std::function<void(absl::Status)> finish)>;

// Runs from this number on have no collectives; what they are is their instance's matter.
inline constexpr uint64_t kFirstLoneRun = uint64_t{1} << 62;

// Identifies a rendezvous: the same for all who take part.
struct RendezvousKey {
  uint64_t run = 0;  // runs with collectives, counted by each instance, or a lone one
  // The units that meet: below ipus_per_replica, this IPU of every replica; above, IPUs of one
  // replica.
  uint32_t channel = 0;
  uint64_t sequence = 0;  // of the channel within the run
  ReplicaGroup group;     // of a collective
  uint32_t ipus = 2;      // that meet, of one replica
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
  // `form` is called, unless the job is local, when the parts are known: it makes ready what they
  // do together and calls Formed, or Fail.
  Job(std::string id, JobShape shape, Role role = Role::kLocal,
      std::function<void(const std::vector<JobPart>&)> form = nullptr);

  const std::string& id() const { return id_; }
  const JobShape& shape() const { return shape_; }
  bool spans_processes() const { return role_ != Role::kLocal; }
  JobSecrets secrets() const;
  // At a follower: the coordinator has taken a part. Before anything is loaded on it.
  void SetSecrets(JobSecrets secrets);

  // Adds a part. When it contradicts those already there the whole job fails, and the error says
  // how.
  absl::Status Join(const JobShape& shape, JobMember member);
  // Says what a part has loaded; differing executables fail the job.
  void Loaded(uint32_t instance, uint32_t part, const std::string& executable_hash);
  // Ends a part. In an orderly way (`lost` false) others fail only when they come to need it, or
  // need it already: never in a run that it has completed. A lost one fails the job at once, and so
  // does one that leaves in the middle of a run, of which `broken_run` tells the others.
  void Leave(uint32_t instance, uint32_t part, bool lost,
             const absl::Status& broken_run = absl::OkStatus());
  // At the coordinator: a part elsewhere ends, as its own process says by CoordinatorLink::Leave.
  void LeaveElsewhere(uint32_t instance, uint32_t part, bool lost, uint64_t runs);
  // Nobody left.
  bool Empty() const;

  // At a follower: the coordinator says that all parts are there, that all their processes are
  // ready, or that an instance has left.
  void Complete(const std::vector<JobPart>& parts);
  // `address_of` says where each process takes the job's messages, by its endpoint as in JobPart.
  void Go(const std::map<std::string, std::string>& address_of);
  void LeftElsewhere(uint32_t instance, uint64_t runs);
  // This process is ready for what the processes of the job do together. When all are, runs begin.
  void Formed(std::shared_ptr<Collectives> collectives);
  // At the coordinator: a part elsewhere wants to run and waits; its process is ready.
  void WaitsElsewhere(uint32_t instance);
  void ReadyElsewhere(uint32_t instance, uint32_t part, const std::string& address);

  // Calls `ready` once all instances are there and agree, or with the named reason. `program` is
  // what the instance wants to run as its run number `run`; all instances must run the same, unless
  // it is a lone one.
  void StartRun(uint32_t instance, uint64_t run, uint32_t program, Resume ready);
  // Collectives among replicas on several processes; null while all are in this one.
  std::shared_ptr<Collectives> collectives() const;

  // Arrives at a rendezvous as number `position`: in its group for a collective, or among the IPUs.
  // The last one of this process performs `action`; afterwards every one's `resume` is called with
  // its result. After the start of the run only.
  void Meet(const RendezvousKey& key, size_t position, uint32_t instance, void* participant,
            Resume resume, RendezvousAction action);

  // Fails all meetings of a run whose units are all of this process, now and until every instance
  // has begun a later one, with `cause`. The first cause stays.
  void FailRun(uint64_t run, const absl::Status& cause);
  bool HasFailedRun(uint64_t run) const;
  // The run has ended on all its units, and its number will be used again.
  void ForgetFailedRun(uint64_t run);

  // Fails everything that waits, now and later, with `cause`.
  void Fail(const absl::Status& cause, bool lost = false, uint32_t culprit = 0);

  // Called about four times a second: tells the coordinator that its parts here live, names missing
  // instances, and IPUs on other processes, to those who have waited `patience`, and fails the job
  // when instances have not joined for `join_timeout`.
  void Tick(Clock::time_point now, Clock::duration patience, Clock::duration join_timeout);

 private:
  struct Entry {
    JobMember member;
    std::string hash;
    bool left = false;
    uint64_t runs = 0;  // of a part elsewhere that has left: those that it has taken part in
  };
  using PartKey = std::pair<uint32_t, uint32_t>;  // instance, part
  struct Start {
    uint32_t instance;
    Resume ready;
    Clock::time_point since;
    bool noticed = false;
  };
  struct Rendezvous {
    std::vector<void*> participants;  // by position, as what follows
    std::vector<Resume> resumes;
    std::vector<bool> arrived;
    std::vector<uint32_t> instances;  // of those who arrived
    size_t missing = 0;               // of this process
    Clock::time_point since;
    bool noticed = false;
  };
  struct RunRecord {
    uint32_t program;
    uint32_t first_instance;
    size_t seen = 0;  // parts of this process that started it
  };
  using Calls = std::vector<std::function<void()>>;
  static void CallAll(const Calls& calls);

  // Without `runs`, the part is of this process, which has counted them.
  void LeaveAfter(std::optional<uint64_t> runs, uint32_t instance, uint32_t part, bool lost,
                  const absl::Status& broken_run);

  // The rest of the class is called with mutex_ held. Functions that return Calls move callbacks
  // out; the caller calls them after unlocking.
  absl::Status Contradiction(const JobShape& shape, const JobMember& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllLoaded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Disagreement() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t LocalParts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether replicas meet, and not IPUs of one.
  bool IsCollective(const RendezvousKey& key) const {
    return key.channel < shape_.ipus_per_replica;
  }
  // Whether this process hosts a unit of a job that has formed.
  bool IsHere(size_t replica, uint32_t ipu) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return role_ == Role::kLocal || is_here_[replica * shape_.ipus_per_replica + ipu];
  }
  // A rendezvous that nobody has come to yet.
  Rendezvous NewRendezvous(const RendezvousKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first difference between what the instances run as the same run.
  absl::Status NoteRun(uint32_t instance, uint64_t run, uint32_t program)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why a run has failed; OK if it has not.
  absl::Status RunFailure(uint64_t run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets failed runs that no instance is in any more, now that `instance` begins `run`.
  void ForgetFailedRuns(uint32_t instance, uint64_t run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t InstanceOfReplica(size_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Name(uint32_t instance) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint32_t> MissingInstances() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitingText(const std::vector<uint32_t>& missing) const;
  Calls FailLocked(const absl::Status& cause, bool lost, uint32_t culprit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // At the coordinator: begins when all processes are ready.
  Calls GoWhenReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets runs begin, or the job form, when everything needed for it is there.
  Calls Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a collective waits for one of a part's replicas.
  static bool WaitsFor(const RendezvousKey& key, const Rendezvous& rendezvous, const JobPart& part);
  // Whether a rendezvous, or the start of the job, waits for the instance of a part that has left.
  bool IsNeeded(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Calls InstanceLeft(const Entry& entry, bool lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a collective under way waits for a part on another process that has left.
  bool AwaitsMessagesOf(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fails a job that somebody waits for and that can never form, because a part has left.
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
