#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/collective.h"
#include "device/engine/engine_impl.h"
#include "device/fabric/collectives.h"
#include "device/program/op.h"
#include "device/program/origins.h"

namespace vpod::engine {
namespace {

using program::v1::Instruction;

// A run of a kernel, which may be interrupted between chunks.
class KernelRun {
 public:
  // `packed`: the packed memory is as the first phase would leave it.
  KernelRun(const Kernel& kernel, const Workspace& at, bool packed, shm::Segment& scratch,
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

template <class Start>
struct Engine::Interpreter::Suspension {
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> unit) {
    // Out of the frame, which may be gone before `start` returns.
    Start local = std::move(start);
    local([this, unit, run = interpreter.run_.shared_from_this(),
           queue = interpreter.engine_.queue_](absl::Status result) {
      queue->Post([this, unit, run, result = std::move(result)] {
        status = result;
        unit.resume();
      });
    });
  }
  absl::Status await_resume() { return std::move(status); }

  Interpreter& interpreter;
  Start start;
  absl::Status status = {};
};

template <class Start>
Engine::Interpreter::Suspension<Start> Engine::Interpreter::Suspend(Start start) {
  return {*this, std::move(start)};
}

Engine::Interpreter::Interpreter(Engine& engine, Run_& run, Unit& unit)
    : engine_(engine),
      run_(run),
      unit_(unit),
      transfers_(engine.executable_->proto().streams_size()),
      copies_(engine.executable_->ipus_per_replica() * engine.executable_->ipus_per_replica()),
      exchanges_(engine.participants_.size()) {}

void Engine::Interpreter::Advance(const model::Cost& cost) {
  unit_.cycles.store(unit_.cycles.load(std::memory_order_relaxed) + cost.total().value(),
                     std::memory_order_relaxed);
}

bool Engine::Interpreter::MustStop() const {
  return engine_.cancelled_.load(std::memory_order_relaxed) ||
         run_.failed.load(std::memory_order_relaxed);
}

absl::Status Engine::Interpreter::WhyStop() {
  {
    base::MutexLock lock(engine_.mutex_);
    if (!engine_.cancel_cause_.ok()) return engine_.cancel_cause_;
  }
  base::MutexLock lock(run_.mutex);
  return run_.status;
}

absl::Status Engine::Interpreter::FailStep(const Step& step, const absl::Status& status) {
  failed_by_itself_ = true;
  const std::string replica =
      engine_.options_.job->shape().total_replicas == 1
          ? ""
          : absl::StrCat(" (replica ", engine_.options_.replica_offset + unit_.replica, ")");
  return absl::Status(status.code(), absl::StrCat(program::NameOf(*step.source, step.origin), ": ",
                                                  status.message(), replica));
}

Task Engine::Interpreter::Yield() {
  const auto resume_at_once = [](const auto& resume) { resume(absl::OkStatus()); };
  const absl::Status status = co_await Suspend(resume_at_once);
  slice_start_ = std::chrono::steady_clock::now();
  co_return status;
}

Task Engine::Interpreter::RunFunction(uint32_t function) {
  ComputePool& pool = engine_.options_.executors->compute();
  const auto must_pause = [&] { return MustStop() || (pool.TasksWait() && SliceIsOver()); };
  Workspace at{.arena = unit_.arena.data(),
               .shared = unit_.shared,
               .remote = unit_.remote,
               .replica = engine_.options_.replica_offset + unit_.replica};
  for (const Step& step : engine_.steps_[unit_.ipu][function]) {
    std::optional<absl::Status> status;
    unit_.forms->Written(step.written);  // in part, if the step fails
    at.packed = step.kept ? unit_.kept + step.kept->offset : unit_.packed;
    const bool packed = step.kept && unit_.forms->IsCurrent(*step.kept);
    KernelRun kernel(step.kernel, at, packed, engine_.scratch_, engine_.scratch_bytes_);
    bool paused = must_pause();
    while (!status) {
      if (paused) (co_await Yield()).IgnoreError();
      if (MustStop()) co_return WhyStop();
      if (step.kernel.phases.empty()) {
        status = co_await Communicate(step);
      } else {
        status = kernel.Continue(pool, *engine_.queue_, must_pause);
        if (status && !status->ok()) status = FailStep(step, *status);
      }
      paused = true;  // if the kernel is not done
    }
    if (!status->ok()) co_return *status;
    if (step.kept) unit_.forms->Packed(*step.kept);
    unit_.forms->Written(step.written);
    Advance(step.cost);
  }
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
      co_return co_await MeetReplicas(*program::CollectiveOf(source));
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

Task Engine::Interpreter::MeetReplicas(program::Collective op) {
  fabric::Job& job = *engine_.options_.job;
  const uint32_t replica = engine_.options_.replica_offset + unit_.replica;
  const program::GroupMembers group =
      program::MembersOf(*op.group, job.shape().total_replicas, replica);
  const fabric::RendezvousKey key{
      run_.number, unit_.ipu, collectives_++, {group.first, group.stride, group.size}};
  Participant me{this, &op};
  const uint32_t instance = engine_.options_.instance;
  co_return co_await Suspend([&me, &job, &key, replica, instance](fabric::Job::Resume resume) {
    job.Meet(
        key, key.group.Position(replica), instance, &me, std::move(resume),
        [key](const std::vector<void*>& participants, std::function<void(absl::Status)> finish) {
          RunCollective(key, participants, std::move(finish));
        });
  });
}

void Engine::Interpreter::RunCollective(const fabric::RendezvousKey& key,
                                        const std::vector<void*>& participants,
                                        std::function<void(absl::Status)> finish) {
  const auto& first = *static_cast<Participant*>(participants[0]);
  Engine& engine = first.unit->engine_;
  fabric::Collective collective =
      Describe(*first.op, engine.executable_->proto().ipus(first.unit->unit_.ipu), key.group.size);
  collective.what = absl::StrCat(collective.what, ", number ", key.sequence, " of program ",
                                 first.unit->run_.program);
  std::vector<Unit*> units;
  auto engines = std::make_shared<std::vector<std::shared_ptr<Engine>>>();
  for (void* participant : participants) {
    Interpreter& each = *static_cast<Participant*>(participant)->unit;
    units.push_back(&each.unit_);
    engines->push_back(each.engine_.shared_from_this());
    collective.replicas.push_back(each.engine_.options_.replica_offset + each.unit_.replica);
    collective.arenas.push_back(each.unit_.arena.data());
    collective.clock = std::max(collective.clock, each.unit_.cycles.load());
  }
  collective.keep_alive = engines;
  const fabric::Completed done = [units, engines,
                                  finish = std::move(finish)](absl::StatusOr<uint64_t> clock) {
    if (clock.ok()) {
      for (Unit* unit : units) unit->cycles.store(*clock);
    }
    finish(clock.status());
  };
  const auto collectives = engine.options_.job->collectives();
  if (collectives != nullptr) return collectives->Run(key, std::move(collective), done);
  fabric::RunHere(
      std::move(collective),
      [queue = engine.queue_](std::function<void()> task) { queue->Post(std::move(task)); }, done);
}

Task Engine::Interpreter::Exchange(uint32_t index) {
  const std::vector<uint32_t>& ipus = engine_.participants_[index];
  const bool here = std::all_of(ipus.begin(), ipus.end(),
                                [&](uint32_t ipu) { return engine_.Hosts(unit_.replica, ipu); });
  if (here) co_return co_await ExchangeHere(index);
  // Everyone goes through the moves in the same order: the first one that is not done has both its
  // ends there, sooner or later.
  std::vector<Copy> copies;
  const auto& exchange = engine_.executable_->proto().exchanges(static_cast<int>(index));
  for (const program::v1::Move& move : exchange.moves()) {
    if (move.from_ipu() == unit_.ipu || move.to_ipu() == unit_.ipu) {
      copies.push_back(
          {move.from_ipu(), move.to_ipu(),
           &TensorAt(move.from_ipu() == unit_.ipu ? move.from_tensor() : move.to_tensor())});
    }
  }
  // Then the clocks agree: all tell the first, which tells all.
  const uint32_t first = ipus[0];
  for (bool back : {false, true}) {
    for (uint32_t other : ipus) {
      if (ipus.size() == 2 || other == first || (unit_.ipu != first && unit_.ipu != other))
        continue;
      copies.push_back({back ? first : other, back ? other : first, nullptr});
    }
  }
  for (const Copy& copy : copies) {
    const absl::Status status = co_await CopyBetween(copy);
    if (!status.ok()) co_return status;
  }
  co_return absl::OkStatus();
}

Task Engine::Interpreter::ExchangeHere(uint32_t index) {
  const uint32_t ipus_per_replica = engine_.executable_->ipus_per_replica();
  const std::vector<uint32_t>& ipus = engine_.participants_[index];
  const uint32_t replica = engine_.options_.replica_offset + unit_.replica;
  // The channel of no pair of two IPUs. Sequences of different exchanges lie apart.
  fabric::RendezvousKey key{
      run_.number,
      ipus_per_replica + (replica * ipus_per_replica + ipus[0]) * ipus_per_replica + ipus[0],
      (uint64_t{index} << 32) + exchanges_[index]++};
  key.ipus = static_cast<uint32_t>(ipus.size());
  const auto position =
      static_cast<size_t>(std::find(ipus.begin(), ipus.end(), unit_.ipu) - ipus.begin());
  const program::v1::Executable* text = &engine_.executable_->proto();
  // All units are suspended meanwhile: their memory and clocks are nobody else's.
  const auto move_tensors = [text, index](const std::vector<void*>& participants,
                                          const std::function<void(absl::Status)>& finish) {
    std::map<uint32_t, Unit*> units;
    uint64_t clock = 0;
    for (void* participant : participants) {
      auto* unit = static_cast<Unit*>(participant);
      units[unit->ipu] = unit;
      clock = std::max(clock, unit->cycles.load());
    }
    for (const program::v1::Move& move : text->exchanges(static_cast<int>(index)).moves()) {
      const auto& source = text->ipus(static_cast<int>(move.from_ipu()))
                               .tensors(static_cast<int>(move.from_tensor()));
      const auto& target =
          text->ipus(static_cast<int>(move.to_ipu())).tensors(static_cast<int>(move.to_tensor()));
      std::memcpy(units[move.to_ipu()]->arena.data() + target.offset(),
                  units[move.from_ipu()]->arena.data() + source.offset(),
                  program::TypeOf(source).bytes());
    }
    for (const auto& [ipu, unit] : units) unit->cycles.store(clock);
    finish(absl::OkStatus());
  };
  fabric::Job& job = *engine_.options_.job;
  Unit* self = &unit_;
  const uint32_t instance = engine_.options_.instance;
  // By reference: g++ 12 destroys captures of a lambda inside co_await twice. The frame outlives
  // the call.
  co_return co_await Suspend(
      [&job, &key, &move_tensors, position, instance, self](fabric::Job::Resume resume) {
        job.Meet(key, position, instance, self, std::move(resume), move_tensors);
      });
}

Task Engine::Interpreter::CopyBetween(Copy copy) {
  const uint32_t ipus = engine_.executable_->ipus_per_replica();
  const uint32_t pair = copy.from * ipus + copy.to;
  // Channels above those of the collectives: one for each replica and ordered pair.
  const uint32_t replica = engine_.options_.replica_offset + unit_.replica;
  const fabric::RendezvousKey key{run_.number, ipus + replica * ipus * ipus + pair,
                                  copies_[pair]++};
  if (engine_.Hosts(unit_.replica, copy.from == unit_.ipu ? copy.to : copy.from))
    co_return co_await CopyHere(key, copy);
  fabric::CrossCopy cross;
  cross.from_unit = replica * ipus + copy.from;
  cross.to_unit = replica * ipus + copy.to;
  cross.data = unit_.arena.data();
  if (copy.tensor != nullptr) {
    cross.data += copy.tensor->offset();
    cross.arena_offset = copy.tensor->offset();
    cross.bytes = program::TypeOf(*copy.tensor).bytes();
  }
  cross.clock = unit_.cycles.load();
  cross.keep_alive = engine_.shared_from_this();
  const auto collectives = engine_.options_.job->collectives();
  Unit* self = &unit_;
  // By reference: see ExchangeHere.
  co_return co_await Suspend([&collectives, &key, &cross, self](fabric::Job::Resume resume) {
    collectives->Copy(key, cross,
                      [self, resume = std::move(resume)](absl::StatusOr<uint64_t> clock) {
                        if (clock.ok()) self->cycles.store(*clock);
                        resume(clock.status());
                      });
  });
}

Task Engine::Interpreter::CopyHere(fabric::RendezvousKey key, Copy copy) {
  Engine* self = &engine_;
  struct End {
    Unit* unit;
    std::byte* data;
  };
  const uint64_t bytes = copy.tensor == nullptr ? 0 : program::TypeOf(*copy.tensor).bytes();
  End me{&unit_, unit_.arena.data() + (bytes == 0 ? 0 : copy.tensor->offset())};
  const bool sends = copy.from == unit_.ipu;
  co_return co_await Suspend([=, &me](fabric::Job::Resume resume) {
    self->options_.job->Meet(
        key, sends ? 0 : 1, self->options_.instance, &me, std::move(resume),
        [bytes](const std::vector<void*>& both, std::function<void(absl::Status)> finish) {
          auto* source = static_cast<End*>(both[0]);
          auto* target = static_cast<End*>(both[1]);
          std::memcpy(target->data, source->data, bytes);
          const uint64_t clock = std::max(source->unit->cycles.load(), target->unit->cycles.load());
          source->unit->cycles.store(clock);
          target->unit->cycles.store(clock);
          finish(absl::OkStatus());
        });
  });
}

}  // namespace vpod::engine
