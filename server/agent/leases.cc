// Attaching, job membership and release.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/device_use.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "server/agent/admission.h"
#include "server/agent/agent_state.h"
#include "server/agent/declared.h"

namespace vpod::agent {
namespace {

void CallAll(std::vector<std::function<void()>>& calls) {
  for (auto& call : calls) call();
}

}  // namespace

std::string Agent::ProcessName(const ipuof::v1::ProcessInfo& process) {
  return absl::StrCat("pid ", PidText(process), " on ", process.host());
}

std::string Agent::JobKey(const std::string& partition_id, const std::string& job_id) {
  return absl::StrCat(partition_id, "\n", job_id);
}

absl::StatusOr<std::vector<Agent::Member>> Agent::FindIpus(absl::string_view partition_id,
                                                           uint32_t gcd, uint32_t device_id,
                                                           const Partition** partition) {
  const auto it = partitions_.find(std::string(partition_id));
  if (it == partitions_.end()) {
    return absl::NotFoundError(absl::StrCat("partition ", partition_id, " is not on this agent"));
  }
  *partition = it->second.get();
  const auto& gcds = it->second->gcds;
  if (gcd >= gcds.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Partition has ", base::Counted(gcds.size(), "GCD"), "; GCD ", gcd, " does not exist."));
  }
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range,
                        arch::IpusOfDevice(static_cast<uint32_t>(gcds[gcd].size()), device_id));
  const auto first = gcds[gcd].begin() + range.first;
  return std::vector<Member>(first, first + range.count);
}

absl::Status Agent::CheckFree(const std::vector<uint32_t>& ipus, const ipuof::v1::AttachOpen& open,
                              LeasePtr* releasing) {
  const auto leaves = [this](const Lease& lease) {
    if (IsGone(lease) || lease.binds_until.has_value()) return true;  // or may have gone
    return lease.open.job().reserved() && !lease.open.reserve_only() && !HasReserver(lease.open);
  };
  *releasing = nullptr;
  for (uint32_t ipu : ipus) {
    const Owner& owner = owners_[ipu];
    for (const LeasePtr& lease : {owner.holder, owner.reserver}) {
      if (lease == nullptr) continue;
      if (lease == owner.reserver && !open.reserve_only() && Reserves(*lease, open)) continue;
      if (leaves(*lease)) {
        *releasing = lease;
        continue;
      }
      return RefuseInUse(*lease, open);
    }
  }
  return absl::OkStatus();
}

base::DeviceUse Agent::UseOf(const Lease& lease, uint32_t device_id,
                             absl::string_view readers_namespace) {
  const ipuof::v1::ProcessInfo& process = lease.open.process();
  const auto since = std::chrono::steady_clock::now() - lease.attached_at;
  return {.device_id = device_id,
          .pid = base::PidText(process.pid(), process.pid_namespace(), readers_namespace),
          .program = process.executable(),
          .user = lease.UserName(),
          .host = process.host(),
          .seconds = std::chrono::duration_cast<std::chrono::seconds>(since).count()};
}

absl::Status Agent::RefuseInUse(const Lease& lease, const ipuof::v1::AttachOpen& open) {
  base::DeviceUse use = UseOf(lease, open.device_id(), open.process().pid_namespace());
  const Partition& partition = *partitions_.at(open.partition_id());
  const std::vector<Member>& members = partition.gcds[open.gcd_id()];
  for (const Member& member : members) {
    if (!member.here()) continue;
    const Owner& owner = owners_[member.ipu];
    ++use.ipus;
    if (owner.holder == nullptr && owner.reserver == nullptr) ++use.free_ipus;
  }
  use.partition = absl::StrCat(
      partition.gcds.size() > 1 ? absl::StrCat("GCD ", open.gcd_id(), " of ") : "", "partition ",
      partition.spec.id(), use.ipus < members.size() ? " at this agent" : "");
  return absl::ResourceExhaustedError(base::DeviceInUse(use));
}

std::weak_ptr<void> Agent::Attach(const ipuof::v1::AttachOpen& request, LeaseEvents events,
                                  AttachDone done) {
  auto open = Declared(request);
  if (!open.ok()) {
    done(open.status());
    return {};
  }
  auto pending = std::make_shared<PendingAttach>(
      PendingAttach{*std::move(open), std::move(events), std::move(done), {}});
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    if (!TryAttach(*pending, calls)) pending_.push_back(pending);
  }
  CallAll(calls);
  return pending;
}

void Agent::GiveUp(const std::weak_ptr<void>& attach) {
  const std::shared_ptr<void> given_up = attach.lock();  // its callbacks go without the lock
  base::MutexLock lock(mutex_);
  std::erase(pending_, given_up);
}

std::string Agent::LogText(const Lease& lease) const {
  const ipuof::v1::AttachOpen& open = lease.open;
  std::map<std::string, std::string> ipus;  // PCIe ids by machine
  for (uint32_t ipu : lease.ipus) {
    const auto& machine = machines_[ipu / arch::kIpusPerMachine]->identity().management_ip;
    absl::StrAppend(&ipus[machine], ipus[machine].empty() ? "" : ",", ipu % arch::kIpusPerMachine);
  }
  return absl::StrCat(
      "lease=", lease.id.substr(0, 8), " ", agent::LogText(open.process(), lease.user),
      " partition=", open.partition_id(), " gcd=", open.gcd_id(), " device=", open.device_id(),
      " ipus=\"", absl::StrJoin(ipus, " ", absl::PairFormatter(":")), "\"");
}

std::string Agent::WhyReleasing(const Lease& lease) {
  const ipuof::v1::ProcessInfo& process = lease.open.process();
  if (!lease.releasing) {
    return absl::StrCat("process ", PidText(process), " (", process.executable(), ") on ",
                        process.host(), ", which held it, may still be there");
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::steady_clock::now() - lease.released_at);
  return absl::StrCat(lease.preparing ? "an executable" : "a kernel", " of process ",
                      PidText(process), " (", process.executable(), ") on ", process.host(),
                      ", which left ", seconds.count(), " s ago, ",
                      lease.preparing ? "is still being loaded" : "still runs");
}

absl::Status Agent::RefuseReleasing(const ipuof::v1::AttachOpen& open, const Lease& lease) {
  return absl::ResourceExhaustedError(
      absl::StrCat("device ", open.device_id(), " is RELEASING: ", WhyReleasing(lease)));
}

void Agent::RefuseLateAttaches(std::chrono::steady_clock::time_point now) {
  std::vector<std::shared_ptr<PendingAttach>> late;
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    for (const auto& pending : pending_) {
      if (pending->deadline <= now) late.push_back(pending);
    }
    for (const auto& pending : late) {
      std::erase(pending_, pending);
      const Partition* partition = nullptr;
      const ipuof::v1::AttachOpen& open = pending->open;
      const auto members =
          FindIpus(open.partition_id(), open.gcd_id(), open.device_id(), &partition);
      std::vector<uint32_t> ipus;
      if (members.ok()) {
        for (const Member& member : *members) {
          if (member.here()) ipus.push_back(member.ipu);
        }
      }
      LeasePtr releasing;
      absl::Status why = members.ok() ? CheckFree(ipus, open, &releasing) : members.status();
      if (releasing != nullptr) {
        why = RefuseReleasing(open, *releasing);
      } else if (why.ok()) {
        why = absl::ResourceExhaustedError(
            absl::StrCat("device ", open.device_id(), " was free too late; try again"));
      }
      calls.push_back([pending, why] { pending->done(why); });
    }
  }
  CallAll(calls);
}

std::vector<vipuagent::ReleasingIpu> Agent::Releasing() {
  std::vector<vipuagent::ReleasingIpu> result;
  base::MutexLock lock(mutex_);
  for (const auto& [id, lease] : leases_) {
    if (!lease->releasing) continue;
    for (uint32_t ipu : lease->ipus) {
      vipuagent::ReleasingIpu& each = result.emplace_back();
      each.set_host(machines_[ipu / arch::kIpusPerMachine]->identity().management_ip);
      each.set_pcie_id(ipu % arch::kIpusPerMachine);
      each.set_reason(WhyReleasing(*lease));
    }
  }
  return result;
}

void Agent::AwaitRelease() {
  constexpr std::chrono::milliseconds kPatience{250};
  base::MutexLock lock(mutex_);
  lock.WaitUntil(released_, std::chrono::steady_clock::now() + kPatience, [this] {
    return std::none_of(leases_.begin(), leases_.end(),
                        [](const auto& item) { return item.second->releasing.load(); });
  });
}

uint64_t Agent::configure_sequence() {
  base::MutexLock lock(mutex_);
  return configure_sequence_;
}

absl::StatusOr<Agent::LeasePtr> Agent::MakeLease(const ipuof::v1::AttachOpen& open,
                                                 const std::vector<Member>& members) const {
  const auto wrong = [&](auto... why) {
    return absl::InvalidArgumentError(absl::StrCat("device ", open.device_id(), " has ", why...));
  };
  const ipuof::v1::JobMember& job = open.job();
  const uint64_t needed =
      open.reserve_only() ? 0 : uint64_t{job.local_replicas()} * job.ipus_per_replica();
  if (!open.reserve_only() && (needed < 1 || needed > members.size())) {
    return wrong(base::Counted(members.size(), "IPU"), "; ",
                 base::Counted(job.local_replicas(), "replica"), " of ",
                 base::Counted(job.ipus_per_replica(), "IPU"), " asked for");
  }
  auto lease = std::make_shared<Lease>();
  lease->id = base::RandomId();
  lease->open = open;
  for (uint32_t i = 0; i < members.size(); ++i) {
    if (!members[i].here()) continue;
    lease->ipus.push_back(members[i].ipu);
    if (i >= needed) continue;
    lease->units.push_back(i);
    lease->unit_ipus.push_back(members[i].ipu);
  }
  if (lease->ipus.empty() || (!open.reserve_only() && lease->units.empty()))
    return wrong("no IPU on this agent");
  const bool whole = lease->units.size() == needed;
  if (!open.reserve_only() && !whole && (open.num_parts() < 2 || peers_ == nullptr))
    return wrong("IPUs that other agents hold; attach at each of them");
  return lease;
}

bool Agent::TryAttach(PendingAttach& pending, std::vector<std::function<void()>>& calls) {
  const ipuof::v1::AttachOpen& open = pending.open;
  const auto refuse = [&](absl::Status status) {
    calls.push_back([done = std::move(pending.done), status] { done(status); });
    return true;
  };
  const Partition* partition = nullptr;
  const auto members = FindIpus(open.partition_id(), open.gcd_id(), open.device_id(), &partition);
  if (!members.ok()) return refuse(members.status());
  if (partition->spec.config_generation() != open.generation()) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("partition ", open.partition_id(), " is at generation ",
                     partition->spec.config_generation(), "; the configuration of generation ",
                     open.generation(), " is out of date, fetch it again")));
  }
  auto user = Admit(partition->spec, open.fabric_key(),
                    options_.require_encrypted_fabric && !options_.encrypted_fabric, endpoint_);
  if (!user.ok()) return refuse(user.status());
  if (pending.events.on_admitted)
    calls.push_back([admitted = pending.events.on_admitted, user = *user] { admitted(user); });
  const ipuof::v1::JobMember& job = open.job();
  if (job.reserved() && !open.reserve_only() && !HasReserver(open)) {
    return refuse(absl::FailedPreconditionError(
        "the poprun that started this job has ended, and with it the reservation of its IPUs"));
  }
  const auto made = MakeLease(open, *members);
  if (!made.ok()) return refuse(made.status());
  const LeasePtr& lease = *made;
  LeasePtr releasing;
  const absl::Status free = CheckFree(lease->ipus, open, &releasing);
  if (!free.ok()) return refuse(free);
  if (releasing != nullptr) {
    const auto now = std::chrono::steady_clock::now();
    // Within 5 s of the attach, also if the one who left has bound itself to no process yet.
    if (pending.deadline == std::chrono::steady_clock::time_point())
      pending.deadline =
          (releasing->releasing ? releasing->released_at : now) + options_.attach_patience;
    return pending.deadline <= now ? refuse(RefuseReleasing(open, *releasing)) : false;
  }

  lease->user = *std::move(user);
  lease->taken_at = partition->spec.generation();
  lease->store = controller_store_;
  lease->events = std::move(pending.events);
  if (open.reserve_only()) {
    ipuof::v1::Attached attached = Describe(*lease, members->size());
    *attached.mutable_target_options() = partition->spec.target_options();
    // A device tells what its hardware can have, its partition what it has.
    (*attached.mutable_target_options())["ipuLinkDomainSize"] =
        absl::StrCat(arch::kMaxIpusPerLinkDomain);
    calls.push_back([done = std::move(pending.done), attached] { done(attached); });
  } else {
    calls.push_back(JoinJob(*partition, lease, std::move(pending.done)));
  }
  for (uint32_t ipu : lease->ipus) {
    (open.reserve_only() ? owners_[ipu].reserver : owners_[ipu].holder) = lease;
    if (!open.reserve_only())
      machines_[ipu / arch::kIpusPerMachine]->BeginSession(ipu % arch::kIpusPerMachine);
  }
  leases_[lease->id] = lease;
  spdlog::info("{} {}", open.reserve_only() ? "reserve" : "attach", LogText(*lease));
  if (open.reserve_only()) reservers_.emplace(ReservationOf(open), lease);
  if (open.will_bind())
    lease->binds_until = std::chrono::steady_clock::now() + options_.bind_patience;
  return true;
}

ipuof::v1::Attached Agent::Describe(const Lease& lease, size_t device_ipus) const {
  ipuof::v1::Attached attached;
  attached.set_lease_id(lease.id);
  attached.set_local_socket(local_socket_);
  attached.set_num_ipus(static_cast<uint32_t>(device_ipus));
  for (uint32_t unit : lease.units) attached.add_units(unit);
  attached.set_clock_hz(type_.clock_hz);
  return attached;
}

void Agent::Tell(const Lease& lease, const std::string& text) {
  if (!lease.events.on_event) return;
  ipuof::v1::AttachEvent event;
  event.mutable_notice()->set_text(text);
  lease.events.on_event(event);
}

fabric::JobMember Agent::MemberOf(const LeasePtr& lease) {
  const ipuof::v1::JobMember& job = lease->open.job();
  fabric::JobMember member;
  member.instance = job.instance_index();
  member.part = lease->open.part();
  member.replica_offset = job.replica_offset();
  member.local_replicas = job.local_replicas();
  member.process = ProcessName(lease->open.process());
  member.local_socket = LocalSocketForPeers();
  for (uint32_t unit : lease->units)
    member.units.push_back(job.replica_offset() * job.ipus_per_replica() + unit);
  const std::weak_ptr<Lease> weak = lease;
  member.notice = [this, weak](const std::string& text) {
    if (const LeasePtr strong = weak.lock()) Tell(*strong, text);
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
  return member;
}

std::function<void()> Agent::JoinJob(const Partition& partition, const LeasePtr& lease,
                                     AttachDone done) {
  const ipuof::v1::JobMember& job = lease->open.job();
  const bool spans_processes = peers_ != nullptr && partition.spec.peers_size() > 1 &&
                               (job.num_instances() > 1 || lease->open.num_parts() > 1);
  lease->job = FindOrMakeJob(partition, job, spans_processes);
  lease->group = GroupOf(*lease);
  fabric::JobMember member = MemberOf(lease);
  std::shared_ptr<PartLink> link;
  if (spans_processes && partition.spec.peers(0).endpoint() != endpoint_)
    member.coordinator = link = LinkToCoordinator(partition, lease);
  const fabric::JobShape shape{std::max(1u, job.num_instances()), job.total_replicas(),
                               job.ipus_per_replica()};
  const auto joined = [this, lease, done = std::move(done)](const absl::Status& status) {
    if (status.ok()) return done(Describe(*lease, lease->ipus.size()));
    BeginRelease(lease, status, false);
    done(status);
  };
  const fabric::v1::JobJoin join = link ? DescribePart(partition, *lease) : fabric::v1::JobJoin();
  // Join may call members back; it must not happen under our lock.
  return [this, lease, shape, member = std::move(member), link, join, joined]() mutable {
    const absl::Status status = lease->job->Join(shape, std::move(member));
    if (!status.ok() || link == nullptr) return joined(status);
    link->Open(*peers_, join, joined);
  };
}

Agent::LeasePtr Agent::FindLease(absl::string_view lease_id) {
  const auto it = leases_.find(std::string(lease_id));
  return it == leases_.end() ? nullptr : it->second;
}

bool Agent::HasLease(absl::string_view lease_id) {
  base::MutexLock lock(mutex_);
  return FindLease(lease_id) != nullptr;
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
  if (MarkReleasing(lease, cause)) GoOnReleasing(lease, cause, lost);
}

bool Agent::MarkReleasing(const LeasePtr& lease, const absl::Status& cause) {
  base::MutexLock lock(mutex_);
  if (lease->releasing) return false;
  lease->releasing = true;
  lease->released_at = std::chrono::steady_clock::now();
  spdlog::info("detach {} reason={}", LogText(*lease),
               base::QuotedField(cause.message(), std::string::npos));
  return true;
}

void Agent::GoOnReleasing(const LeasePtr& lease, const absl::Status& cause, bool lost) {
  bool running, busy;
  {
    base::MutexLock lock(mutex_);
    running = lease->running;
    busy = lease->busy();
  }
  if (lease->open.reserve_only()) {
    RevokeReserved(*lease, "the poprun that started this job has ended");
  } else {
    TellOfLeaving(*lease, lost);
  }
  if (const auto loaded = LoadedOn(*lease)) loaded->engine->Cancel(cause);
  const uint32_t instance = lease->open.job().instance_index();
  // Units that wait for others of the same lease would wait for ever once it is cancelled.
  absl::Status broken_run;
  if (running) {
    broken_run = absl::AbortedError(absl::StrCat("instance ", instance, " (",
                                                 ProcessName(lease->open.process()),
                                                 ") left the job during a run"));
  }
  if (lease->job) lease->job->Leave(instance, lease->open.part(), lost, broken_run);
  if (!busy) return FinishRelease(lease);
  if (lease->job == nullptr) return;
  // The run may have ended, and the lease with it, before its part left the job.
  base::MutexLock lock(mutex_);
  ForgetJobIfEmpty(lease->job);
}

void Agent::FinishRelease(const LeasePtr& lease) {
  // Unless a run still holds it, memory is given back before the IPUs are free, so that their next
  // owner finds it, and without the lock, because that takes time.
  std::shared_ptr<Loaded> loaded;
  {
    base::MutexLock lock(mutex_);
    loaded = std::exchange(lease->loaded, nullptr);
  }
  loaded.reset();
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    if (leases_.erase(lease->id) == 0) return;
    released_.notify_all();
    const auto partition = partitions_.find(lease->open.partition_id());
    if (partition != partitions_.end() &&
        partition->second->spec.config_generation() == lease->open.generation()) {
      used_.insert(lease->open.partition_id());
    }
    for (uint32_t ipu : lease->ipus) {
      if (owners_[ipu].holder == lease) owners_[ipu].holder = nullptr;
      if (owners_[ipu].reserver == lease) owners_[ipu].reserver = nullptr;
    }
    if (lease->job != nullptr) ForgetJobIfEmpty(lease->job);
    lease->liveness_fd = -1;
    std::erase_if(reservers_, [&](const auto& entry) { return entry.second == lease; });
    RetryPending(calls);
  }
  CallAll(calls);
  if (unwatch_process) unwatch_process(lease->id);
}

std::vector<std::pair<std::string, uint64_t>> Agent::Detached() {
  base::MutexLock lock(mutex_);
  if (used_.empty()) return {};
  std::set<std::string> in_use;
  for (const auto& [id, lease] : leases_) in_use.insert(lease->open.partition_id());
  std::vector<std::pair<std::string, uint64_t>> result;
  for (const std::string& id : used_) {
    const vipuagent::AgentPartition& spec = partitions_.at(id)->spec;
    if (!spec.reconfigurable() && !in_use.contains(id)) result.emplace_back(id, spec.generation());
  }
  return result;
}

absl::Status Agent::AdmitUser(absl::string_view lease_id, uid_t user) {
  base::MutexLock lock(mutex_);
  const LeasePtr lease = FindLease(lease_id);
  if (lease == nullptr) return absl::NotFoundError("the lease does not exist");
  if (!lease->local_user) lease->local_user = user;
  return *lease->local_user == user ? absl::OkStatus()
                                    : absl::PermissionDeniedError("the lease is another user's");
}

absl::Status Agent::BindProcess(absl::string_view lease_id, pid_t pid, base::UniqueFd pidfd) {
  LeasePtr bound;
  {
    base::MutexLock lock(mutex_);
    const LeasePtr lease = FindLease(lease_id);
    if (lease == nullptr) return absl::NotFoundError("the lease does not exist");
    if (lease->liveness_fd >= 0) return absl::OkStatus();
    lease->liveness_fd = pidfd.get();
    lease->pid = pid;
    bound = lease;
  }
  watch_process(std::move(pidfd), std::string(lease_id));
  // A lease may have ended before its process was watched, when there was nothing to unwatch yet.
  if (unwatch_process && !HasLease(lease_id)) unwatch_process(std::string(lease_id));
  SetBound(bound);
  return absl::OkStatus();
}

bool Agent::BeginPulse(absl::string_view lease_id) {
  LeasePtr lease;
  {
    base::MutexLock lock(mutex_);
    lease = FindLease(lease_id);
    // One is enough, and each keeps a connection busy.
    if (lease == nullptr || std::exchange(lease->pulsed, true)) return false;
  }
  SetBound(lease);
  return true;
}

void Agent::SetBound(const LeasePtr& lease) {
  std::vector<std::function<void()>> calls;
  {
    base::MutexLock lock(mutex_);
    if (!std::exchange(lease->binds_until, std::nullopt).has_value()) return;
    RetryPending(calls);
  }
  CallAll(calls);
}

void Agent::RetryPending(std::vector<std::function<void()>>& calls) {
  auto waiting = std::exchange(pending_, {});
  for (auto& pending : waiting) {
    if (!TryAttach(*pending, calls)) pending_.push_back(pending);
  }
}

}  // namespace vpod::agent
