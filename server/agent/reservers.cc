// Notices about a job's instances to the holder of its parent device (poprun).
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/text.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

// By SIGSTOP or its like, not by a debugger. A pid that has ended, or is another's by now, matters
// for a moment only: the lease ends with its process.
bool IsStopped(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return false;
  const size_t name_end = text.rfind(')');  // "4711 (name) T …"; names may hold anything
  return name_end != std::string::npos && text.compare(name_end, 4, ") T ") == 0;
}

}  // namespace

std::string Agent::ReservationOf(const ipuof::v1::AttachOpen& open) {
  const std::string& job_id = open.job().job_id();
  return absl::StrCat(open.partition_id(), "\n",
                      absl::string_view(job_id).substr(0, job_id.find('#')));
}

// A look at its process, besides what was heard: a lease outlives its process for a moment.
bool Agent::IsGone(const Lease& lease) {
  if (lease.releasing) return true;
  pollfd ended{lease.liveness_fd, POLLIN, 0};
  return lease.liveness_fd >= 0 && poll(&ended, 1, 0) == 1;
}

bool Agent::HasReserver(const ipuof::v1::AttachOpen& open) {
  const auto [begin, end] = reservers_.equal_range(ReservationOf(open));
  return std::any_of(begin, end, [](const auto& entry) { return !IsGone(*entry.second); });
}

void Agent::RevokeReserved(const Lease& reserver, const std::string& reason) {
  std::vector<std::pair<LeasePtr, std::string>> orphans;
  {
    base::MutexLock lock(mutex_);
    if (HasReserver(reserver.open)) return;  // of another GCD
    for (const auto& [id, lease] : leases_) {
      if (!lease->releasing && !lease->open.reserve_only() && lease->open.job().reserved() &&
          Reserves(reserver, lease->open))
        orphans.emplace_back(lease, reason);
    }
  }
  Revoke(orphans);
}

bool Agent::Reserves(const Lease& reserver, const ipuof::v1::AttachOpen& open) {
  return reserver.open.reserve_only() && !reserver.open.job().job_id().empty() &&
         ReservationOf(reserver.open) == ReservationOf(open);
}

void Agent::TellReservers(const Lease& lease, const ipuof::v1::AttachEvent& event) {
  std::vector<LeasePtr> reservers;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, other] : leases_) {
      if (Reserves(*other, lease.open)) reservers.push_back(other);
    }
  }
  for (const LeasePtr& reserver : reservers) {
    if (reserver->events.on_event) reserver->events.on_event(event);
  }
}

void Agent::TellOfLeaving(const Lease& gone, bool lost) {
  ipuof::v1::AttachEvent event;
  ipuof::v1::JobFailed* failed = event.mutable_job_failed();
  failed->set_cause(absl::StrCat("instance ", gone.open.job().instance_index(), " (",
                                 ProcessName(gone.open.process()),
                                 lost ? ") was lost" : ") left the job"));
  failed->set_instance_lost(lost);
  failed->set_instance_index(gone.open.job().instance_index());
  failed->set_pid(gone.open.process().pid());
  failed->set_host(gone.open.process().host());
  failed->set_pid_namespace(gone.open.process().pid_namespace());
  TellReservers(gone, event);
}

// A job has no more instances than its partition has IPUs.
size_t Agent::MostInstances(const Lease& reserver) const {
  const Partition* partition = PartitionOf(reserver);
  size_t ipus = 0;
  if (partition == nullptr) return ipus;
  for (const std::vector<Member>& gcd : partition->gcds) ipus += gcd.size();
  return ipus;
}

void Agent::InstanceEnded(absl::string_view lease_id, const ipuof::v1::AttachInstanceEnded& ended) {
  const uint32_t instance = ended.instance_index();
  ipuof::v1::ProcessInfo shown = ended.process();
  shown.set_host(base::Printable(shown.host()));
  const std::string process = ProcessName(shown);
  std::vector<std::shared_ptr<fabric::Job>> jobs;
  {
    base::MutexLock lock(mutex_);
    const auto it = leases_.find(std::string(lease_id));
    if (it == leases_.end()) return;
    Lease& reserver = *it->second;
    const std::string& partition = reserver.open.partition_id();
    const std::string& id = reserver.open.job().job_id();
    // Whatever the reservation says: the names are kept as long as it is.
    const uint64_t instances =
        std::min<uint64_t>(reserver.open.job().num_instances(), MostInstances(reserver));
    if (!reserver.open.reserve_only() || id.empty() || reserver.releasing || instance >= instances)
      return;
    reserver.ended_instances.emplace(instance, process);
    for (const std::string& begin : {JobKey(partition, id), JobKey(partition, id + "#")}) {
      for (auto job = jobs_.lower_bound(begin); job != jobs_.end(); ++job) {
        if (!absl::StartsWith(job->first, begin)) break;
        if (job->first == begin || begin.back() == '#') jobs.push_back(job->second);
      }
    }
  }
  for (const auto& job : jobs) job->InstanceEnded(instance, process);
}

void Agent::TellOfStopped(fabric::Job::Clock::time_point now) {
  std::vector<std::pair<LeasePtr, bool>> instances;  // and whether their processes are stopped
  {
    base::MutexLock lock(mutex_);
    std::set<std::string> reserved;
    for (const auto& [id, lease] : leases_) {
      if (lease->open.reserve_only()) reserved.insert(ReservationOf(lease->open));
    }
    if (reserved.empty()) return;
    for (const auto& [id, lease] : leases_) {
      if (lease->pid != 0 && !lease->releasing && !lease->open.reserve_only() &&
          reserved.contains(ReservationOf(lease->open))) {
        instances.emplace_back(lease, false);
      }
    }
  }
  for (auto& [lease, stopped] : instances) stopped = IsStopped(lease->pid);
  std::vector<LeasePtr> changed;
  for (const auto& [lease, stopped] : instances) {
    if (!stopped) {
      lease->stopped_since.reset();
    } else if (!lease->stopped_since.has_value()) {
      lease->stopped_since = now;
    }
    const bool tell =
        lease->stopped_since.has_value() &&
        (lease->told_stopped || now - *lease->stopped_since >= options_.wait_patience);
    if (std::exchange(lease->told_stopped, tell) != tell) changed.push_back(lease);
  }
  for (const LeasePtr& lease : changed) {
    ipuof::v1::AttachEvent event;
    ipuof::v1::InstanceStopped* stopped = event.mutable_instance_stopped();
    stopped->set_instance_index(lease->open.job().instance_index());
    stopped->set_pid(lease->open.process().pid());
    stopped->set_host(lease->open.process().host());
    stopped->set_pid_namespace(lease->open.process().pid_namespace());
    stopped->set_goes_on(!lease->told_stopped);
    TellReservers(*lease, event);
  }
}

}  // namespace vpod::agent
