#include "device/fabric/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace vpod::fabric {
namespace {

constexpr uint32_t kMaxReplicas = 65536;  // IPUs of the largest POD

void CallAll(const std::vector<std::function<void()>>& calls) {
  for (const auto& call : calls) call();
}

std::string Replicas(const JobMember& member) {
  return absl::StrCat(member.replica_offset, " to ",
                      member.replica_offset + member.local_replicas - 1);
}

}  // namespace

Job::Job(std::string id, JobShape shape) : id_(std::move(id)), shape_(shape) {}

std::string Job::Name(uint32_t instance) const {
  const auto it = members_.find(instance);
  if (it == members_.end()) return absl::StrCat("instance ", instance);
  return absl::StrCat("instance ", instance, " (", it->second.member.process, ")");
}

absl::Status Job::Contradiction(const JobShape& shape, const JobMember& member) const {
  const auto wrong = [&](const std::string& what) { return absl::FailedPreconditionError(what); };
  const std::string self = absl::StrCat("instance ", member.instance);
  if (shape.num_instances < 1 || shape.num_instances > shape.total_replicas ||
      shape.total_replicas > kMaxReplicas) {
    return wrong(absl::StrCat(self, " says ", shape.num_instances, " instances and ",
                              shape.total_replicas, " replicas; a job has 1 to ", kMaxReplicas,
                              " replicas and no more instances than replicas"));
  }
  if (shape != shape_) {
    return wrong(absl::StrCat(self, " says ", shape.num_instances, " instances, ",
                              shape.total_replicas, " replicas, ", shape.ipus_per_replica,
                              " IPUs per replica, others say ", shape_.num_instances, ", ",
                              shape_.total_replicas, ", ", shape_.ipus_per_replica));
  }
  if (member.instance >= shape_.num_instances) {
    return wrong(
        absl::StrCat(self, " does not exist in a job of ", shape_.num_instances, " instances"));
  }
  if (uint64_t{member.replica_offset} + member.local_replicas > shape_.total_replicas ||
      member.local_replicas == 0) {
    return wrong(absl::StrCat(self, " covers replicas ", Replicas(member), ", but the job has ",
                              shape_.total_replicas));
  }
  for (const auto& [instance, entry] : members_) {
    if (instance == member.instance) {
      return wrong(
          absl::StrCat(self, " joined twice: ", entry.member.process, " and ", member.process));
    }
    const JobMember& other = entry.member;
    if (member.replica_offset < other.replica_offset + other.local_replicas &&
        other.replica_offset < member.replica_offset + member.local_replicas) {
      return wrong(absl::StrCat(self, " covers replicas ", Replicas(member), ", instance ",
                                instance, " covers replicas ", Replicas(other), ": they overlap"));
    }
  }
  return absl::OkStatus();
}

absl::Status Job::Join(const JobShape& shape, JobMember member) {
  std::vector<std::function<void()>> calls;
  absl::Status result;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    result = Contradiction(shape, member);
    if (result.ok()) {
      const uint32_t instance = member.instance;
      last_join_ = Clock::now();
      members_.emplace(instance, Entry{std::move(member), {}, false});
      calls = ReleaseStarts();
    } else {
      calls = FailLocked(result, false, member.instance);
    }
  }
  CallAll(calls);
  return result;
}

void Job::Loaded(uint32_t instance, const std::string& executable_hash) {
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    const auto it = members_.find(instance);
    if (it == members_.end()) return;
    it->second.hash = executable_hash;
    last_join_ = Clock::now();
    calls = ReleaseStarts();
  }
  CallAll(calls);
}

bool Job::Complete() const {
  uint32_t replicas = 0;
  for (const auto& [instance, entry] : members_) {
    if (entry.hash.empty()) return false;
    replicas += entry.member.local_replicas;
  }
  return replicas == shape_.total_replicas;
}

// "instance 2 loaded a1b2…, instances 0, 1, 3 loaded c3d4…"
absl::Status Job::Disagreement() const {
  std::map<std::string, std::vector<uint32_t>> by_hash;
  for (const auto& [instance, entry] : members_) by_hash[entry.hash].push_back(instance);
  if (by_hash.size() <= 1) return absl::OkStatus();
  std::vector<std::pair<std::vector<uint32_t>, std::string>> groups;
  for (const auto& [hash, instances] : by_hash) groups.emplace_back(instances, hash);
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.first.size(), a.first) < std::make_pair(b.first.size(), b.first);
  });
  return absl::FailedPreconditionError(
      absl::StrCat("the instances run different programs: ",
                   absl::StrJoin(groups, ", ", [](std::string* out, const auto& group) {
                     absl::StrAppend(out, group.first.size() == 1 ? "instance " : "instances ",
                                     absl::StrJoin(group.first, ", "), " loaded ",
                                     group.second.substr(0, 8), "…");
                   })));
}

std::vector<std::function<void()>> Job::ReleaseStarts() {
  if (starts_.empty() || !Complete()) return {};
  const absl::Status status = Disagreement();
  if (!status.ok()) return FailLocked(status, false, 0);
  std::vector<std::function<void()>> calls;
  for (Start& start : starts_) {
    calls.push_back([ready = std::move(start.ready)] { ready(absl::OkStatus()); });
  }
  starts_.clear();
  return calls;
}

void Job::StartRun(uint32_t instance, uint64_t run, uint32_t program, Resume ready) {
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) {
      calls.push_back([ready, status = failure_] { ready(status); });
    } else {
      const auto [record, inserted] = runs_.try_emplace(run, RunRecord{program, instance});
      if (record->second.program != program) {
        calls = FailLocked(absl::FailedPreconditionError(absl::StrCat(
                               "instance ", instance, " runs program ", program, " as its run ",
                               run, ", instance ", record->second.first_instance, " runs program ",
                               record->second.program)),
                           false, instance);
        calls.push_back([ready, status = failure_] { ready(status); });
      } else {
        if (++record->second.seen == shape_.num_instances) runs_.erase(record);
        starts_.push_back({instance, std::move(ready), Clock::now()});
        calls = ReleaseStarts();
      }
    }
  }
  CallAll(calls);
}

uint32_t Job::InstanceOfReplica(size_t replica) const {
  for (const auto& [instance, entry] : members_) {
    if (replica >= entry.member.replica_offset &&
        replica < entry.member.replica_offset + entry.member.local_replicas) {
      return instance;
    }
  }
  return 0;
}

void Job::Meet(const MeetingKey& key, size_t expected, size_t position, uint32_t instance,
               void* participant, Resume resume, MeetingAction action) {
  std::vector<std::function<void()>> calls;
  Meeting complete;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) {
      calls.push_back([resume, status = failure_] { resume(status); });
    } else {
      Meeting& meeting = meetings_[key];
      if (meeting.participants.empty()) {
        meeting.participants.resize(expected);
        meeting.resumes.resize(expected);
        meeting.arrived.resize(expected);
        meeting.missing = expected;
        meeting.since = Clock::now();
      }
      meeting.participants[position] = participant;
      meeting.resumes[position] = std::move(resume);
      meeting.arrived[position] = true;
      meeting.instances.push_back(instance);
      if (--meeting.missing == 0) {
        complete = std::move(meeting);
        meetings_.erase(key);
      } else if (IsCollective(key)) {
        // Whoever has left will not come any more.
        for (const auto& [other, entry] : members_) {
          if (entry.left && !meeting.arrived[entry.member.replica_offset]) {
            calls =
                FailLocked(absl::AbortedError(absl::StrCat(Name(other), " left the job before run ",
                                                           key.run, " was complete")),
                           false, other);
            break;
          }
        }
      }
    }
  }
  CallAll(calls);
  if (complete.participants.empty()) return;
  auto resumes = std::make_shared<std::vector<Resume>>(std::move(complete.resumes));
  action(complete.participants, [resumes](absl::Status status) {
    for (const Resume& each : *resumes) each(status);
  });
}

void Job::Leave(uint32_t instance, bool lost) {
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    const auto it = members_.find(instance);
    if (it == members_.end() || it->second.left) return;
    it->second.left = true;
    // The client is gone: it must not be called any more.
    it->second.member.notice = nullptr;
    it->second.member.failed = nullptr;
    bool needed = lost;
    for (const auto& [key, meeting] : meetings_) {
      needed = needed || (IsCollective(key) && !meeting.arrived[it->second.member.replica_offset]);
    }
    needed = needed || !Complete();
    if (needed && failure_.ok()) {
      calls = FailLocked(
          absl::AbortedError(absl::StrCat(Name(instance), lost ? " was lost" : " left the job")),
          lost, instance);
    }
  }
  CallAll(calls);
}

bool Job::Empty() const {
  base::MutexLock lock(mutex_);
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& item) { return item.second.left; });
}

std::vector<std::function<void()>> Job::FailLocked(const absl::Status& cause, bool lost,
                                                   uint32_t culprit) {
  if (!failure_.ok()) return {};
  failure_ = cause;
  std::vector<std::function<void()>> calls;
  for (const auto& [instance, entry] : members_) {
    if (entry.member.failed) {
      calls.push_back(
          [failed = entry.member.failed, cause, lost, culprit] { failed(cause, lost, culprit); });
    }
  }
  for (Start& start : starts_) {
    calls.push_back([ready = std::move(start.ready), cause] { ready(cause); });
  }
  starts_.clear();
  for (auto& [key, meeting] : meetings_) {
    for (Resume& resume : meeting.resumes) {
      if (resume) calls.push_back([resume = std::move(resume), cause] { resume(cause); });
    }
  }
  meetings_.clear();
  return calls;
}

void Job::Fail(const absl::Status& cause, bool lost, uint32_t culprit) {
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    calls = FailLocked(cause, lost, culprit);
  }
  CallAll(calls);
}

std::vector<uint32_t> Job::MissingInstances() const {
  std::vector<uint32_t> missing;
  for (uint32_t instance = 0; instance < shape_.num_instances; ++instance) {
    const auto it = members_.find(instance);
    if (it == members_.end() || it->second.hash.empty()) missing.push_back(instance);
  }
  return missing;
}

std::string Job::WaitingText(const std::vector<uint32_t>& missing) const {
  return absl::StrCat("waiting for ", missing.size(), " of ", shape_.num_instances,
                      " instances: ", absl::StrJoin(missing, ", "));
}

void Job::Tick(Clock::time_point now, Clock::duration patience, Clock::duration join_timeout) {
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    const auto tell = [&](uint32_t instance, const std::string& text) {
      const auto it = members_.find(instance);
      if (it != members_.end() && it->second.member.notice) {
        calls.push_back([notice = it->second.member.notice, text] { notice(text); });
      }
    };
    const std::vector<uint32_t> absent =
        starts_.empty() ? std::vector<uint32_t>() : MissingInstances();
    for (Start& start : starts_) {
      if (absent.empty() || start.noticed || now - start.since < patience) continue;
      start.noticed = true;
      tell(start.instance, WaitingText(absent));
    }
    for (auto& [key, meeting] : meetings_) {
      if (meeting.noticed || now - meeting.since < patience || !IsCollective(key)) continue;
      meeting.noticed = true;
      std::vector<uint32_t> missing;
      for (size_t replica = 0; replica < meeting.arrived.size(); ++replica) {
        if (!meeting.arrived[replica]) missing.push_back(InstanceOfReplica(replica));
      }
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      std::vector<uint32_t> present = meeting.instances;
      std::sort(present.begin(), present.end());
      present.erase(std::unique(present.begin(), present.end()), present.end());
      for (uint32_t instance : present) tell(instance, WaitingText(missing));
    }
    if (!starts_.empty() && !absent.empty() && now - last_join_ > join_timeout) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(join_timeout).count();
      auto failed = FailLocked(
          absl::DeadlineExceededError(absl::StrCat(
              absent.size() == 1 ? "instance " : "instances ", absl::StrJoin(absent, ", "), " of ",
              shape_.num_instances, " did not join within ", seconds, " s")),
          false, absent.front());
      calls.insert(calls.end(), failed.begin(), failed.end());
    }
  }
  CallAll(calls);
}

}  // namespace vpod::fabric
