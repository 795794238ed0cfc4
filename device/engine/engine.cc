#include "device/engine/engine.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/counted.h"
#include "device/base/status.h"
#include "device/engine/compute_pool.h"
#include "device/engine/engine_impl.h"
#include "device/engine/kernels/epilogue.h"
#include "device/engine/lease_group.h"
#include "device/model/op_plans.h"
#include "device/program/op.h"
#include "device/program/rendezvous.h"

namespace vpod::engine {
using program::v1::Instruction;

namespace {

// Host memory that a prepared kernel takes until the executable is unloaded.
uint64_t PreparedBytes(const Kernel& kernel) {
  constexpr uint64_t kBytesOfAPhase = 1024;  // with what its function captures
  return kernel.phases.size() * kBytesOfAPhase + kernel.primitive_bytes;
}

absl::Status EndedWhileLoading() {
  return absl::CancelledError("the lease ended while its executable was loaded");
}

}  // namespace

Engine::Engine(std::shared_ptr<const program::Executable> executable, const EngineOptions& options)
    : executable_(std::move(executable)),
      options_(options),
      topology_{options.clock_hz, options.job->shape().total_replicas,
                executable_->ipus_per_replica(), options.ipus_per_domain},
      layout_(executable_->proto(), options.local_replicas),
      queue_(options.executors->compute().QueueOf(options.job->id())) {}

Engine::~Engine() {
  if (options_.group != nullptr) options_.group->Forget(*this);
}

absl::StatusOr<std::shared_ptr<Engine>> Engine::Create(
    std::shared_ptr<const program::Executable> executable, const EngineOptions& options,
    const std::atomic<bool>* cancelled) {
  const fabric::JobShape& shape = options.job->shape();
  if (executable->ipus_per_replica() != shape.ipus_per_replica) {
    return absl::FailedPreconditionError(
        absl::StrCat("the executable is for ", base::Counted(executable->ipus_per_replica(), "IPU"),
                     " per replica, the job has ", shape.ipus_per_replica));
  }
  VPOD_RETURN_IF_ERROR(program::CheckReplicas(executable->proto(), shape.total_replicas));
  std::shared_ptr<Engine> engine(new Engine(std::move(executable), options));
  VPOD_RETURN_IF_ERROR(engine->Prepare(cancelled));
  return engine;
}

uint64_t Engine::ArenaBytes(uint32_t ipu) const {
  return RoundUp(executable_->proto().ipus(static_cast<int>(ipu)).arena_bytes());
}

uint64_t Engine::OwnBytes(uint32_t ipu) const {
  return program::RemoteBytes(executable_->proto().ipus(static_cast<int>(ipu))) +
         shared_bytes_[ipu] + packed_bytes_[ipu] + packing_[ipu].kept_bytes;
}

void Engine::PlanKeptForms() {
  const program::v1::Executable& text = executable_->proto();
  for (uint32_t ipu = 0; ipu < text.ipus_per_replica(); ++ipu) {
    std::vector<std::vector<const Kernel*>> kernels;
    for (const std::vector<Step>& function : steps_[ipu]) {
      kernels.emplace_back();
      for (const Step& step : function) kernels.back().push_back(&step.kernel);
    }
    PackingPlan& plan = packing_.emplace_back(PlanPacking(text, ipu, kernels));
    for (size_t f = 0; f < steps_[ipu].size(); ++f) {
      for (size_t s = 0; s < steps_[ipu][f].size(); ++s) {
        steps_[ipu][f][s].kept = plan.kept[f][s];
        steps_[ipu][f][s].written = std::move(plan.written[f][s]);
      }
    }
  }
}

void Engine::AttachEpilogues() {
  for (size_t ipu = 0; ipu < steps_.size(); ++ipu) {
    const program::v1::Ipu& text = executable_->proto().ipus(static_cast<int>(ipu));
    for (std::vector<Step>& function : steps_[ipu]) {
      std::vector<Step> steps;
      for (Step& step : function) {
        const auto is_shared = [](const Step& each) { return each.scope != Scope::kUnit; };
        const bool once = is_shared(step) || (!steps.empty() && is_shared(steps.back()));
        if (steps.empty() || once ||
            !CanBeEpilogue(text, *steps.back().source, steps.back().kernel, *step.source,
                           step.kernel)) {
          steps.push_back(std::move(step));
          continue;
        }
        Step& before = steps.back();
        AttachEpilogue(before.kernel, step.kernel);
        scratch_bytes_ = std::max<uint64_t>(scratch_bytes_, RoundUp(before.kernel.scratch_bytes));
        before.written.insert(before.written.end(), step.written.begin(), step.written.end());
        before.cost += step.cost;
      }
      function = std::move(steps);
    }
  }
}

absl::Status Engine::AddFiniteChecks() {
  for (size_t ipu = 0; ipu < steps_.size(); ++ipu) {
    for (std::vector<Step>& function : steps_[ipu]) {
      std::vector<Step> checked;
      for (Step& step : function) {
        checked.push_back(std::move(step));
        Step check;
        check.source = checked.back().source;
        check.origin = checked.back().origin;
        check.number = checked.back().number;
        check.scope = std::max(checked.back().scope, checked.back().results);
        check.kernel =
            PrepareFiniteCheck(executable_->proto().ipus(static_cast<int>(ipu)), *check.source);
        if (check.kernel.phases.empty()) continue;
        VPOD_RETURN_IF_ERROR(prepared_.Grow(PreparedBytes(check.kernel)));
        checked.push_back(std::move(check));
      }
      function = std::move(checked);
    }
  }
  return absl::OkStatus();
}

void Engine::KeepNone() {
  for (PackingPlan& plan : packing_) plan.kept_bytes = 0;
  for (auto& functions : steps_) {
    for (std::vector<Step>& steps : functions) {
      for (Step& step : steps) step.kept.reset();
    }
  }
}

std::vector<uint32_t> Engine::UnitsHere() const {
  std::vector<uint32_t> here = options_.units;
  if (here.empty()) {
    here.resize(size_t{options_.local_replicas} * executable_->ipus_per_replica());
    std::iota(here.begin(), here.end(), 0);
  }
  return here;
}

void Engine::CountUnits() {
  units_of_ipu_.resize(executable_->ipus_per_replica());
  for (uint32_t unit : UnitsHere()) ++units_of_ipu_[unit % executable_->ipus_per_replica()];
}

absl::Status Engine::CreateUnits() {
  const program::v1::Executable& text = executable_->proto();
  const uint32_t ipus = text.ipus_per_replica();
  const std::vector<uint32_t> here = UnitsHere();
  const auto threads = static_cast<uint64_t>(options_.executors->compute_threads());
  const auto reserve = [&] {
    uint64_t bytes = layout_.TotalBytes() + threads * scratch_bytes_;
    for (uint32_t unit : here) bytes += ArenaBytes(unit % ipus) + OwnBytes(unit % ipus);
    bytes -= SavedBytes(sharing_);
    return Reservation::Make(*options_.budget, bytes);
  };
  absl::StatusOr<Reservation> reserved = reserve();
  if (!reserved.ok()) {
    KeepNone();
    reserved = reserve();
  }
  VPOD_RETURN_IF_ERROR(reserved.status());
  reserved_ = *std::move(reserved);
  VPOD_ASSIGN_OR_RETURN(scratch_, shm::Mapping::Private(threads * scratch_bytes_));
  std::vector<size_t> created(ipus);
  for (uint32_t number : here) {
    auto unit = std::make_unique<Unit>();
    unit->replica = number / ipus;
    unit->ipu = number % ipus;
    unit->position = created[unit->ipu]++;
    VPOD_ASSIGN_OR_RETURN(unit->arena, shm::Segment::Create(ArenaBytes(unit->ipu)));
    VPOD_ASSIGN_OR_RETURN(unit->own, shm::Mapping::Private(OwnBytes(unit->ipu)));
    unit->remote = unit->own.data();
    unit->shared = unit->remote + program::RemoteBytes(text.ipus(unit->ipu));
    unit->packed = unit->shared + shared_bytes_[unit->ipu];
    unit->kept = unit->packed + packed_bytes_[unit->ipu];
    unit->forms = std::make_unique<KeptForms>(packing_[unit->ipu]);
    units_.push_back(std::move(unit));
  }
  for (const auto& unit : units_) {
    for (uint32_t ipu = 0; ipu < ipus; ++ipu)
      spans_processes_ = spans_processes_ || !Hosts(unit->replica, ipu);
  }
  return absl::OkStatus();
}

const Engine::Unit* Engine::FirstUnit(uint32_t ipu) const {
  const auto it = std::find_if(units_.begin(), units_.end(),
                               [&](const auto& unit) { return unit->ipu == ipu; });
  return it == units_.end() ? nullptr : it->get();
}

const Engine::Unit* Engine::FindUnit(uint32_t replica, uint32_t ipu) const {
  const auto place = std::make_pair(replica, ipu);
  const auto it = std::lower_bound(units_.begin(), units_.end(), place,
                                   [](const auto& unit, const auto& wanted) {
                                     return std::make_pair(unit->replica, unit->ipu) < wanted;
                                   });
  if (it == units_.end() || std::make_pair((*it)->replica, (*it)->ipu) != place) return nullptr;
  return it->get();
}

absl::StatusOr<std::pair<int, uint64_t>> Engine::Arena(uint32_t replica, uint32_t ipu) const {
  const Unit* unit = FindUnit(replica, ipu);
  if (unit == nullptr) return absl::NotFoundError("the unit is on another process");
  return std::make_pair(unit->arena.fd(), uint64_t{unit->arena.size()});
}

absl::Status Engine::PrepareSteps(const std::atomic<bool>* cancelled) {
  const program::v1::Executable& text = executable_->proto();
  VPOD_ASSIGN_OR_RETURN(prepared_, Reservation::Make(*options_.budget, 0));
  for (uint32_t ipu = 0; ipu < text.ipus_per_replica(); ++ipu) {
    const program::v1::Ipu& tensors = text.ipus(static_cast<int>(ipu));
    std::vector<std::vector<Step>>& functions = steps_.emplace_back();
    std::vector<bool> functions_meet;  // with other units
    const model::PlanContext context(text, ipu, topology_);
    uint64_t& shared_bytes = shared_bytes_.emplace_back(0);
    uint64_t& packed_bytes = packed_bytes_.emplace_back(0);
    for (const program::v1::Function& function : tensors.functions()) {
      std::vector<Step>& steps = functions.emplace_back();
      functions_meet.push_back(false);
      for (const Instruction& instruction : function.instructions()) {
        if (cancelled != nullptr && *cancelled) return EndedWhileLoading();
        Step& step = steps.emplace_back();
        step.source = &instruction;
        step.number = steps.size() - 1;
        const size_t f = functions.size() - 1;
        if (sharing_.uniform.once[ipu][f][step.number]) step.scope = Scope::kLease;
        if (sharing_.uniform.results_for_one[ipu][f][step.number]) step.results = Scope::kLease;
        step.origin = executable_->OriginOf(ipu, functions.size() - 1, steps.size() - 1);
        step.cost = model::Price(instruction, context);
        const program::Role role = program::FindOp(instruction.attributes_case())->role;
        step.meets = role == program::Role::kCollective || role == program::Role::kExchange;
        program::ForEachCall(instruction, [&](uint32_t callee, uint64_t) {
          step.meets = step.meets || functions_meet[callee];
        });
        functions_meet.back() = functions_meet.back() || step.meets;
        if (role != program::Role::kKernel) continue;
        VPOD_ASSIGN_OR_RETURN(step.kernel, PrepareKernel(tensors, instruction));
        VPOD_RETURN_IF_ERROR(prepared_.Grow(PreparedBytes(step.kernel)));
        shared_bytes = std::max(shared_bytes, RoundUp(step.kernel.shared_bytes));
        packed_bytes = std::max(packed_bytes, RoundUp(step.kernel.packed_bytes));
        scratch_bytes_ = std::max<uint64_t>(scratch_bytes_, step.kernel.scratch_bytes);
      }
    }
  }
  scratch_bytes_ = RoundUp(scratch_bytes_);
  return absl::OkStatus();
}

void Engine::PricePrograms() {
  const program::v1::Executable& text = executable_->proto();
  costs_.resize(static_cast<size_t>(text.programs_size()));
  for (uint32_t ipu = 0; ipu < text.ipus_per_replica(); ++ipu) {
    std::vector<model::Cost> once;  // by function, without those that it calls
    for (const std::vector<Step>& function : steps_[ipu]) {
      model::Cost& cost = once.emplace_back();
      for (const Step& step : function) cost += step.cost;
    }
    for (size_t program = 0; program < costs_.size(); ++program) {
      const std::vector<uint64_t> executions =
          program::PlannedExecutions(text.ipus(static_cast<int>(ipu)),
                                     executable_->EntryOf(static_cast<uint32_t>(program), ipu));
      model::Cost& cost = costs_[program].emplace_back();
      for (size_t f = 0; f < executions.size(); ++f) cost += once[f] * executions[f];
    }
  }
}

absl::Status Engine::Prepare(const std::atomic<bool>* cancelled) {
  const program::v1::Executable& text = executable_->proto();
  const absl::Status fits = model::CheckMemory(*executable_, topology_, &memory_use_);
  // That the lease has ended meanwhile comes first.
  if (cancelled != nullptr && *cancelled) return EndedWhileLoading();
  if (options_.enforce_memory) VPOD_RETURN_IF_ERROR(fits);
  CountUnits();
  PlanFirstSharing();
  VPOD_RETURN_IF_ERROR(PrepareSteps(cancelled));
  PlanKeptForms();
  if (options_.check_finite) {
    VPOD_RETURN_IF_ERROR(AddFiniteChecks());
  } else {
    AttachEpilogues();
  }
  VPOD_RETURN_IF_ERROR(CreateUnits());
  VPOD_RETURN_IF_ERROR(ShareFirst());
  VPOD_ASSIGN_OR_RETURN(split_, Reservation::Make(*options_.budget, 0));
  participants_ = program::Participants(text);
  PricePrograms();
  for (uint32_t program = 0; program < costs_.size(); ++program)
    meets_other_leases_.push_back(MeetsOtherLeases(program));
  return absl::OkStatus();
}

void Engine::Run(uint32_t program, std::byte* slot, Done done) {
  auto run = std::make_shared<Run_>();
  run->engine = shared_from_this();
  run->program = program;
  run->slot = slot;
  const auto refuse = [&](absl::Status status) {
    options_.executors->PostControl([done, status] { done(status); });
  };
  if (program >= costs_.size()) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("program ", program, " does not exist; there are ", costs_.size())));
  }
  bool needs_job = false;
  {
    base::MutexLock lock(mutex_);
    if (running_)
      return refuse(absl::FailedPreconditionError("a run is already active on this lease"));
    if (cancelled_.load()) return refuse(CancelCause());
    running_ = true;
  }
  // Without the lock, for which a cancellation would wait: no call touches variables in a run.
  absl::Status shared = ShareAgain();
  run->meets_leases = meets_other_leases_[program];
  if (shared.ok() && !run->meets_leases) shared = UnshareBeforeWriting(program);
  if (!shared.ok()) {
    base::MutexLock lock(mutex_);
    running_ = false;
    return refuse(std::move(shared));
  }
  {
    // Only now: other leases count a run that is refused as little as this one does.
    base::MutexLock lock(mutex_);
    run->number = NumberRun(program, &needs_job);
    run->spans_processes = !StaysHere(run->number);
  }
  run->done = std::move(done);
  for (const auto& unit : units_) unit->clock.store(0);
  for (size_t units : units_of_ipu_) run->barriers.emplace_back(units);
  if (!needs_job) return StartUnits(run);
  options_.job->StartRun(options_.instance, run->number, program,
                         [self = shared_from_this(), run](absl::Status status) {
                           if (status.ok()) return self->AgreeAndStart(run);
                           {
                             base::MutexLock lock(run->mutex);
                             run->status = status;
                           }
                           self->FinishRun(*run);
                         });
}

uint64_t Engine::NumberRun(uint32_t program, bool* needs_job) {
  if (executable_->has_collectives(program)) {
    *needs_job = true;
    return collective_runs_++;
  }
  // Other runs meet nobody outside the instance; its number keeps their rendezvous apart.
  const uint64_t first = fabric::kFirstLoneRun + (uint64_t{options_.instance} << 32);
  if (!spans_processes_) return first;
  *needs_job = true;
  return first + copying_runs_++;
}

Task Engine::RunUnit(Run_& run, Unit& unit) {
  Interpreter interpreter(*this, run, unit);
  {
    absl::Status status =
        co_await interpreter.RunFunction(executable_->EntryOf(run.program, unit.ipu));
    const bool has_collectives = run.number < fabric::kFirstLoneRun;
    if (status.ok() && run.spans_processes && has_collectives)
      status = co_await interpreter.MeetAtEnd();
    if (!status.ok()) UnitFailed(run, status, interpreter.failed_by_itself());
  }
  if (run.remaining.fetch_sub(1) == 1) FinishRun(run);
  co_return absl::OkStatus();  // nobody waits for it; the run has the status
}

void Engine::UnitFailed(Run_& run, const absl::Status& cause, bool by_itself) {
  fabric::Job& job = *options_.job;
  if (by_itself) {
    // A program's own error ends the run for all that meet in it, and nothing else.
    job.FailRun(run.number, cause);
  } else if (!job.HasFailedRun(run.number)) {
    // Units of this lease that wait for the failed one must not wait for ever.
    Cancel(cause);
    job.Fail(cause, false, options_.instance);
  }
  // Only now: units that stop for it must find the job informed.
  run.Fail(cause, by_itself);
}

bool Engine::StaysHere(uint64_t run) const {
  return run < fabric::kFirstLoneRun ? !options_.job->spans_processes() : !spans_processes_;
}

void Engine::StartUnits(const std::shared_ptr<Run_>& run) {
  run->remaining = units_.size();
  for (const auto& unit : units_) run->units.push_back(RunUnit(*run, *unit));
  for (Task& unit : run->units) {
    queue_->Post([run, &unit] { unit.Start(); });
  }
}

void Engine::FinishRun(Run_& run) {
  if (run.leases == nullptr) return EndRun(run);
  run.leases->End(this, [run = run.shared_from_this()] { run->engine->EndRun(*run); });
}

void Engine::EndRun(Run_& run) {
  absl::StatusOr<RunResult> result = RunResult{};
  {
    base::MutexLock lock(run.mutex);
    if (!run.status.ok()) result = std::move(run.status);
  }
  if (result.ok()) {
    uint64_t begin = 0;  // when the last IPU was ready
    for (const auto& unit : units_) begin = std::max(begin, unit->counter.load());
    for (const auto& unit : units_) {
      const uint64_t clock = unit->clock.load();
      result->cycles = std::max(result->cycles, base::Cycles(clock));
      unit->counter.store(begin + clock);
    }
  } else {
    // How far each unit came is chance, which must not show in later runs. Nor does it know what
    // other units have written for it.
    for (const auto& unit : units_) unit->forms->AllWritten();
  }
  // Its number is taken again.
  if (!result.ok() && run.number >= fabric::kFirstLoneRun && !spans_processes_)
    options_.job->ForgetFailedRun(run.number);
  {
    base::MutexLock lock(mutex_);
    running_ = false;
  }
  // On the thread of the last unit: another hop would cost an empty run a third of its time.
  run.done(std::move(result));
}

void Engine::Cancel(const absl::Status& cause) {
  base::MutexLock lock(cancel_mutex_);
  if (!cancel_cause_.ok()) return;
  cancel_cause_ = cause;
  cancelled_.store(true);
}

absl::Status Engine::CancelCause() const {
  base::MutexLock lock(cancel_mutex_);
  return cancel_cause_;
}

std::vector<base::Cycles> Engine::Counters() const {
  std::vector<base::Cycles> counters;
  for (const auto& unit : units_) counters.emplace_back(unit->counter.load());
  return counters;
}

}  // namespace vpod::engine
