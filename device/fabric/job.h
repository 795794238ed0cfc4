// The record of a replicated job (DESIGN 3.4): which instances belong to it, whether they agree,
// and where their replicas meet. Client processes come and go; the job makes sure that a collective
// completes on all replicas or fails on all of them with one named cause.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"

namespace vpod::fabric {

// What all instances of a job must say alike.
struct JobShape {
  uint32_t num_instances = 1;
  uint32_t total_replicas = 1;
  uint32_t ipus_per_replica = 1;
  friend bool operator==(const JobShape&, const JobShape&) = default;
};

// One instance: a client process that drives replicas [replica_offset, replica_offset +
// local_replicas).
struct JobMember {
  uint32_t instance = 0;
  uint32_t replica_offset = 0;
  uint32_t local_replicas = 1;
  std::string process;  // "pid 4711 on host": for messages

  std::function<void(const std::string& text)> notice;  // e.g. "waiting for 1 of 4 instances: 2"
  std::function<void(const absl::Status& cause, bool lost, uint32_t culprit)>
      failed;  // the job cannot go on
};

// What replicas do when they meet: given the participants in order of their position, calls
// `finish` once, later or at once. Runs on the thread of the last participant.
using MeetingAction = std::function<void(const std::vector<void*>& participants,
                                         std::function<void(absl::Status)> finish)>;

// Identifies a meeting: the same for all who take part.
struct MeetingKey {
  uint64_t run = 0;  // runs with collectives, counted by each instance
  // Who meets: below ipus_per_replica, this IPU of every replica; above, a pair of IPUs of one
  // replica.
  uint32_t channel = 0;
  uint64_t sequence = 0;  // of the channel within the run
  friend auto operator<=>(const MeetingKey&, const MeetingKey&) = default;
};

// Thread-safe. Callbacks run without a lock held, on the thread that caused them.
class Job : public std::enable_shared_from_this<Job> {
 public:
  using Resume = std::function<void(absl::Status)>;
  using Clock = std::chrono::steady_clock;

  Job(std::string id, JobShape shape);

  const std::string& id() const { return id_; }
  const JobShape& shape() const { return shape_; }

  // Adds an instance. When it contradicts those already there the whole job fails, and the error
  // says how.
  absl::Status Join(const JobShape& shape, JobMember member);
  // Says what an instance has loaded; differing executables fail the job.
  void Loaded(uint32_t instance, const std::string& executable_hash);
  // Ends an instance's part. In an orderly way (`lost` false) others fail only when they come to
  // need it; a lost one fails the job at once.
  void Leave(uint32_t instance, bool lost);
  // Nobody left.
  bool Empty() const;

  // Calls `ready` once all instances are there and agree, or with the named reason. `program` is
  // what the instance wants to run as its run number `run`; all instances must run the same.
  void StartRun(uint32_t instance, uint64_t run, uint32_t program, Resume ready);

  // Arrives at a meeting of `expected` participants as number `position`, which belongs to
  // `instance`. The last one there performs `action`; afterwards every one's `resume` is called
  // with its result.
  void Meet(const MeetingKey& key, size_t expected, size_t position, uint32_t instance,
            void* participant, Resume resume, MeetingAction action);

  // Fails everything that waits, now and later, with `cause`.
  void Fail(const absl::Status& cause, bool lost = false, uint32_t culprit = 0);

  // Called about four times a second: names missing instances to those who have waited `patience`,
  // and fails the job when instances have not joined for `join_timeout`.
  void Tick(Clock::time_point now, Clock::duration patience, Clock::duration join_timeout);

 private:
  struct Entry {
    JobMember member;
    std::string hash;
    bool left = false;
  };
  struct Start {
    uint32_t instance;
    Resume ready;
    Clock::time_point since;
    bool noticed = false;
  };
  struct Meeting {
    std::vector<void*> participants;
    std::vector<Resume> resumes;
    std::vector<bool> arrived;
    std::vector<uint32_t> instances;  // of those who arrived
    size_t missing = 0;
    Clock::time_point since;
    bool noticed = false;
  };

  // The rest of the class is called with mutex_ held.
  absl::Status Contradiction(const JobShape& shape, const JobMember& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Complete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Disagreement() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether all replicas of the job take part in a meeting.
  bool IsCollective(const MeetingKey& key) const { return key.channel < shape_.ipus_per_replica; }
  uint32_t InstanceOfReplica(size_t replica) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Name(uint32_t instance) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint32_t> MissingInstances() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string WaitingText(const std::vector<uint32_t>& missing) const;
  // Moves every waiting callback out; the caller calls them after unlocking.
  std::vector<std::function<void()>> FailLocked(const absl::Status& cause, bool lost,
                                                uint32_t culprit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::function<void()>> ReleaseStarts() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string id_;
  const JobShape shape_;
  mutable base::Mutex mutex_;
  std::map<uint32_t, Entry> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<Start> starts_ ABSL_GUARDED_BY(mutex_);
  std::map<MeetingKey, Meeting> meetings_ ABSL_GUARDED_BY(mutex_);
  struct RunRecord {
    uint32_t program;
    uint32_t first_instance;
    uint32_t seen = 0;  // instances that started it
  };
  std::map<uint64_t, RunRecord> runs_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_join_ ABSL_GUARDED_BY(mutex_) = Clock::now();
};

}  // namespace vpod::fabric
