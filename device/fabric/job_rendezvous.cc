// Where the instances of a job wait for each other: at the start of runs and in rendezvous.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/fabric/collectives.h"
#include "device/fabric/job.h"

namespace vpod::fabric {
namespace {

// That some instance has not begun: one whose runs all fail must not run ahead for ever.
constexpr size_t kMostFailedRuns = 1000;

}  // namespace

absl::Status Job::NoteRun(uint32_t instance, uint64_t run, uint32_t program) {
  if (run >= kFirstLoneRun) return absl::OkStatus();
  const auto [record, inserted] = runs_.try_emplace(run, RunRecord{program, instance});
  if (record->second.program != program) {
    return absl::FailedPreconditionError(absl::StrCat(
        "instance ", instance, " runs program ", program, " as its run ", run, ", instance ",
        record->second.first_instance, " runs program ", record->second.program));
  }
  const size_t parts = role_ == Role::kLocal ? shape_.num_instances : LocalParts();
  if (++record->second.seen >= parts) runs_.erase(record);
  return absl::OkStatus();
}

void Job::StartRun(uint32_t instance, uint64_t run, uint32_t program, Resume ready) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    const absl::Status status = failure_.ok() ? NoteRun(instance, run, program) : failure_;
    ForgetFailedRuns(instance, run);
    if (!status.ok()) {
      calls = FailLocked(status, false, instance);  // once
      calls.push_back([ready, status] { ready(status); });
    } else if (const absl::Status failed = RunFailure(run); !failed.ok()) {
      calls.push_back([ready, failed] { ready(failed); });
    } else {
      starts_.push_back({instance, std::move(ready), Clock::now()});
      for (const auto& [key, entry] : members_) {
        if (key.first == instance && entry.member.coordinator && !formed_)
          calls.push_back([coordinator = entry.member.coordinator] { coordinator->Waits(); });
      }
      for (auto& call : Advance()) calls.push_back(std::move(call));
      for (auto& call : FailUnlessItCanForm()) calls.push_back(std::move(call));
    }
  }
  CallAll(calls);
}

Job::Calls Job::FailUnlessItCanForm() {
  if (formed_ || starts_.empty() || !failure_.ok()) return {};
  for (const auto& [key, entry] : members_) {
    if (entry.left) return InstanceLeft(entry, /*lost=*/false);
  }
  if (ended_.empty()) return {};
  const auto& [instance, process] = *ended_.begin();
  return FailLocked(absl::AbortedError(absl::StrCat("instance ", instance, " (", process,
                                                    ") ended before it joined the job")),
                    /*lost=*/false, instance);
}

void Job::InstanceEnded(uint32_t instance, const std::string& process) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    // A follower does not know who has joined elsewhere.
    if (role_ == Role::kFollower || instance >= shape_.num_instances) return;
    const auto joined = members_.lower_bound({instance, 0});
    if (joined != members_.end() && joined->first.first == instance) return;
    ended_.emplace(instance, process);
    calls = FailUnlessItCanForm();
  }
  CallAll(calls);
}

absl::Status Job::RunFailure(uint64_t run) const {
  const auto it = failed_runs_.find(run);
  return it == failed_runs_.end() ? absl::OkStatus() : it->second;
}

bool Job::HasFailedRun(uint64_t run) const {
  base::MutexLock lock(mutex_);
  return failed_runs_.contains(run);
}

void Job::ForgetFailedRun(uint64_t run) {
  base::MutexLock lock(mutex_);
  failed_runs_.erase(run);
}

void Job::ForgetFailedRuns(uint32_t instance, uint64_t run) {
  if (run >= kFirstLoneRun) return;
  const auto [last_run, is_first] = last_runs_.try_emplace(instance, run);
  // Another executable was loaded, whose runs are numbered from 0.
  if (!is_first && run <= last_run->second) failed_runs_.clear();
  last_run->second = run;
  if (failed_runs_.empty() || last_runs_.size() < shape_.num_instances) return;
  uint64_t first = kFirstLoneRun;  // that an instance may be in
  for (const auto& [each, last] : last_runs_) first = std::min(first, last);
  failed_runs_.erase(failed_runs_.begin(), failed_runs_.lower_bound(first));
}

void Job::FailRun(uint64_t run, const absl::Status& cause) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    if (!failure_.ok() || !failed_runs_.emplace(run, cause).second) return;
    if (failed_runs_.size() > kMostFailedRuns) {
      calls = FailLocked(absl::FailedPreconditionError(
                             absl::StrCat("more than ", kMostFailedRuns,
                                          " runs have failed that some instances have not begun")),
                         false, 0);
    }
    for (auto it = open_rendezvous_.lower_bound({.run = run});
         it != open_rendezvous_.end() && it->first.run == run; it = open_rendezvous_.erase(it)) {
      for (Resume& resume : it->second.resumes) {
        if (resume) calls.push_back([resume = std::move(resume), cause] { resume(cause); });
      }
    }
  }
  CallAll(calls);
}

void Job::WaitsElsewhere(uint32_t instance) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    if (formed_) return;
    starts_.push_back({instance, nullptr, Clock::now()});
    calls = FailUnlessItCanForm();
  }
  CallAll(calls);
}

uint32_t Job::InstanceOfReplica(size_t replica) const {
  for (const auto& [key, entry] : members_) {
    if (replica >= entry.member.replica_offset &&
        replica < entry.member.replica_offset + entry.member.local_replicas) {
      return key.first;
    }
  }
  return 0;
}

Job::Rendezvous Job::NewRendezvous(const RendezvousKey& key) const {
  Rendezvous rendezvous;
  const size_t positions = IsCollective(key) ? key.group.size : key.ipus;
  rendezvous.participants.resize(positions);
  rendezvous.resumes.resize(positions);
  rendezvous.arrived.resize(positions);
  rendezvous.since = Clock::now();
  for (size_t i = 0; i < positions; ++i) {
    if (!IsCollective(key) || IsHere(key.group.Replica(i), key.channel)) ++rendezvous.missing;
  }
  return rendezvous;
}

void Job::Meet(const RendezvousKey& key, size_t position, uint32_t instance, void* participant,
               Resume resume, RendezvousAction action) {
  Calls calls;
  Rendezvous complete;
  {
    base::MutexLock lock(mutex_);
    const absl::Status failure = failure_.ok() ? RunFailure(key.run) : failure_;
    if (!failure.ok()) {
      calls.push_back([resume, failure] { resume(failure); });
    } else {
      Rendezvous& rendezvous = open_rendezvous_[key];
      if (rendezvous.participants.empty()) rendezvous = NewRendezvous(key);
      rendezvous.participants[position] = participant;
      rendezvous.resumes[position] = std::move(resume);
      rendezvous.arrived[position] = true;
      rendezvous.instances.push_back(instance);
      if (--rendezvous.missing == 0) {
        complete = std::move(rendezvous);
        open_rendezvous_.erase(key);
      }
      if (IsCollective(key)) {
        // An instance that has left will not come any more.
        for (const auto& [other, entry] : members_) {
          const bool elsewhere = !entry.member.endpoint.empty();
          const Rendezvous& at = complete.participants.empty() ? rendezvous : complete;
          if (!entry.left || key.run < entry.runs || !WaitsFor(key, at, entry.member)) continue;
          if (complete.participants.empty() || elsewhere) {
            calls = FailLocked(
                absl::AbortedError(absl::StrCat(Name(other.first), " left the job before run ",
                                                key.run, " was complete")),
                false, other.first);
            break;
          }
        }
      }
    }
  }
  CallAll(calls);
  if (complete.participants.empty()) return;
  auto resumes = std::make_shared<std::vector<Resume>>(std::move(complete.resumes));
  std::erase(complete.participants, nullptr);
  action(complete.participants, [resumes](absl::Status status) {
    for (const Resume& each : *resumes) {
      if (each) each(status);
    }
  });
}

bool Job::WaitsFor(const RendezvousKey& key, const Rendezvous& rendezvous, const JobPart& part) {
  for (size_t i = 0; i < part.local_replicas; ++i) {
    const size_t replica = part.replica_offset + i;
    if (key.group.Contains(replica) && !rendezvous.arrived[key.group.Position(replica)])
      return true;
  }
  return false;
}

bool Job::IsNeeded(const Entry& entry) const {
  // A job that spans processes forms with every instance that has loaded, or not at all.
  if (!formed_ && (!AllLoaded() || (spans_processes() && !starts_.empty()))) return true;
  return AwaitsMessagesOf(entry) ||
         std::any_of(open_rendezvous_.begin(), open_rendezvous_.end(), [&](const auto& item) {
           return IsCollective(item.first) && item.first.run >= entry.runs &&
                  WaitsFor(item.first, item.second, entry.member);
         });
}

bool Job::AwaitsMessagesOf(const Entry& entry) const {
  return collectives_ != nullptr && !entry.member.endpoint.empty() &&
         collectives_->AwaitsReplicas(entry.member.replica_offset, entry.member.local_replicas,
                                      entry.runs);
}

std::vector<uint32_t> Job::MissingInstances() const {
  std::vector<uint64_t> loaded_units(shape_.num_instances), all_units(shape_.num_instances);
  for (const auto& [key, entry] : members_) {
    if (!entry.hash.empty()) loaded_units[key.first] += entry.member.units.size();
    all_units[key.first] = uint64_t{entry.member.local_replicas} * shape_.ipus_per_replica;
  }
  std::vector<uint32_t> missing;
  for (uint32_t instance = 0; instance < shape_.num_instances; ++instance) {
    if (all_units[instance] == 0 || loaded_units[instance] < all_units[instance])
      missing.push_back(instance);
  }
  return missing;
}

std::string Job::WaitingText(const std::vector<uint32_t>& missing) const {
  return absl::StrCat("waiting for ", missing.size(), " of ", shape_.num_instances,
                      " instances: ", absl::StrJoin(missing, ", "));
}

void Job::Tell(uint32_t instance, const std::string& text, Calls& calls) {
  // One part tells the client; rather one that is here than one whose process may be the one that
  // hangs.
  const JobMember* teller = nullptr;
  for (auto it = members_.lower_bound({instance, 0});
       it != members_.end() && it->first.first == instance; ++it) {
    const JobMember& member = it->second.member;
    if (member.notice && (teller == nullptr || !teller->endpoint.empty())) teller = &member;
  }
  if (teller != nullptr) calls.push_back([notice = teller->notice, text] { notice(text); });
}

void Job::TickStarts(Clock::time_point now, Clock::duration patience, Clock::duration join_timeout,
                     Calls& calls) {
  // A follower leaves it to the coordinator to know who is missing.
  if (starts_.empty() || role_ == Role::kFollower) return;
  const std::vector<uint32_t> absent = MissingInstances();
  if (absent.empty()) return;
  for (Start& start : starts_) {
    if (start.noticed || now - start.since < patience) continue;
    start.noticed = true;
    Tell(start.instance, WaitingText(absent), calls);
  }
  if (now - last_join_ <= join_timeout) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(join_timeout).count();
  auto failed =
      FailLocked(absl::DeadlineExceededError(absl::StrCat(
                     absent.size() == 1 ? "instance " : "instances ", absl::StrJoin(absent, ", "),
                     " of ", shape_.num_instances, " did not join within ", seconds, " s")),
                 false, absent.front());
  calls.insert(calls.end(), failed.begin(), failed.end());
}

void Job::TickRendezvous(Clock::time_point now, Clock::duration patience, Calls& calls) {
  for (auto& [key, rendezvous] : open_rendezvous_) {
    if (rendezvous.noticed || now - rendezvous.since < patience || !IsCollective(key)) continue;
    rendezvous.noticed = true;
    std::vector<uint32_t> missing;
    for (size_t i = 0; i < rendezvous.arrived.size(); ++i) {
      const size_t replica = key.group.Replica(i);
      if (!rendezvous.arrived[i] && IsHere(replica, key.channel))
        missing.push_back(InstanceOfReplica(replica));
    }
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    const std::set<uint32_t> present(rendezvous.instances.begin(), rendezvous.instances.end());
    for (uint32_t instance : present) Tell(instance, WaitingText(missing), calls);
  }
}

void Job::TickCollectives(Clock::time_point now, Clock::duration patience, Calls& calls) {
  if (collectives_ == nullptr) return;
  if (const absl::Status cause = collectives_->Unreachable(now, patience); !cause.ok()) {
    for (auto& call : FailLocked(cause, false, 0)) calls.push_back(std::move(call));
    return;
  }
  for (const Collectives::LateEnd& late : collectives_->FindLateEnds(now, patience))
    Tell(InstanceOfReplica(late.unit / shape_.ipus_per_replica), late.text, calls);
  const Collectives::Overdue overdue = collectives_->FindOverdue(now, patience);
  std::set<uint32_t> missing, here;
  for (uint32_t unit : overdue.units)
    missing.insert(InstanceOfReplica(unit / shape_.ipus_per_replica));
  for (const auto& [key, entry] : members_) {
    // This catches a collective that began while the instance was leaving.
    if (entry.left && AwaitsMessagesOf(entry)) {
      for (auto& call : InstanceLeft(entry, /*lost=*/false)) calls.push_back(std::move(call));
      return;
    }
    if (entry.member.endpoint.empty()) here.insert(key.first);
  }
  if (!overdue.fresh) return;
  const std::string text = WaitingText({missing.begin(), missing.end()});
  for (uint32_t instance : here) Tell(instance, text, calls);
}

void Job::Tick(Clock::time_point now, Clock::duration patience, Clock::duration join_timeout) {
  Calls calls;
  {
    base::MutexLock lock(mutex_);
    TickStarts(now, patience, join_timeout, calls);
    TickRendezvous(now, patience, calls);
    TickCollectives(now, patience, calls);
    for (const auto& [key, entry] : members_) {
      if (entry.member.coordinator && !entry.left)
        calls.push_back([coordinator = entry.member.coordinator] { coordinator->Alive(); });
    }
  }
  CallAll(calls);
}

}  // namespace vpod::fabric
