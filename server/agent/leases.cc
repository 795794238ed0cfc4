// Attaching, job membership and release.
#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

std::string ProcessName(const ipuof::v1::ProcessInfo& process) {
  return absl::StrCat("pid ", process.pid(), " on ", process.host());
}

std::string JobKey(const std::string& partition_id, const std::string& job_id) {
  return absl::StrCat(partition_id, "\n", job_id);
}

// A process may attach several times in the life of its job; it then appends "#<n>" to the job's
// id, so that each round of attaches is a job record of its own under the reservation of the whole.
bool IsChildJob(absl::string_view job_id, absl::string_view reserved_job_id) {
  return !reserved_job_id.empty() && job_id.substr(0, job_id.find('#')) == reserved_job_id;
}

void CallAll(std::vector<std::function<void()>>& calls) {
  for (auto& call : calls) call();
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> Agent::FindIpus(absl::string_view partition_id, uint32_t gcd,
                                                      uint32_t device_id,
                                                      const Partition** partition) {
  const auto it = partitions_.find(std::string(partition_id));
  if (it == partitions_.end()) {
    return absl::NotFoundError(absl::StrCat("partition ", partition_id, " is not on this agent"));
  }
  *partition = it->second.get();
  const auto& gcds = it->second->gcds;
  if (gcd >= gcds.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition has ", gcds.size(), " GCDs; GCD ", gcd, " does not exist."));
  }
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range,
                        arch::IpusOfDevice(static_cast<uint32_t>(gcds[gcd].size()), device_id));
  std::vector<uint32_t> ipus;
  for (uint32_t i = 0; i < range.count; ++i) {
    const Member& member = gcds[gcd][range.first + i];
    if (!member.here()) {
      return absl::UnimplementedError(
          absl::StrCat("device ", device_id, " has IPUs that another agent holds"));
    }
    ipus.push_back(member.ipu);
  }
  return ipus;
}

absl::Status Agent::CheckFree(const std::vector<uint32_t>& ipus, const ipuof::v1::AttachOpen& open,
                              bool* releasing) {
  const auto gone = [](const Lease& lease) {
    if (lease.releasing) return true;
    pollfd poll_fd{lease.liveness_fd, POLLIN, 0};
    return lease.liveness_fd >= 0 && poll(&poll_fd, 1, 0) == 1;
  };
  *releasing = false;
  for (uint32_t ipu : ipus) {
    const Owner& owner = owners_[ipu];
    for (const LeasePtr& lease : {owner.holder, owner.reserver}) {
      if (lease == nullptr) continue;
      if (lease == owner.reserver && !open.reserve_only() &&
          IsChildJob(open.job().job_id(), lease->open.job().job_id())) {
        continue;
      }
      if (gone(*lease)) {
        *releasing = true;
        continue;
      }
      return absl::ResourceExhaustedError(absl::StrCat(
          "device ", open.device_id(), " is in use by process ", lease->open.process().pid(), " (",
          lease->open.process().executable(), ") on ", lease->open.process().host()));
    }
  }
  return absl::OkStatus();
}

void Agent::Attach(const ipuof::v1::AttachOpen& open, LeaseEvents events, AttachDone done) {
  auto pending =
      std::make_shared<PendingAttach>(PendingAttach{open, std::move(events), std::move(done)});
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    if (!TryAttach(*pending, calls)) pending_.push_back(pending);
  }
  CallAll(calls);
}

bool Agent::TryAttach(PendingAttach& pending, std::vector<std::function<void()>>& calls) {
  const ipuof::v1::AttachOpen& open = pending.open;
  const auto refuse = [&](absl::Status status) {
    calls.push_back([done = std::move(pending.done), status] { done(status); });
    return true;
  };
  const Partition* partition = nullptr;
  auto ipus = FindIpus(open.partition_id(), open.gcd_id(), open.device_id(), &partition);
  if (!ipus.ok()) return refuse(ipus.status());
  if (partition->spec.generation() != open.generation()) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("partition ", open.partition_id(), " is at generation ",
                     partition->spec.generation(), "; the configuration of generation ",
                     open.generation(), " is out of date, fetch it again")));
  }
  const ipuof::v1::JobMember& job = open.job();
  if (!open.reserve_only()) {
    const uint64_t needed = uint64_t{job.local_replicas()} * job.ipus_per_replica();
    if (job.local_replicas() < 1 || job.ipus_per_replica() < 1 || needed > ipus->size()) {
      return refuse(absl::InvalidArgumentError(absl::StrCat(
          "device ", open.device_id(), " has ", ipus->size(), " IPUs; ", job.local_replicas(),
          " replicas of ", job.ipus_per_replica(), " IPUs were asked for")));
    }
  }
  bool releasing = false;
  const absl::Status free = CheckFree(*ipus, open, &releasing);
  if (!free.ok()) return refuse(free);
  if (releasing) return false;

  auto lease = std::make_shared<Lease>();
  lease->id = base::RandomId();
  lease->open = open;
  lease->events = std::move(pending.events);
  lease->ipus = *ipus;
  if (!open.reserve_only()) {
    const std::string key = JobKey(open.partition_id(), job.job_id());
    const fabric::JobShape shape{std::max(1u, job.num_instances()), job.total_replicas(),
                                 job.ipus_per_replica()};
    std::shared_ptr<fabric::Job>& record = jobs_[key];
    if (record == nullptr) record = std::make_shared<fabric::Job>(job.job_id(), shape);
    lease->job = record;
    fabric::JobMember member;
    member.instance = job.instance_index();
    member.replica_offset = job.replica_offset();
    member.local_replicas = job.local_replicas();
    member.process = ProcessName(open.process());
    const std::weak_ptr<Lease> weak = lease;
    member.notice = [weak](const std::string& text) {
      const LeasePtr strong = weak.lock();
      if (strong == nullptr || !strong->events.on_event) return;
      ipuof::v1::AttachEvent event;
      event.mutable_notice()->set_text(text);
      strong->events.on_event(event);
    };
    member.failed = [this, weak](const absl::Status& cause, bool lost, uint32_t instance) {
      const LeasePtr strong = weak.lock();
      if (strong == nullptr) return;
      if (const auto loaded = LoadedOn(*strong)) loaded->engine->Cancel(cause);
      if (!strong->events.on_event) return;
      ipuof::v1::AttachEvent event;
      event.mutable_job_failed()->set_cause(std::string(cause.message()));
      event.mutable_job_failed()->set_instance_lost(lost);
      event.mutable_job_failed()->set_instance_index(instance);
      strong->events.on_event(event);
    };
    // Join may call members back; it must not happen under our lock.
    calls.push_back(
        [this, lease, shape, member = std::move(member), done = std::move(pending.done)]() mutable {
          const absl::Status joined = lease->job->Join(shape, std::move(member));
          if (!joined.ok()) {
            BeginRelease(lease, joined, false);
            done(joined);
            return;
          }
          ipuof::v1::Attached attached;
          attached.set_lease_id(lease->id);
          attached.set_local_socket(local_socket_);
          attached.set_num_ipus(static_cast<uint32_t>(lease->ipus.size()));
          done(std::move(attached));
        });
  } else {
    ipuof::v1::Attached attached;
    attached.set_lease_id(lease->id);
    attached.set_local_socket(local_socket_);
    attached.set_num_ipus(static_cast<uint32_t>(ipus->size()));
    *attached.mutable_target_options() = partition->spec.target_options();
    calls.push_back([done = std::move(pending.done), attached] { done(attached); });
  }
  for (uint32_t ipu : *ipus) {
    (open.reserve_only() ? owners_[ipu].reserver : owners_[ipu].holder) = lease;
    if (!open.reserve_only()) IpuAt(ipu).sensors.BeginSession(ipu::WallClock::now());
  }
  leases_[lease->id] = lease;
  return true;
}

Agent::LeasePtr Agent::FindLease(absl::string_view lease_id) {
  const auto it = leases_.find(std::string(lease_id));
  return it == leases_.end() ? nullptr : it->second;
}

void Agent::Release(absl::string_view lease_id, bool lost) {
  LeasePtr lease;
  {
    base::MutexLock lock(mutex_);
    lease = FindLease(lease_id);
  }
  if (lease == nullptr) return;
  BeginRelease(
      lease,
      absl::CancelledError(
          lost ? absl::StrCat("the client (", ProcessName(lease->open.process()), ") was lost")
               : std::string("the client detached")),
      lost);
}

void Agent::BeginRelease(const LeasePtr& lease, const absl::Status& cause, bool lost) {
  bool running;
  {
    base::MutexLock lock(mutex_);
    if (lease->releasing) return;
    lease->releasing = true;
    running = lease->running;
  }
  if (!lease->open.reserve_only()) TellReservers(*lease, lost);
  if (const auto loaded = LoadedOn(*lease)) loaded->engine->Cancel(cause);
  if (lease->job) lease->job->Leave(lease->open.job().instance_index(), lost);
  // Units that wait for others of the same lease would wait for ever once it is cancelled.
  if (lease->job && running) {
    lease->job->Fail(absl::AbortedError(absl::StrCat(
                         "instance ", lease->open.job().instance_index(), " (",
                         ProcessName(lease->open.process()), ") left the job during a run")),
                     lost, lease->open.job().instance_index());
  }
  if (!running) FinishRelease(lease);
}

void Agent::FinishRelease(const LeasePtr& lease) {
  std::vector<std::function<void()>> calls;
  std::shared_ptr<Loaded> loaded;  // its memory is given back without the lock
  {
    base::MutexLock lock(mutex_);
    if (leases_.erase(lease->id) == 0) return;
    for (uint32_t ipu : lease->ipus) {
      if (owners_[ipu].holder == lease) owners_[ipu].holder = nullptr;
      if (owners_[ipu].reserver == lease) owners_[ipu].reserver = nullptr;
    }
    // The record goes with the last lease that refers to it; one that is only about to join does
    // too.
    const bool last = std::none_of(leases_.begin(), leases_.end(), [&](const auto& item) {
      return item.second->job == lease->job;
    });
    if (lease->job != nullptr && last)
      jobs_.erase(JobKey(lease->open.partition_id(), lease->job->id()));
    lease->liveness_fd = -1;
    loaded = std::exchange(lease->loaded, nullptr);
    auto waiting = std::exchange(pending_, {});
    for (auto& pending : waiting) {
      if (!TryAttach(*pending, calls)) pending_.push_back(pending);
    }
  }
  CallAll(calls);
  if (unwatch_process) unwatch_process(lease->id);
}

void Agent::TellReservers(const Lease& gone, bool lost) {
  ipuof::v1::AttachEvent event;
  ipuof::v1::JobFailed* failed = event.mutable_job_failed();
  failed->set_cause(absl::StrCat("instance ", gone.open.job().instance_index(), " (",
                                 ProcessName(gone.open.process()),
                                 lost ? ") was lost" : ") left the job"));
  failed->set_instance_lost(lost);
  failed->set_instance_index(gone.open.job().instance_index());
  failed->set_pid(gone.open.process().pid());
  failed->set_host(gone.open.process().host());
  std::vector<LeasePtr> reservers;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      if (lease->open.reserve_only() && lease->open.partition_id() == gone.open.partition_id() &&
          IsChildJob(gone.open.job().job_id(), lease->open.job().job_id())) {
        reservers.push_back(lease);
      }
    }
  }
  for (const LeasePtr& lease : reservers) {
    if (lease->events.on_event) lease->events.on_event(event);
  }
}

absl::Status Agent::BindProcess(absl::string_view lease_id, base::UniqueFd pidfd) {
  {
    base::MutexLock lock(mutex_);
    const LeasePtr lease = FindLease(lease_id);
    if (lease == nullptr) return absl::NotFoundError("the lease does not exist");
    if (lease->liveness_fd >= 0) return absl::OkStatus();
    lease->liveness_fd = pidfd.get();
  }
  watch_process(std::move(pidfd), std::string(lease_id));
  return absl::OkStatus();
}

}  // namespace vpod::agent
