// Calls of a client on its lease: load, run, streams, variables.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {

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

std::shared_ptr<shm::Segment> Agent::StreamsOf(const Loaded& loaded) {
  base::MutexLock lock(mutex_);
  return loaded.streams;
}

std::shared_ptr<Agent::Loaded> Agent::LoadedOn(const Lease& lease) {
  base::MutexLock lock(mutex_);
  return lease.loaded;
}

absl::StatusOr<std::pair<base::UniqueFd, uint64_t>> Agent::StreamSegment(
    absl::string_view lease_id) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const Loaded& loaded = *found.second;
  const auto streams = StreamsOf(loaded);
  return std::make_pair(base::UniqueFd(fcntl(streams->fd(), F_DUPFD_CLOEXEC, 0)),
                        loaded.engine->layout().TotalBytes());
}

absl::Status Agent::ShareStreams(absl::string_view lease_id, base::UniqueFd segment) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  VPOD_ASSIGN_OR_RETURN(
      shm::Segment shared,
      shm::Segment::Map(std::move(segment), loaded->engine->layout().TotalBytes()));
  base::MutexLock lock(mutex_);
  if (lease->running) return absl::FailedPreconditionError("a run is active on this lease");
  loaded->streams = std::make_shared<shm::Segment>(std::move(shared));
  return absl::OkStatus();
}

absl::Status Agent::MayLoad(const LeasePtr& lease) {
  if (lease == nullptr || lease->releasing)
    return absl::NotFoundError("the lease does not exist or has ended");
  if (lease->open.reserve_only())
    return absl::FailedPreconditionError(
        "the lease only reserves the device; attach to it to load");
  if (lease->running) return absl::FailedPreconditionError("a run is active on this lease");
  // The other processes map the memory of what is loaded first and would go on working on it.
  if (lease->loaded != nullptr && lease->job->spans_processes())
    return absl::FailedPreconditionError(
        "the job spans agents, which share the executable loaded first; attach again to load "
        "another");
  return absl::OkStatus();
}

absl::StatusOr<Agent::LeasePtr> Agent::BeginPreparing(absl::string_view lease_id) {
  base::MutexLock lock(mutex_);
  LeasePtr lease = FindLease(lease_id);
  VPOD_RETURN_IF_ERROR(MayLoad(lease));
  lease->preparing = true;
  return lease;
}

void Agent::EndPreparing(const LeasePtr& lease) {
  bool last;
  {
    base::MutexLock lock(mutex_);
    lease->preparing = false;
    last = lease->releasing && !lease->busy();
  }
  if (last) FinishRelease(lease);
}

// IPUs that the lease's partition has in each IPU-Link domain.
uint32_t Agent::DomainIpus(const Lease& lease) {
  base::MutexLock lock(mutex_);
  const Partition* partition = PartitionOf(lease);
  if (partition == nullptr || partition->wiring == nullptr) return arch::kMaxIpusPerLinkDomain;
  return partition->wiring->ipus_per_domain();
}

absl::StatusOr<std::shared_ptr<void>> Agent::BeginLoad(absl::string_view lease_id, uint64_t bytes) {
  struct Turn {
    Turn(Agent& agent, LeasePtr lease) : agent(agent), lease(std::move(lease)) {}
    ~Turn() {
      base::MutexLock lock(agent.mutex_);
      lease->loading = false;
    }
    Agent& agent;
    const LeasePtr lease;
    engine::Reservation memory;
  };
  std::shared_ptr<Turn> turn;
  {
    base::MutexLock lock(mutex_);
    const LeasePtr lease = FindLease(lease_id);
    VPOD_RETURN_IF_ERROR(MayLoad(lease));
    if (lease->loading)
      return absl::FailedPreconditionError("another executable is being loaded on this lease");
    lease->loading = true;
    turn = std::make_shared<Turn>(*this, lease);
  }
  VPOD_ASSIGN_OR_RETURN(turn->memory, engine::Reservation::Make(budget_, bytes));
  return std::shared_ptr<void>(std::move(turn));
}

absl::StatusOr<ipuof::v1::LoadReply> Agent::Load(absl::string_view lease_id,
                                                 absl::string_view bytes, absl::string_view origins,
                                                 const LoadOptions& options) {
  VPOD_ASSIGN_OR_RETURN(const LeasePtr lease, BeginPreparing(lease_id));
  const auto end = absl::MakeCleanup([&] { EndPreparing(lease); });
  VPOD_RETURN_IF_ERROR(BeforeLoad(*lease));
  // The parsed executable takes memory as long as it is loaded.
  VPOD_ASSIGN_OR_RETURN(const uint64_t text_bytes,
                        program::Executable::ParsedSize(bytes, {}, origins));
  VPOD_ASSIGN_OR_RETURN(engine::Reservation text, engine::Reservation::Make(budget_, text_bytes));
  const auto reserve = [&text](uint64_t more) { return text.Grow(more); };
  VPOD_ASSIGN_OR_RETURN(auto executable, program::Executable::Parse(bytes, {}, origins, reserve));
  const ipuof::v1::JobMember& member = lease->open.job();
  VPOD_ASSIGN_OR_RETURN(auto engine,
                        engine::Engine::Create(executable,
                                               {.executors = &executors_,
                                                .budget = &budget_,
                                                .job = lease->job,
                                                .instance = member.instance_index(),
                                                .replica_offset = member.replica_offset(),
                                                .local_replicas = member.local_replicas(),
                                                .units = lease->units,
                                                .clock_hz = type_.clock_hz,
                                                .ipus_per_domain = DomainIpus(*lease),
                                                .check_finite = options.check_finite,
                                                .sharing = options.sharing,
                                                .group = lease->group},
                                               &lease->releasing));
  VPOD_ASSIGN_OR_RETURN(shm::Segment streams, shm::Segment::Create(engine->layout().TotalBytes()));
  ipuof::v1::LoadReply reply;
  reply.set_executable_hash(executable->hash());
  for (base::Bytes use : engine->memory_use()) reply.add_memory_bytes_per_ipu(use.value());
  auto loaded = std::make_shared<Loaded>();
  loaded->text = std::move(text);
  loaded->engine = std::move(engine);
  loaded->streams = std::make_shared<shm::Segment>(std::move(streams));
  loaded->traffic = TrafficOfLease(*lease, *executable);
  {
    base::MutexLock lock(mutex_);
    VPOD_RETURN_IF_ERROR(MayLoad(lease));  // still
    lease->loaded.swap(loaded);
  }
  lease->job->Loaded(member.instance_index(), lease->open.part(), executable->hash());
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
  absl::Status status = BeforeRun(*lease, *loaded);
  if (!status.ok()) {
    lease->job->Fail(status);
    return refuse(std::move(status));
  }
  std::vector<machine::Ipu*> ipus;
  {
    base::MutexLock lock(mutex_);
    if (lease->releasing) {
      status = absl::NotFoundError("the lease has ended");
    } else if (lease->running) {
      status = absl::FailedPreconditionError("a run is already active on this lease");
    } else {
      lease->running = true;
      for (uint32_t ipu : lease->unit_ipus) ipus.push_back(&IpuAt(ipu));
    }
  }
  if (!status.ok()) return refuse(std::move(status));
  const uint32_t per_replica = lease->open.job().ipus_per_replica();
  const ipu::WallClock::time_point now = ipu::WallClock::now();
  for (size_t i = 0; i < ipus.size(); ++i) {
    const model::Cost cost = engine.ProgramCost(program, lease->units[i] % per_replica);
    ipus[i]->host_rx_bytes += cost.from_host.value();
    ipus[i]->host_tx_bytes += cost.to_host.value();
    const double total = std::max<double>(1, static_cast<double>(cost.total().value()));
    ipus[i]->sensors.BeginRun({static_cast<double>(cost.compute.value()) / total,
                               static_cast<double>(cost.exchange.value()) / total},
                              now);
  }
  // Nobody replaces the segment while `running` is set.
  std::byte* buffer = loaded->streams->data() + slot * engine.layout().SlotBytes();
  engine.Run(program, buffer,
             [this, lease = lease, loaded = loaded, program, ipus = std::move(ipus),
              done = std::move(done)](absl::StatusOr<engine::RunResult> result) {
               const ipu::WallClock::time_point end = ipu::WallClock::now();
               for (machine::Ipu* each : ipus) {
                 each->sensors.EndRun(end);
                 if (result.ok()) each->cycles += result->cycles.value();
               }
               if (result.ok()) CountTraffic(*loaded, program);
               bool last;
               {
                 base::MutexLock lock(mutex_);
                 lease->running = false;
                 last = lease->releasing && !lease->busy();
               }
               if (result.ok()) {
                 done(result->cycles);
               } else {
                 done(result.status());
               }
               if (last) FinishRelease(lease);
             });
}

void Agent::CancelRuns(absl::string_view lease_id) {
  const auto found = FindLoaded(lease_id);
  if (!found.ok()) return;
  const auto& [lease, loaded] = *found;
  loaded->engine->Cancel(absl::CancelledError("the run was cancelled"));
  // Also for the units of the lease itself, which may wait for each other.
  const uint32_t instance = lease->open.job().instance_index();
  lease->job->Fail(
      absl::AbortedError(absl::StrCat("instance ", instance, " (",
                                      ProcessName(lease->open.process()), ") cancelled its run")),
      /*lost=*/false, instance);
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
  std::memcpy(StreamsOf(*loaded)->data() + slot * bytes + offset, data.data(), data.size());
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
  const auto streams = StreamsOf(*loaded);
  return std::string(reinterpret_cast<const char*>(streams->data()) + slot * size + offset,
                     std::min(bytes, kReadPortion));
}

absl::Status Agent::WriteVariable(absl::string_view lease_id, absl::string_view variable,
                                  bool all_replicas, uint32_t replica, uint64_t offset,
                                  absl::string_view data) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  VPOD_ASSIGN_OR_RETURN(const auto* declared, loaded->engine->executable().FindVariable(variable));
  return loaded->engine->WriteVariable(
      *declared, all_replicas ? std::nullopt : std::optional<uint32_t>(replica), offset, data);
}

absl::StatusOr<std::string> Agent::ReadVariable(absl::string_view lease_id,
                                                absl::string_view variable, uint32_t replica,
                                                uint64_t offset) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  VPOD_ASSIGN_OR_RETURN(const auto* declared, loaded->engine->executable().FindVariable(variable));
  return loaded->engine->ReadVariable(*declared, replica, offset, kReadPortion);
}

absl::StatusOr<std::vector<base::Cycles>> Agent::Counters(absl::string_view lease_id) {
  VPOD_ASSIGN_OR_RETURN(const auto found, FindLoaded(lease_id));
  const auto& [lease, loaded] = found;
  return loaded->engine->Counters();
}

}  // namespace vpod::agent
