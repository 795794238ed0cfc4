#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/engine_impl.h"
#include "device/program/op.h"
#include "device/program/origins.h"

namespace vpod::engine {
namespace {

using program::v1::Instruction;

// A run of a kernel, which may be interrupted between chunks.
class KernelRun {
 public:
  // `packed`: the packed memory is as the first phase would leave it.
  KernelRun(const Kernel& kernel, const Workspace& at, bool packed, const shm::Mapping& scratch,
            uint64_t scratch_bytes)
      : kernel_(kernel),
        at_(at),
        scratch_(scratch.data()),
        scratch_bytes_(scratch_bytes),
        phase_(packed ? 1 : 0) {}

  // Runs chunks until the kernel is done, which gives its status, or `pause` says so.
  std::optional<absl::Status> Continue(ComputePool& pool, ComputeQueue& queue,
                                       absl::FunctionRef<bool()> pause) {
    while (phase_ < kernel_.phases.size()) {
      const Phase& phase = kernel_.phases[phase_];
      if (phase.chunks == 1) {
        VPOD_RETURN_IF_ERROR(RunChunk(0, ComputePool::ThisThread()));
      } else if (phase.chunks > 1) {  // none where there are no elements
        if (!work_) work_.emplace(phase.chunks, run_, phase.is_long);
        if (!pool.Run(*work_, queue, pause)) return std::nullopt;
        VPOD_RETURN_IF_ERROR(work_->status());
        work_.reset();
      }
      if (++round_ == phase.rounds) {
        round_ = 0;
        ++phase_;
      }
      if (phase_ < kernel_.phases.size() && pause()) return std::nullopt;
    }
    return absl::OkStatus();
  }

 private:
  // Memory that oneDNN cannot have for itself fails the run, not the process.
  absl::Status RunChunk(size_t chunk, int thread) const {
    Workspace at = at_;
    at.scratch = scratch_ + static_cast<uint64_t>(thread) * scratch_bytes_;
    try {
      const Phase& phase = kernel_.phases[phase_];
      return phase.run(at, round_ * phase.chunks + chunk);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("the host has no memory left for temporary data");
    }
  }

  const Kernel& kernel_;
  const Workspace at_;
  std::byte* const scratch_;  // of thread 0
  const uint64_t scratch_bytes_;
  size_t phase_, round_ = 0;
  const std::function<absl::Status(size_t, int)> run_ = [this](size_t chunk, int thread) {
    return RunChunk(chunk, thread);
  };
  std::optional<ChunkedWork> work_;
};

}  // namespace

Engine::Interpreter::Interpreter(Engine& engine, Run_& run, Unit& unit)
    : engine_(engine),
      run_(run),
      unit_(unit),
      transfers_(engine.executable_->proto().streams_size()),
      copies_(engine.executable_->ipus_per_replica() * engine.executable_->ipus_per_replica()),
      exchanges_(engine.participants_.size()) {}

void Engine::Interpreter::Advance(const model::Cost& cost) {
  unit_.clock.store(unit_.clock.load(std::memory_order_relaxed) + cost.total().value(),
                    std::memory_order_relaxed);
}

bool Engine::Interpreter::MustStop() const {
  return engine_.cancelled_.load(std::memory_order_relaxed) ||
         (!run_.spans_processes && run_.failed.load(std::memory_order_relaxed));
}

absl::Status Engine::Interpreter::WhyStop() {
  if (engine_.cancelled_.load()) return engine_.CancelCause();
  base::MutexLock lock(run_.mutex);
  return run_.status;
}

absl::Status Engine::Interpreter::FailStep(const Step& step, const absl::Status& status) {
  const std::string replica =
      engine_.options_.job->shape().total_replicas == 1
          ? ""
          : absl::StrCat(" (replica ", engine_.options_.replica_offset + unit_.replica, ")");
  const absl::Status cause(status.code(), absl::StrCat(program::NameOf(*step.source, step.origin),
                                                       ": ", status.message(), replica));
  if (run_.spans_processes) {
    run_.Fail(cause);
    return absl::OkStatus();
  }
  failed_by_itself_ = true;
  return cause;
}

absl::Status Engine::Interpreter::Failure() const {
  if (!OnlyMeets()) return absl::OkStatus();
  base::MutexLock lock(run_.mutex);
  return run_.status;
}

void Engine::Interpreter::Met(const absl::StatusOr<fabric::Outcome>& outcome) {
  if (!outcome.ok()) return;
  unit_.clock.store(outcome->clock);
  if (!outcome->failure.ok()) run_.Fail(outcome->failure);
}

Task Engine::Interpreter::Yield() {
  const auto resume_at_once = [](const auto& resume) { resume(absl::OkStatus()); };
  const absl::Status status = co_await Suspend(resume_at_once);
  slice_start_ = std::chrono::steady_clock::now();
  co_return status;
}

Task Engine::Interpreter::RunFunction(uint32_t function) {
  Scope scope = Scope::kUnit;  // of the step before
  for (const Step& step : engine_.steps_[unit_.ipu][function]) {
    if (step.scope != scope) {
      const absl::Status met = co_await MeetUnits(std::max(step.scope, scope));
      if (!met.ok()) co_return met;
      scope = step.scope;
    }
    if (OnlyMeets() && !step.meets) continue;
    if (!Leads(step.scope)) {
      Skip(step);
      continue;
    }
    const absl::Status status = co_await RunStep(step);
    if (!status.ok()) co_return status;
  }
  if (scope == Scope::kUnit) co_return absl::OkStatus();
  co_return co_await MeetUnits(scope);
}

void Engine::Interpreter::Skip(const Step& step) {
  unit_.forms->Written(step.written);
  Advance(step.cost);
}

Task Engine::Interpreter::RunStep(const Step& step) {
  ComputePool& pool = engine_.options_.executors->compute();
  const auto must_pause = [&] {
    return MustStop() || OnlyMeets() || (pool.TasksWait() && SliceIsOver());
  };
  unit_.forms->Written(step.written);  // in part, if the step fails
  const Workspace at{.arena = unit_.arena.data(),
                     .shared = unit_.shared,
                     .packed = step.kept ? unit_.kept + step.kept->offset : unit_.packed,
                     .remote = unit_.remote,
                     .replica = engine_.options_.replica_offset + unit_.replica};
  const bool packed = step.kept && unit_.forms->IsCurrent(*step.kept);
  KernelRun kernel(step.kernel, at, packed, engine_.scratch_, engine_.scratch_bytes_);
  std::optional<absl::Status> status;
  bool paused = must_pause();
  while (!status) {
    if (paused) (co_await Yield()).IgnoreError();
    if (MustStop()) co_return WhyStop();
    if (OnlyMeets() && !step.meets) {
      status = absl::OkStatus();
    } else if (step.kernel.phases.empty()) {
      status = co_await Communicate(step);
    } else {
      status = kernel.Continue(pool, *engine_.queue_, must_pause);
      if (status && !status->ok()) status = FailStep(step, *status);
    }
    paused = true;  // if the kernel is not done
  }
  if (!status->ok() || OnlyMeets()) co_return *status;  // the step may not be done
  if (step.kept) unit_.forms->Packed(*step.kept);
  unit_.forms->Written(step.written);
  Advance(step.cost);
  co_return absl::OkStatus();
}

Task Engine::Interpreter::Communicate(const Step& step) {
  const Instruction& source = *step.source;
  switch (program::FindOp(source.attributes_case())->role) {
    case program::Role::kControl:
      co_return co_await Control(step);
    case program::Role::kStream:
      co_return source.has_stream_in()
          ? Transfer(source.stream_in().stream(), source.outputs(0), true)
          : Transfer(source.stream_out().stream(), source.inputs(0), false);
    case program::Role::kCollective:
      co_return co_await MeetReplicas(*program::CollectiveOf(source), Leads(step.results));
    case program::Role::kExchange:
      co_return co_await Exchange(source.exchange().exchange());
    case program::Role::kKernel:
      break;
  }
  co_return absl::InternalError("not a communication step");
}

Task Engine::Interpreter::Control(const Step& prepared) {
  const Instruction& step = *prepared.source;
  const auto holds = [&] { return *DataAt(step.inputs(0)) != std::byte{0}; };
  if (step.has_call()) co_return co_await RunFunction(step.call().function());
  if (step.has_if_()) {
    const program::v1::If& op = step.if_();
    const bool condition = holds();
    if (condition && op.has_then_function()) co_return co_await RunFunction(op.then_function());
    if (!condition && op.has_else_function()) co_return co_await RunFunction(op.else_function());
    co_return absl::OkStatus();
  }
  const bool repeat = step.has_repeat();
  const uint32_t function = repeat ? step.repeat().function() : step.while_().function();
  const uint32_t rounds = repeat ? step.repeat().count() : step.while_().max_rounds();
  for (uint32_t round = 0; round < rounds; ++round) {
    if (MustStop()) co_return WhyStop();
    if (OnlyMeets() && !prepared.meets) co_return absl::OkStatus();
    if (!repeat && !holds()) co_return absl::OkStatus();
    if (repeat && step.outputs_size() > 0)
      std::memcpy(DataAt(step.outputs(0)), &round, sizeof(round));
    const absl::Status status = co_await RunFunction(function);
    if (!status.ok()) co_return status;
  }
  if (repeat || !holds()) co_return absl::OkStatus();
  co_return FailStep(prepared,
                     absl::OutOfRangeError(absl::StrCat("the condition still holds after ", rounds,
                                                        " rounds, as many as it may take")));
}

const program::v1::Tensor& Engine::Interpreter::TensorAt(uint32_t index) const {
  return engine_.executable_->proto().ipus(unit_.ipu).tensors(index);
}

std::byte* Engine::Interpreter::DataAt(uint32_t index) const {
  return unit_.arena.data() + TensorAt(index).offset();
}

absl::Status Engine::Interpreter::Transfer(uint32_t stream, uint32_t tensor, bool to_device) {
  std::byte* buffer =
      run_.slot + engine_.layout_.Offset(stream, unit_.replica, transfers_[stream]++);
  const uint64_t bytes = engine_.layout_.TransferBytes(stream);
  if (to_device) {
    std::memcpy(DataAt(tensor), buffer, bytes);
  } else {
    std::memcpy(buffer, DataAt(tensor), bytes);
  }
  return absl::OkStatus();
}

}  // namespace vpod::engine
