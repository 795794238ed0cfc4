#include "server/agent/agent.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "device/base/random_id.h"
#include "device/base/status.h"

namespace vpod::agent {
namespace {

std::string MachineAddress(const std::string& prefix, uint32_t index) {
  const uint32_t number = index + 1;
  return absl::StrCat(prefix, ".", number / 256, ".", number % 256);
}

std::string ProcessName(const ipuof::v1::ProcessInfo& process) {
  return absl::StrCat("pid ", process.pid(), " on ", process.host());
}

// "pod-native-default" from "ST_POD_NATIVE_DEFAULT", as the attribute shows it.
std::string SyncTypeText(absl::string_view name) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(name, {{"ST_", ""}, {"_", "-"}}));
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

// An IPU as a member of a partition.
struct Agent::IpuSlot {
  size_t machine = 0;
  uint32_t number = 0;  // in the machine
  uint32_t gcd = 0;
  uint32_t routing_id = 0;
  LeasePtr holder;    // runs programs on it
  LeasePtr reserver;  // keeps it for a job (poprun's parent device)
};

struct Agent::Partition {
  vipuagent::AgentPartition spec;
  std::vector<std::vector<IpuSlot>> gcds;  // by routing id
};

// What a Load put on a lease. Calls of one client may meet on several threads, so each holds what
// it works on, and a Load or the end of the lease takes nothing from under it.
struct Agent::Loaded {
  std::shared_ptr<engine::Engine> engine;
  shm::Segment streams;
};

struct Agent::Lease {
  std::string id;
  ipuof::v1::AttachOpen open;
  LeaseEvents events;
  std::vector<IpuSlot*> ipus;
  std::shared_ptr<fabric::Job> job;
  int liveness_fd = -1;  // pidfd of the bound process, for a second look before refusing others

  std::shared_ptr<Loaded> loaded;  // set by Load; guarded by the agent's mutex, as what follows
  bool releasing = false;
  bool running = false;
};

struct Agent::PendingAttach {
  ipuof::v1::AttachOpen open;
  LeaseEvents events;
  AttachDone done;
};

Agent::Agent(const AgentOptions& options, arch::MachineType type)
    : options_(options),
      type_(type),
      budget_(options.memory_limit_bytes),
      executors_(options.compute_threads) {
  for (uint32_t i = 0; i < options.num_machines; ++i) {
    machine::Identity identity{i, MachineAddress(options.management_prefix, i), 8080,
                               MachineAddress(options.data_prefix, i)};
    machine_by_host_[identity.management_ip] = i;
    machines_.push_back(std::make_unique<machine::Machine>(std::move(identity), type));
  }
  ticker_ = executors_.Every(std::chrono::milliseconds(250), [this] { Tick(); });
}

absl::StatusOr<std::unique_ptr<Agent>> Agent::Create(const AgentOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const arch::MachineType type, arch::FindMachineType(options.machine_type));
  if (options.num_machines < 1 || options.num_machines > 65534) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.num_machines, " machines asked for; an agent holds 1 to 65534"));
  }
  return std::unique_ptr<Agent>(new Agent(options, type));
}

Agent::~Agent() { ticker_.reset(); }

std::vector<vipuagent::Machine> Agent::DescribeMachines() const {
  std::vector<vipuagent::Machine> result;
  for (const auto& machine : machines_) {
    vipuagent::Machine description;
    description.set_host(machine->identity().management_ip);
    description.set_port(machine->identity().management_port);
    description.set_data_ip(machine->identity().data_ip);
    for (const auto& [key, value] : machine->Facts()) (*description.mutable_facts())[key] = value;
    description.set_board_type(std::string(type_.board_type));
    description.set_clock(arch::ClockText(type_));
    result.push_back(std::move(description));
  }
  return result;
}

absl::Status Agent::Configure(const vipuagent::ConfigureRequest& request) {
  std::vector<std::pair<LeasePtr, std::string>> revoked;
  {
    base::MutexLock lock(mutex_);
    if (request.controller_boot_id() == controller_boot_id_ &&
        request.sequence() < configure_sequence_) {
      return absl::AbortedError("an older configuration arrived late");
    }
    std::map<std::string, std::unique_ptr<Partition>> next;
    for (const vipuagent::AgentPartition& spec : request.partitions()) {
      const auto existing = partitions_.find(spec.id());
      if (existing != partitions_.end() &&
          existing->second->spec.generation() == spec.generation()) {
        next[spec.id()] = std::move(existing->second);
        continue;
      }
      auto partition = std::make_unique<Partition>();
      partition->spec = spec;
      partition->gcds.resize(std::max(1u, spec.num_gcds()));
      for (const vipuagent::PartitionIpu& ipu : spec.ipus()) {
        const auto machine = machine_by_host_.find(ipu.machine_host());
        if (machine == machine_by_host_.end() || ipu.pcie_id() >= arch::kIpusPerMachine ||
            ipu.gcd_id() >= partition->gcds.size() || ipu.routing_id() >= 65536) {
          // Give back what was moved, so that a bad request changes nothing.
          for (auto& [id, kept] : next) {
            if (partitions_.contains(id) && partitions_[id] == nullptr)
              partitions_[id] = std::move(kept);
          }
          return absl::InvalidArgumentError(
              absl::StrCat("partition ", spec.id(), ": IPU ", ipu.pcie_id(), " of machine ",
                           ipu.machine_host(), " is not on this agent"));
        }
        auto& gcd = partition->gcds[ipu.gcd_id()];
        if (gcd.size() <= ipu.routing_id()) gcd.resize(ipu.routing_id() + 1);
        IpuSlot& slot = gcd[ipu.routing_id()];
        slot.machine = machine->second;
        slot.number = ipu.pcie_id();
        slot.gcd = ipu.gcd_id();
        slot.routing_id = ipu.routing_id();
      }
      next[spec.id()] = std::move(partition);
    }
    controller_boot_id_ = request.controller_boot_id();
    configure_sequence_ = request.sequence();
    for (const auto& [id, lease] : leases_) {
      if (lease->releasing) continue;
      const std::string& partition_id = lease->open.partition_id();
      const auto kept = next.find(partition_id);
      if (kept == next.end()) {
        revoked.emplace_back(lease, absl::StrCat("partition ", partition_id, " was removed"));
      } else if (kept->second->spec.generation() != lease->open.generation()) {
        revoked.emplace_back(lease,
                             absl::StrCat("partition ", partition_id, " was reset or changed"));
      }
    }
    // Slots of ended partitions must outlive the leases on them.
    for (auto& [id, partition] : partitions_) {
      if (partition == nullptr) continue;
      for (auto& gcd : partition->gcds) {
        for (IpuSlot& slot : gcd) slot.holder = slot.reserver = nullptr;
      }
    }
    for (auto& [lease, reason] : revoked) lease->ipus.clear();
    partitions_ = std::move(next);
  }
  for (auto& [lease, reason] : revoked) {
    const absl::Status cause = absl::AbortedError(reason);
    if (lease->events.on_revoked) lease->events.on_revoked(cause);
    BeginRelease(lease, cause, false);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Agent::IpuSlot*>> Agent::FindIpus(absl::string_view partition_id,
                                                             uint32_t gcd, uint32_t device_id,
                                                             const Partition** partition) {
  const auto it = partitions_.find(std::string(partition_id));
  if (it == partitions_.end()) {
    return absl::NotFoundError(absl::StrCat("partition ", partition_id, " is not on this agent"));
  }
  *partition = it->second.get();
  auto& gcds = it->second->gcds;
  if (gcd >= gcds.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition has ", gcds.size(), " GCDs; GCD ", gcd, " does not exist."));
  }
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range,
                        arch::IpusOfDevice(static_cast<uint32_t>(gcds[gcd].size()), device_id));
  std::vector<IpuSlot*> ipus;
  for (uint32_t i = 0; i < range.count; ++i) ipus.push_back(&gcds[gcd][range.first + i]);
  return ipus;
}

absl::Status Agent::CheckFree(const std::vector<IpuSlot*>& ipus, const ipuof::v1::AttachOpen& open,
                              bool* releasing) {
  const auto gone = [](const Lease& lease) {
    if (lease.releasing) return true;
    pollfd poll_fd{lease.liveness_fd, POLLIN, 0};
    return lease.liveness_fd >= 0 && poll(&poll_fd, 1, 0) == 1;
  };
  *releasing = false;
  for (const IpuSlot* slot : ipus) {
    for (const LeasePtr& lease : {slot->holder, slot->reserver}) {
      if (lease == nullptr) continue;
      if (lease == slot->reserver && !open.reserve_only() &&
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
  for (IpuSlot* slot : *ipus) {
    (open.reserve_only() ? slot->reserver : slot->holder) = lease;
    if (!open.reserve_only()) {
      machines_[slot->machine]->ipu(slot->number).sensors.BeginSession(ipu::WallClock::now());
    }
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
  if (lost && !lease->open.reserve_only()) TellReservers(*lease);
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
    for (IpuSlot* slot : lease->ipus) {
      if (slot->holder == lease) slot->holder = nullptr;
      if (slot->reserver == lease) slot->reserver = nullptr;
    }
    if (lease->job != nullptr && lease->job->Empty()) {
      jobs_.erase(JobKey(lease->open.partition_id(), lease->job->id()));
    }
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

void Agent::TellReservers(const Lease& lost) {
  ipuof::v1::AttachEvent event;
  ipuof::v1::JobFailed* failed = event.mutable_job_failed();
  failed->set_cause(absl::StrCat("instance ", lost.open.job().instance_index(), " (",
                                 ProcessName(lost.open.process()), ") was lost"));
  failed->set_instance_lost(true);
  failed->set_instance_index(lost.open.job().instance_index());
  failed->set_pid(lost.open.process().pid());
  failed->set_host(lost.open.process().host());
  std::vector<LeasePtr> reservers;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      if (lease->open.reserve_only() && lease->open.partition_id() == lost.open.partition_id() &&
          IsChildJob(lost.open.job().job_id(), lease->open.job().job_id())) {
        reservers.push_back(lease);
      }
    }
  }
  for (const LeasePtr& lease : reservers) {
    if (lease->events.on_event) lease->events.on_event(event);
  }
}

absl::Status Agent::BindProcess(absl::string_view lease_id, uint32_t pid, base::UniqueFd pidfd) {
  {
    base::MutexLock lock(mutex_);
    const LeasePtr lease = FindLease(lease_id);
    if (lease == nullptr) return absl::NotFoundError("the lease does not exist");
    if (lease->liveness_fd >= 0) return absl::OkStatus();
    lease->liveness_fd = pidfd.get();
    // The kernel's word for who it is; what the client said may be from another pid namespace, and
    // stays as display name.
    (void)pid;
  }
  watch_process(std::move(pidfd), std::string(lease_id));
  return absl::OkStatus();
}

absl::StatusOr<std::pair<Agent::LeasePtr, std::shared_ptr<Agent::Loaded>>> Agent::FindLoaded(
    absl::string_view lease_id) {
  base::MutexLock lock(mutex_);
  LeasePtr lease = FindLease(lease_id);
  if (lease == nullptr || lease->releasing) {
    return absl::NotFoundError("the lease does not exist or has ended");
  }
  if (lease->loaded == nullptr) return absl::FailedPreconditionError("no executable is loaded");
  return std::make_pair(lease, lease->loaded);
}

std::shared_ptr<Agent::Loaded> Agent::LoadedOn(const Lease& lease) {
  base::MutexLock lock(mutex_);
  return lease.loaded;
}

absl::StatusOr<std::pair<base::UniqueFd, uint64_t>> Agent::StreamSegment(
    absl::string_view lease_id) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const Loaded& loaded = *found.second;
  return std::make_pair(base::UniqueFd(fcntl(loaded.streams.fd(), F_DUPFD_CLOEXEC, 0)),
                        loaded.engine->layout().TotalBytes());
}

absl::StatusOr<ipuof::v1::LoadReply> Agent::Load(absl::string_view lease_id,
                                                 absl::string_view bytes) {
  LeasePtr lease;
  {
    base::MutexLock lock(mutex_);
    lease = FindLease(lease_id);
    if (lease == nullptr || lease->releasing)
      return absl::NotFoundError("the lease does not exist or has ended");
    if (lease->open.reserve_only()) {
      return absl::FailedPreconditionError(
          "the lease only reserves the device; attach to it to load");
    }
    if (lease->running) return absl::FailedPreconditionError("a run is active on this lease");
  }
  VPOD_ASSIGN_OR_RETURN(auto executable, program::Executable::Parse(bytes));
  const ipuof::v1::JobMember& member = lease->open.job();
  VPOD_ASSIGN_OR_RETURN(
      auto engine, engine::Engine::Create(executable, {.executors = &executors_,
                                                       .budget = &budget_,
                                                       .job = lease->job,
                                                       .instance = member.instance_index(),
                                                       .replica_offset = member.replica_offset(),
                                                       .local_replicas = member.local_replicas(),
                                                       .clock_hz = type_.clock_hz}));
  VPOD_ASSIGN_OR_RETURN(shm::Segment streams, shm::Segment::Create(engine->layout().TotalBytes()));
  ipuof::v1::LoadReply reply;
  reply.set_executable_hash(executable->hash());
  for (base::Bytes use : engine->memory_use()) reply.add_memory_bytes_per_ipu(use.value());
  auto loaded = std::make_shared<Loaded>();
  loaded->engine = std::move(engine);
  loaded->streams = std::move(streams);
  {
    base::MutexLock lock(mutex_);
    if (lease->releasing) return absl::NotFoundError("the lease has ended");
    if (lease->running) return absl::FailedPreconditionError("a run is active on this lease");
    lease->loaded.swap(loaded);
  }
  lease->job->Loaded(member.instance_index(), executable->hash());
  return reply;
}

void Agent::Run(absl::string_view lease_id, uint32_t program, uint32_t slot, RunDone done) {
  const auto refuse = [&](absl::Status status) { done(std::move(status)); };
  auto found = FindLoaded(lease_id);
  if (!found.ok()) return refuse(found.status());
  const auto& [lease, loaded] = *found;
  engine::Engine& engine = *loaded->engine;
  if (slot >= program::kStreamSlots) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("stream slot ", slot, " does not exist; there are ", program::kStreamSlots)));
  }
  if (program >= static_cast<uint32_t>(engine.executable().proto().programs_size())) {
    return refuse(
        absl::InvalidArgumentError(absl::StrCat("program ", program, " does not exist; there are ",
                                                engine.executable().proto().programs_size())));
  }
  std::vector<machine::Ipu*> ipus;
  {
    base::MutexLock lock(mutex_);
    if (lease->releasing) return refuse(absl::NotFoundError("the lease has ended"));
    if (lease->running)
      return refuse(absl::FailedPreconditionError("a run is already active on this lease"));
    lease->running = true;
    for (IpuSlot* ipu : lease->ipus) ipus.push_back(&machines_[ipu->machine]->ipu(ipu->number));
  }
  const uint32_t per_replica = lease->open.job().ipus_per_replica();
  ipus.resize(std::min(ipus.size(), size_t{per_replica} * lease->open.job().local_replicas()));
  const ipu::WallClock::time_point now = ipu::WallClock::now();
  for (size_t i = 0; i < ipus.size(); ++i) {
    const model::Cost cost = engine.ProgramCost(program, static_cast<uint32_t>(i) % per_replica);
    const double total = std::max<double>(1, static_cast<double>(cost.total().value()));
    ipus[i]->sensors.BeginRun({static_cast<double>(cost.compute.value()) / total,
                               static_cast<double>(cost.exchange.value()) / total},
                              now);
  }
  std::byte* buffer = loaded->streams.data() + slot * engine.layout().SlotBytes();
  engine.Run(program, buffer,
             [this, lease = lease, loaded = loaded, ipus = std::move(ipus),
              done = std::move(done)](absl::StatusOr<engine::RunResult> result) {
               const ipu::WallClock::time_point end = ipu::WallClock::now();
               for (machine::Ipu* each : ipus) {
                 each->sensors.EndRun(end);
                 if (result.ok()) each->cycles += result->cycles.value();
               }
               bool releasing;
               {
                 base::MutexLock lock(mutex_);
                 lease->running = false;
                 releasing = lease->releasing;
               }
               if (result.ok()) {
                 done(result->cycles);
               } else {
                 done(result.status());
               }
               if (releasing) FinishRelease(lease);
             });
}

absl::Status Agent::WriteStream(absl::string_view lease_id, uint32_t slot, uint64_t offset,
                                absl::string_view data) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  const uint64_t bytes = loaded->engine->layout().SlotBytes();
  if (slot >= program::kStreamSlots || offset > bytes || data.size() > bytes - offset) {
    return absl::OutOfRangeError(absl::StrCat(
        "the stream buffer has ", program::kStreamSlots, " slots of ", bytes, " bytes; ",
        data.size(), " bytes at ", offset, " of slot ", slot, " were written"));
  }
  std::memcpy(loaded->streams.data() + slot * bytes + offset, data.data(), data.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> Agent::ReadStream(absl::string_view lease_id, uint32_t slot,
                                              uint64_t offset, uint64_t bytes) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  const uint64_t size = loaded->engine->layout().SlotBytes();
  if (slot >= program::kStreamSlots || offset > size || bytes > size - offset) {
    return absl::OutOfRangeError(absl::StrCat("the stream buffer has ", program::kStreamSlots,
                                              " slots of ", size, " bytes; ", bytes, " bytes at ",
                                              offset, " of slot ", slot, " were read"));
  }
  return std::string(reinterpret_cast<const char*>(loaded->streams.data()) + slot * size + offset,
                     bytes);
}

absl::Status Agent::WriteVariable(absl::string_view lease_id, absl::string_view variable,
                                  bool all_replicas, uint32_t replica, uint64_t offset,
                                  absl::string_view data) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  VPOD_ASSIGN_OR_RETURN(const auto* declared, loaded->engine->executable().FindVariable(variable));
  const uint32_t first = all_replicas ? 0 : replica;
  const uint32_t last = all_replicas ? lease->open.job().local_replicas() - 1 : replica;
  for (uint32_t r = first; r <= last; ++r) {
    VPOD_RETURN_IF_ERROR(loaded->engine->WriteVariable(*declared, r, offset, data));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Agent::ReadVariable(absl::string_view lease_id,
                                                absl::string_view variable, uint32_t replica) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  VPOD_ASSIGN_OR_RETURN(const auto* declared, loaded->engine->executable().FindVariable(variable));
  return loaded->engine->ReadVariable(*declared, replica);
}

absl::StatusOr<std::vector<base::Cycles>> Agent::Counters(absl::string_view lease_id) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  return loaded->engine->Counters();
}

absl::StatusOr<telemetry::v1::GetPartitionTelemetryReply> Agent::GetTelemetry(
    absl::string_view partition_id) {
  telemetry::v1::GetPartitionTelemetryReply reply;
  base::MutexLock lock(mutex_);
  const auto it = partitions_.find(std::string(partition_id));
  if (it == partitions_.end()) {
    return absl::NotFoundError(absl::StrCat("partition ", partition_id, " is not on this agent"));
  }
  const vipuagent::AgentPartition& spec = it->second->spec;
  for (const auto& gcd : it->second->gcds) {
    for (const IpuSlot& slot : gcd) {
      telemetry::v1::IpuTelemetry* ipu = reply.add_ipus();
      ipu->set_gcd_id(slot.gcd);
      ipu->set_routing_id(slot.routing_id);
      machine::Machine& machine = *machines_[slot.machine];
      const machine::PartitionFacts facts{spec.id(),
                                          slot.routing_id,
                                          spec.ild_routing(),
                                          spec.num_replicas(),
                                          SyncTypeText(spec.sync_type()),
                                          spec.reconfigurable()};
      std::optional<machine::Holder> holder;
      if (slot.holder != nullptr && !slot.holder->releasing) {
        const ipuof::v1::ProcessInfo& process = slot.holder->open.process();
        holder = {process.executable(), process.user(), process.pid(), process.start_time_unix(),
                  slot.holder->open.monitoring()};
        ipu->set_attached(true);
        *ipu->mutable_process() = process;
      }
      for (const auto& [key, value] :
           machine.Attributes(slot.number, &facts, holder.has_value() ? &*holder : nullptr)) {
        (*ipu->mutable_attributes())[key] = value;
      }
      ipu->set_cycles(machine.ipu(slot.number).cycles.load());
    }
  }
  return reply;
}

absl::Status Agent::ResetDevice(absl::string_view partition_id, uint32_t gcd, uint32_t device_id) {
  base::MutexLock lock(mutex_);
  const Partition* partition = nullptr;
  VPOD_ASSIGN_OR_RETURN(const auto ipus, FindIpus(partition_id, gcd, device_id, &partition));
  for (const IpuSlot* slot : ipus) {
    for (const LeasePtr& lease : {slot->holder, slot->reserver}) {
      if (lease == nullptr) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("device ", device_id, " is in use by process ", lease->open.process().pid(),
                       " on ", lease->open.process().host()));
    }
  }
  for (const IpuSlot* slot : ipus) machines_[slot->machine]->ipu(slot->number).cycles = 0;
  return absl::OkStatus();
}

void Agent::Tick() {
  std::vector<std::pair<std::shared_ptr<fabric::Job>, std::chrono::seconds>> jobs;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, lease] : leases_) {
      if (lease->job == nullptr) continue;
      const uint32_t timeout = lease->open.job().join_timeout_seconds();
      jobs.emplace_back(lease->job, std::chrono::seconds(timeout == 0 ? 120 : timeout));
    }
  }
  const fabric::Job::Clock::time_point now = fabric::Job::Clock::now();
  for (auto& [job, timeout] : jobs) job->Tick(now, options_.wait_patience, timeout);
}

}  // namespace vpod::agent
