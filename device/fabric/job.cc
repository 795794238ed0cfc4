// The record of a job: who has joined, whether they agree, and how it ends.
#include "device/fabric/job.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/random_id.h"
#include "device/fabric/collectives.h"

namespace vpod::fabric {
namespace {

constexpr uint32_t kMaxReplicas = arch::kMaxIpusPerPod;

std::string Replicas(const JobPart& part) {
  return absl::StrCat(part.replica_offset, " to ", part.replica_offset + part.local_replicas - 1);
}

// Neither list holds a number twice; both ascend.
bool Overlap(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  std::vector<uint32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return !both.empty();
}

}  // namespace

Job::Job(std::string id, JobShape shape, Role role,
         std::function<void(const std::vector<JobPart>&)> form)
    : id_(std::move(id)), shape_(shape), role_(role), form_(std::move(form)) {
  if (role == Role::kCoordinator) secrets_ = {base::RandomId(), base::RandomId()};
}

JobSecrets Job::secrets() const {
  base::MutexLock lock(mutex_);
  return secrets_;
}

void Job::SetSecrets(JobSecrets secrets) {
  base::MutexLock lock(mutex_);
  secrets_ = std::move(secrets);
}

void Job::CallAll(const Calls& calls) {
  for (const auto& call : calls) call();
}

std::string Job::Name(uint32_t instance) const {
  const auto it = members_.lower_bound({instance, 0});
  if (it == members_.end() || it->first.first != instance)
    return absl::StrCat("instance ", instance);
  return absl::StrCat("instance ", instance, " (", it->second.member.process, ")");
}

absl::Status Job::Contradiction(const JobShape& shape, const JobMember& member) const {
  const auto wrong = [&](const std::string& what) { return absl::FailedPreconditionError(what); };
  const std::string self = absl::StrCat("instance ", member.instance);
  if (shape.num_instances < 1 || shape.num_instances > shape.total_replicas ||
      shape.total_replicas > kMaxReplicas) {
    return wrong(absl::StrCat(self, " says ", base::Counted(shape.num_instances, "instance"),
                              " and ", base::Counted(shape.total_replicas, "replica"),
                              "; a job has 1 to ", kMaxReplicas,
                              " replicas and no more instances than replicas"));
  }
  if (shape != shape_) {
    return wrong(absl::StrCat(self, " says ", base::Counted(shape.num_instances, "instance"), ", ",
                              base::Counted(shape.total_replicas, "replica"), ", ",
                              base::Counted(shape.ipus_per_replica, "IPU"),
                              " per replica, others say ", shape_.num_instances, ", ",
                              shape_.total_replicas, ", ", shape_.ipus_per_replica));
  }
  if (member.instance >= shape_.num_instances) {
    return wrong(absl::StrCat(self, " does not exist in a job of ",
                              base::Counted(shape_.num_instances, "instance")));
  }
  if (uint64_t{member.replica_offset} + member.local_replicas > shape_.total_replicas ||
      member.local_replicas == 0) {
    return wrong(absl::StrCat(self, " covers replicas ", Replicas(member), ", but the job has ",
                              shape_.total_replicas));
  }
  const uint64_t first = uint64_t{member.replica_offset} * shape_.ipus_per_replica;
  const uint64_t last = first + uint64_t{member.local_replicas} * shape_.ipus_per_replica;
  if (!std::is_sorted(member.units.begin(), member.units.end()) || member.units.front() < first ||
      member.units.back() >= last) {
    return wrong(absl::StrCat(self, " has units beyond its replicas ", Replicas(member)));
  }
  for (const auto& [key, entry] : members_) {
    const JobMember& other = entry.member;
    if (key == PartKey{member.instance, member.part} ||
        (other.instance == member.instance && other.process != member.process)) {
      return wrong(absl::StrCat(self, " joined twice: ", other.process, " and ", member.process));
    }
    if (other.instance == member.instance
            ? Overlap(member.units, other.units)
            : member.replica_offset < other.replica_offset + other.local_replicas &&
                  other.replica_offset < member.replica_offset + member.local_replicas) {
      return wrong(absl::StrCat(self, " covers replicas ", Replicas(member), ", instance ",
                                other.instance, " covers replicas ", Replicas(other),
                                ": they overlap"));
    }
  }
  return absl::OkStatus();
}

absl::Status Job::Join(const JobShape& shape, JobMember member) {
  Calls calls;
  absl::Status result;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (member.units.empty() && shape == shape_ && member.replica_offset < kMaxReplicas &&
        member.local_replicas <= shape_.total_replicas) {
      for (uint32_t i = 0; i < member.local_replicas * shape_.ipus_per_replica; ++i)
        member.units.push_back(member.replica_offset * shape_.ipus_per_replica + i);
    }
    result = Contradiction(shape, member);
    if (result.ok()) {
      last_join_ = Clock::now();
      const PartKey key{member.instance, member.part};
      ended_.erase(member.instance);
      members_.emplace(key, Entry{std::move(member), {}, false});
      calls = Advance();
    } else {
      calls = FailLocked(result, false, member.instance);
    }
  }
  CallAll(calls);
  return result;
}

void Job::Loaded(uint32_t instance, uint32_t part, const std::string& executable_hash) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    const auto it = members_.find({instance, part});
    if (it == members_.end()) return;
    it->second.hash = executable_hash;
    last_join_ = Clock::now();
    if (const auto& coordinator = it->second.member.coordinator)
      calls.push_back([coordinator, executable_hash] { coordinator->Loaded(executable_hash); });
    for (auto& call : Advance()) calls.push_back(std::move(call));
  }
  CallAll(calls);
}

bool Job::AllLoaded() const {
  uint64_t units = 0;
  for (const auto& [key, entry] : members_) {
    if (entry.hash.empty()) return false;
    units += entry.member.units.size();
  }
  return units == shape_.units();
}

// "instance 2 loaded a1b2…, instances 0, 1, 3 loaded c3d4…"
absl::Status Job::Disagreement() const {
  std::map<std::string, std::set<uint32_t>> by_hash;
  for (const auto& [key, entry] : members_) {
    if (!entry.left)
      by_hash[entry.hash].insert(key.first);  // an instance that has left runs nothing
  }
  if (by_hash.size() <= 1) return absl::OkStatus();
  std::vector<std::pair<std::set<uint32_t>, std::string>> groups;
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

Job::Calls Job::Advance() {
  if (!failure_.ok()) return {};
  Calls calls;
  if (role_ != Role::kFollower && AllLoaded()) {
    // A local job compares when an instance wants to run; until then instances may load again.
    if (role_ == Role::kCoordinator || !starts_.empty()) {
      const absl::Status status = Disagreement();
      if (!status.ok()) return FailLocked(status, false, 0);
    }
    if (role_ == Role::kLocal) formed_ = true;
    if (role_ == Role::kCoordinator && !std::exchange(forming_, true)) {
      std::vector<JobPart> parts;
      for (const auto& [key, entry] : members_) parts.push_back(entry.member);
      for (const auto& [key, entry] : members_) {
        if (entry.member.formed)
          calls.push_back([formed = entry.member.formed, parts] { formed(parts); });
      }
      calls.push_back([form = form_, parts] { form(parts); });
    }
  } else if (role_ == Role::kLocal) {
    formed_ = false;
  }
  if (!formed_) return calls;
  for (Start& start : starts_) {
    calls.push_back([ready = std::move(start.ready)] {
      if (ready) ready(absl::OkStatus());
    });
  }
  starts_.clear();
  return calls;
}

void Job::Complete(const std::vector<JobPart>& parts) {
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok() || std::exchange(forming_, true)) return;
    for (const JobPart& part : parts) {
      Entry entry;
      static_cast<JobPart&>(entry.member) = part;
      members_.emplace(PartKey{part.instance, part.part}, std::move(entry));
    }
  }
  form_(parts);
}

void Job::Formed(std::shared_ptr<Collectives> collectives) {
  Calls calls;
  absl::Status failure;
  {
    base::MutexLock lock(mutex_);
    failure = failure_;
    collectives_ = collectives;
    is_here_.assign(shape_.units(), false);
    for (const auto& [key, entry] : members_) {
      if (!entry.member.endpoint.empty()) continue;
      for (uint32_t unit : entry.member.units) is_here_[unit] = true;
      if (entry.member.coordinator) {
        calls.push_back([coordinator = entry.member.coordinator, address = collectives->address()] {
          coordinator->Ready(address);
        });
      }
    }
    for (auto& call : GoWhenReady()) calls.push_back(std::move(call));
  }
  if (!failure.ok()) collectives->Fail(failure);
  CallAll(calls);
}

void Job::ReadyElsewhere(uint32_t instance, uint32_t part, const std::string& address) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    ready_elsewhere_[{instance, part}] = address;
    calls = GoWhenReady();
  }
  CallAll(calls);
}

Job::Calls Job::GoWhenReady() {
  if (role_ != Role::kCoordinator || formed_ || collectives_ == nullptr) return {};
  std::map<std::string, std::string> address_of = {{"", collectives_->address()}};
  for (const auto& [key, entry] : members_) {
    if (entry.member.endpoint.empty()) continue;
    const auto ready = ready_elsewhere_.find(key);
    if (ready == ready_elsewhere_.end()) return {};
    address_of[entry.member.endpoint] = ready->second;
  }
  collectives_->Begin(address_of);
  formed_ = true;
  Calls calls = Advance();
  for (const auto& [key, entry] : members_) {
    if (entry.member.go) calls.push_back([go = entry.member.go, address_of] { go(address_of); });
  }
  return calls;
}

void Job::Go(const std::map<std::string, std::string>& address_of) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    if (collectives_ == nullptr) return;  // we have not said that we are ready
    collectives_->Begin(address_of);
    formed_ = true;
    calls = Advance();
  }
  CallAll(calls);
}

std::shared_ptr<Collectives> Job::collectives() const {
  base::MutexLock lock(mutex_);
  return collectives_;
}

size_t Job::LocalParts() const {
  return static_cast<size_t>(std::count_if(members_.begin(), members_.end(), [](const auto& item) {
    return item.second.member.endpoint.empty();
  }));
}

Job::Calls Job::InstanceLeft(const Entry& entry, bool lost) {
  if (!(lost || IsNeeded(entry)) || !failure_.ok()) return {};
  const uint32_t instance = entry.member.instance;
  return FailLocked(
      absl::AbortedError(absl::StrCat(Name(instance), lost ? " was lost" : " left the job")), lost,
      instance);
}

void Job::Leave(uint32_t instance, uint32_t part, bool lost, const absl::Status& broken_run) {
  LeaveAfter(std::nullopt, instance, part, lost, broken_run);
}

void Job::LeaveElsewhere(uint32_t instance, uint32_t part, bool lost, uint64_t runs) {
  LeaveAfter(runs, instance, part, lost, absl::OkStatus());
}

void Job::LeaveAfter(std::optional<uint64_t> runs, uint32_t instance, uint32_t part, bool lost,
                     const absl::Status& broken_run) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    const auto it = members_.find({instance, part});
    if (it == members_.end() || it->second.left) return;
    it->second.left = true;
    if (runs) {
      it->second.runs = *runs;
    } else {
      const auto last_run = last_runs_.find(instance);
      runs = last_run == last_runs_.end() ? 0 : last_run->second + 1;
      last_runs_[instance] = kFirstLoneRun;  // it begins none of the others' runs any more
    }
    // The client is gone: it must not be called any more.
    JobMember& member = it->second.member;
    member.notice = nullptr;
    member.failed = nullptr;
    member.formed = nullptr;
    member.go = nullptr;
    member.left = nullptr;
    calls = InstanceLeft(it->second, lost);
    if (!broken_run.ok()) {
      for (auto& call : FailLocked(broken_run, lost, instance)) calls.push_back(std::move(call));
    }
    // After a failure, which the coordinator would not hear any more.
    if (member.coordinator)
      calls.push_back([coordinator = member.coordinator, lost, runs = *runs] {
        coordinator->Leave(lost, runs);
      });
    for (const auto& [key, entry] : members_) {
      if (!lost && entry.member.left)
        calls.push_back(
            [left = entry.member.left, instance, runs = *runs] { left(instance, runs); });
    }
  }
  CallAll(calls);
}

void Job::LeftElsewhere(uint32_t instance, uint64_t runs) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    for (auto& [key, entry] : members_) {
      if (key.first != instance || entry.left || entry.member.endpoint.empty()) continue;
      entry.left = true;
      entry.runs = runs;
      for (auto& call : InstanceLeft(entry, false)) calls.push_back(std::move(call));
    }
  }
  CallAll(calls);
}

bool Job::Empty() const {
  base::MutexLock lock(mutex_);
  return std::all_of(members_.begin(), members_.end(), [](const auto& item) {
    return item.second.left || (!item.second.member.endpoint.empty() && !item.second.member.failed);
  });
}

Job::Calls Job::FailLocked(const absl::Status& cause, bool lost, uint32_t culprit) {
  if (!failure_.ok()) return {};
  failure_ = cause;
  Calls calls;
  for (const auto& [key, entry] : members_) {
    if (entry.member.failed) {
      calls.push_back(
          [failed = entry.member.failed, cause, lost, culprit] { failed(cause, lost, culprit); });
    }
    if (const auto& coordinator = entry.member.coordinator)
      calls.push_back(
          [coordinator, cause, lost, culprit] { coordinator->Fail(cause, lost, culprit); });
  }
  for (Start& start : starts_) {
    if (start.ready) calls.push_back([ready = std::move(start.ready), cause] { ready(cause); });
  }
  starts_.clear();
  for (auto& [key, rendezvous] : open_rendezvous_) {
    for (Resume& resume : rendezvous.resumes) {
      if (resume) calls.push_back([resume = std::move(resume), cause] { resume(cause); });
    }
  }
  open_rendezvous_.clear();
  if (collectives_ != nullptr)
    calls.push_back([collectives = collectives_, cause] { collectives->Fail(cause); });
  return calls;
}

void Job::Fail(const absl::Status& cause, bool lost, uint32_t culprit) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    calls = FailLocked(cause, lost, culprit);
  }
  CallAll(calls);
}

}  // namespace vpod::fabric
