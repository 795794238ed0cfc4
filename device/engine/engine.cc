#include "device/engine/engine.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/collective.h"
#include "device/engine/executors_impl.h"
#include "device/engine/kernels/kernel.h"
#include "device/fabric/collectives.h"
#include "device/program/ops/collective.h"
#include "device/shm/segment.h"

namespace vpod::engine {
namespace {

namespace asio = boost::asio;
using program::v1::Instruction;

// A unit hands its thread back after this long, so that other jobs' units get their turn between
// kernels.
constexpr std::chrono::milliseconds kSlice{10};

// Suspends the coroutine; `start` receives the function that resumes it with a status, to be called
// once from any thread.
template <class Start>
asio::awaitable<absl::Status> Suspend(asio::io_context& context, Start start) {
  return asio::async_initiate<const asio::use_awaitable_t<>&, void(absl::Status)>(
      [&context, start = std::move(start)](auto handler) mutable {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        start([&context, shared](absl::Status status) {
          asio::post(context, [shared, status = std::move(status)]() mutable {
            (*shared)(std::move(status));
          });
        });
      },
      asio::use_awaitable);
}

// A kernel whose scratch memory cannot be had fails its run, not the process.
absl::Status RunKernel(const Kernel& kernel, std::byte* arena) {
  try {
    return kernel(arena);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the host has no memory left for temporary data");
  }
}

}  // namespace

absl::Status MemoryBudget::Reserve(uint64_t bytes) {
  uint64_t used = used_.load();
  do {
    if (bytes > limit_ || used > limit_ - bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the executable needs ", bytes >> 20, " MiB of host memory; ", used >> 20,
                       " MiB of the POD's limit of ", limit_ >> 20,
                       " MiB are in use (see vpod up --memory-limit)"));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return absl::OkStatus();
}

// One (replica, IPU): its memory and its clock.
struct Engine::Unit {
  uint32_t replica = 0;  // local
  uint32_t ipu = 0;
  shm::Segment arena;
  // Written by the unit's coroutine, and by a meeting while the unit is suspended in it.
  std::atomic<uint64_t> cycles = 0;
};

// A prepared instruction.
struct Engine::Step {
  const Instruction* source = nullptr;
  Kernel kernel;  // empty for communication and repeats
  model::Cost cost;
  std::vector<Step> body;
};

// One run of a program on all local units.
struct Engine::Run_ {
  uint32_t program = 0;
  uint64_t number = 0;  // among the runs with collectives
  std::byte* slot = nullptr;
  Done done;
  std::vector<uint64_t> start_cycles;
  std::atomic<size_t> remaining = 0;
  base::Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

// Executes the steps of one unit in one run.
struct Engine::Interpreter {
  Engine& engine;
  Run_& run;
  Unit& unit;
  std::vector<uint32_t> transfers;  // made on each stream
  uint64_t collectives = 0;         // met so far
  std::vector<uint64_t> copies;     // made with each other IPU of the replica, by pair
  std::chrono::steady_clock::time_point slice_start = std::chrono::steady_clock::now();

  Interpreter(Engine& engine, Run_& run, Unit& unit)
      : engine(engine),
        run(run),
        unit(unit),
        transfers(engine.executable_->proto().streams_size()),
        copies(engine.executable_->ipus_per_replica() * engine.executable_->ipus_per_replica()) {}

  asio::io_context& context() { return engine.options_.executors->impl().compute; }

  void Advance(const model::Cost& cost) {
    unit.cycles.store(unit.cycles.load(std::memory_order_relaxed) + cost.total().value(),
                      std::memory_order_relaxed);
  }

  asio::awaitable<absl::Status> RunAll(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (engine.cancelled_.load(std::memory_order_relaxed)) {
        base::MutexLock lock(engine.mutex_);
        co_return engine.cancel_cause_;
      }
      if (std::chrono::steady_clock::now() - slice_start > kSlice) {
        co_await asio::post(context(), asio::use_awaitable);
        slice_start = std::chrono::steady_clock::now();
      }
      if (step.kernel) {
        const absl::Status status = RunKernel(step.kernel, unit.arena.data());
        if (!status.ok()) co_return status;
      } else {
        const absl::Status status = co_await Communicate(step);
        if (!status.ok()) co_return status;
      }
      Advance(step.cost);
    }
    co_return absl::OkStatus();
  }

  asio::awaitable<absl::Status> Communicate(const Step& step) {
    switch (step.source->step_case()) {
      case Instruction::kRepeat:
        for (uint32_t i = 0; i < step.source->repeat().count(); ++i) {
          const absl::Status status = co_await RunAll(step.body);
          if (!status.ok()) co_return status;
        }
        co_return absl::OkStatus();
      case Instruction::kStreamIn:
        co_return Transfer(step.source->stream_in().stream(), step.source->stream_in().tensor(),
                           true);
      case Instruction::kStreamOut:
        co_return Transfer(step.source->stream_out().stream(), step.source->stream_out().tensor(),
                           false);
      case Instruction::kAllReduce:
      case Instruction::kReduceScatter:
      case Instruction::kAllGather:
      case Instruction::kAllToAll:
      case Instruction::kBroadcast:
        co_return co_await MeetReplicas(*program::CollectiveOf(*step.source));
      case Instruction::kSend:
        co_return co_await CopyBetween(step.source->send().tensor(), unit.ipu,
                                       step.source->send().to_ipu());
      case Instruction::kReceive:
        co_return co_await CopyBetween(step.source->receive().tensor(),
                                       step.source->receive().from_ipu(), unit.ipu);
      default:
        co_return absl::InternalError("not a communication step");
    }
  }

  const program::v1::Tensor& TensorAt(uint32_t index) const {
    return engine.executable_->proto().ipus(unit.ipu).tensors(index);
  }
  std::byte* DataAt(uint32_t index) const { return unit.arena.data() + TensorAt(index).offset(); }

  absl::Status Transfer(uint32_t stream, uint32_t tensor, bool to_device) {
    std::byte* buffer = run.slot + engine.layout_.Offset(stream, unit.replica, transfers[stream]++);
    const uint64_t bytes = engine.layout_.TransferBytes(stream);
    if (to_device) {
      std::memcpy(DataAt(tensor), buffer, bytes);
    } else {
      std::memcpy(buffer, DataAt(tensor), bytes);
    }
    return absl::OkStatus();
  }

  // The units of this IPU in the replica's group meet, those here first, then with those on other
  // processes.
  asio::awaitable<absl::Status> MeetReplicas(program::Collective op) {
    fabric::Job& job = *engine.options_.job;
    const uint32_t position = engine.options_.replica_offset + unit.replica;
    const program::GroupMembers group =
        program::MembersOf(*op.group, job.shape().total_replicas, position);
    const fabric::MeetingKey key{
        run.number, unit.ipu, collectives++, {group.first, group.stride, group.size}};
    Participant me{this, &op};
    const uint32_t instance = engine.options_.instance;
    co_return co_await Suspend(context(),
                               [&me, &job, &key, position, instance](fabric::Job::Resume resume) {
                                 job.Meet(key, job.shape().total_replicas, job.LocalMembers(key),
                                          position, instance, &me, std::move(resume),
                                          [key](const std::vector<void*>& participants,
                                                std::function<void(absl::Status)> finish) {
                                            RunCollective(key, participants, std::move(finish));
                                          });
                               });
  }
  struct Participant {
    Interpreter* unit;
    const program::Collective* op;
  };

  // Runs while all participants are suspended; their memory belongs to the collective until
  // `finish`.
  static void RunCollective(const fabric::MeetingKey& key, const std::vector<void*>& participants,
                            std::function<void(absl::Status)> finish) {
    const auto& first = *static_cast<Participant*>(participants[0]);
    Engine& engine = first.unit->engine;
    fabric::Collective collective =
        Describe(*first.op, engine.executable_->proto().ipus(first.unit->unit.ipu), key.group.size);
    collective.what = absl::StrCat(collective.what, ", number ", key.sequence, " of program ",
                                   first.unit->run.program);
    std::vector<Unit*> units;
    auto engines = std::make_shared<std::vector<std::shared_ptr<Engine>>>();
    for (void* participant : participants) {
      Interpreter& each = *static_cast<Participant*>(participant)->unit;
      units.push_back(&each.unit);
      engines->push_back(each.engine.shared_from_this());
      collective.replicas.push_back(each.engine.options_.replica_offset + each.unit.replica);
      collective.arenas.push_back(each.unit.arena.data());
      collective.clock = std::max(collective.clock, each.unit.cycles.load());
    }
    collective.keep_alive = engines;
    const fabric::Completed done = [units, engines,
                                    finish = std::move(finish)](absl::StatusOr<uint64_t> clock) {
      if (clock.ok()) {
        for (Unit* unit : units) unit->cycles.store(*clock);
      }
      finish(clock.status());
    };
    Executors* executors = engine.options_.executors;
    const auto collectives = engine.options_.job->collectives();
    if (collectives != nullptr) return collectives->Run(key, std::move(collective), done);
    fabric::RunHere(
        std::move(collective),
        [executors](std::function<void()> task) { executors->PostCompute(std::move(task)); }, done);
  }

  asio::awaitable<absl::Status> CopyBetween(uint32_t tensor, uint32_t from, uint32_t to) {
    const uint32_t ipus = engine.executable_->ipus_per_replica();
    const uint32_t pair = from * ipus + to;
    // Channels above those of the collectives: one for each replica and ordered pair.
    const uint32_t replica = engine.options_.replica_offset + unit.replica;
    const fabric::MeetingKey key{run.number, ipus + replica * ipus * ipus + pair, copies[pair]++};
    const bool sends = from == unit.ipu;
    if (engine.Hosts(unit.replica, sends ? to : from))
      co_return co_await CopyHere(key, tensor, sends);
    fabric::CrossCopy copy;
    copy.from_unit = replica * ipus + from;
    copy.to_unit = replica * ipus + to;
    copy.data = DataAt(tensor);
    copy.arena_offset = TensorAt(tensor).offset();
    copy.bytes = program::TypeOf(TensorAt(tensor)).bytes();
    copy.clock = unit.cycles.load();
    copy.keep_alive = engine.shared_from_this();
    const auto collectives = engine.options_.job->collectives();
    Unit* self = &unit;
    // By reference: g++ 12 destroys captures of a lambda inside co_await twice. The frame outlives
    // the call.
    co_return co_await Suspend(
        context(), [&collectives, &key, &copy, self](fabric::Job::Resume resume) {
          collectives->Copy(key, copy,
                            [self, resume = std::move(resume)](absl::StatusOr<uint64_t> clock) {
                              if (clock.ok()) self->cycles.store(*clock);
                              resume(clock.status());
                            });
        });
  }

  // The two IPUs of a copy meet; the second one there copies.
  asio::awaitable<absl::Status> CopyHere(const fabric::MeetingKey& key, uint32_t tensor,
                                         bool sends) {
    Engine* self = &engine;
    struct End {
      Unit* unit;
      std::byte* data;
    };
    End me{&unit, DataAt(tensor)};
    const uint64_t bytes = program::TypeOf(TensorAt(tensor)).bytes();
    co_return co_await Suspend(context(), [=, &me](fabric::Job::Resume resume) {
      self->options_.job->Meet(
          key, 2, 2, sends ? 0 : 1, self->options_.instance, &me, std::move(resume),
          [bytes](const std::vector<void*>& both, std::function<void(absl::Status)> finish) {
            auto* source = static_cast<End*>(both[0]);
            auto* target = static_cast<End*>(both[1]);
            std::memcpy(target->data, source->data, bytes);
            const uint64_t clock =
                std::max(source->unit->cycles.load(), target->unit->cycles.load());
            source->unit->cycles.store(clock);
            target->unit->cycles.store(clock);
            finish(absl::OkStatus());
          });
    });
  }
};

Engine::Engine(std::shared_ptr<const program::Executable> executable, const EngineOptions& options)
    : executable_(std::move(executable)),
      options_(options),
      topology_{options.clock_hz, options.job->shape().total_replicas,
                executable_->ipus_per_replica()},
      layout_(executable_->proto(), options.local_replicas) {}

Engine::~Engine() { options_.budget->Release(reserved_); }

absl::StatusOr<std::shared_ptr<Engine>> Engine::Create(
    std::shared_ptr<const program::Executable> executable, const EngineOptions& options) {
  const fabric::JobShape& shape = options.job->shape();
  if (executable->ipus_per_replica() != shape.ipus_per_replica) {
    return absl::FailedPreconditionError(
        absl::StrCat("the executable is for ", executable->ipus_per_replica(),
                     " IPUs per replica, the job has ", shape.ipus_per_replica));
  }
  VPOD_RETURN_IF_ERROR(program::CheckReplicas(executable->proto(), shape.total_replicas));
  std::shared_ptr<Engine> engine(new Engine(std::move(executable), options));
  VPOD_RETURN_IF_ERROR(engine->Prepare());
  return engine;
}

absl::Status Engine::CreateUnits() {
  const program::v1::Executable& text = executable_->proto();
  const uint32_t ipus = text.ipus_per_replica();
  std::vector<uint32_t> here = options_.units;
  if (here.empty()) {
    here.resize(size_t{options_.local_replicas} * ipus);
    std::iota(here.begin(), here.end(), 0);
  }
  uint64_t bytes = layout_.TotalBytes();
  for (uint32_t unit : here) bytes += text.ipus(static_cast<int>(unit % ipus)).arena_bytes();
  VPOD_RETURN_IF_ERROR(options_.budget->Reserve(bytes));
  reserved_ = bytes;
  for (uint32_t number : here) {
    auto unit = std::make_unique<Unit>();
    unit->replica = number / ipus;
    unit->ipu = number % ipus;
    VPOD_ASSIGN_OR_RETURN(
        unit->arena, shm::Segment::Create(text.ipus(static_cast<int>(unit->ipu)).arena_bytes()));
    units_.push_back(std::move(unit));
  }
  for (const auto& unit : units_) {
    for (uint32_t ipu = 0; ipu < ipus; ++ipu)
      spans_processes_ = spans_processes_ || !Hosts(unit->replica, ipu);
  }
  return absl::OkStatus();
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

absl::Status Engine::Prepare() {
  const program::v1::Executable& text = executable_->proto();
  VPOD_ASSIGN_OR_RETURN(memory_use_, model::CheckMemory(text));
  VPOD_RETURN_IF_ERROR(CreateUnits());
  const std::function<absl::Status(uint32_t, const google::protobuf::RepeatedPtrField<Instruction>&,
                                   std::vector<Step>&)>
      prepare =
          [&](uint32_t ipu, const auto& instructions, std::vector<Step>& steps) -> absl::Status {
    for (const Instruction& instruction : instructions) {
      Step step;
      step.source = &instruction;
      step.cost = model::Price(text, ipu, instruction, topology_);
      switch (instruction.step_case()) {
        case Instruction::kRepeat:
          VPOD_RETURN_IF_ERROR(prepare(ipu, instruction.repeat().body(), step.body));
          break;
        case Instruction::kAllReduce:
        case Instruction::kReduceScatter:
        case Instruction::kAllGather:
        case Instruction::kAllToAll:
        case Instruction::kBroadcast:
        case Instruction::kStreamIn:
        case Instruction::kStreamOut:
        case Instruction::kSend:
        case Instruction::kReceive:
          break;
        default: {
          VPOD_ASSIGN_OR_RETURN(step.kernel, PrepareKernel(text.ipus(ipu), instruction));
        }
      }
      steps.push_back(std::move(step));
    }
    return absl::OkStatus();
  };
  for (int program = 0; program < text.programs_size(); ++program) {
    steps_.emplace_back(text.ipus_per_replica());
    costs_.emplace_back();
    for (uint32_t ipu = 0; ipu < text.ipus_per_replica(); ++ipu) {
      VPOD_RETURN_IF_ERROR(
          prepare(ipu, text.programs(program).blocks(ipu).instructions(), steps_[program][ipu]));
      costs_[program].push_back(model::PriceProgram(text, program, ipu, topology_));
    }
  }
  return absl::OkStatus();
}

void Engine::Run(uint32_t program, std::byte* slot, Done done) {
  auto run = std::make_shared<Run_>();
  run->program = program;
  run->slot = slot;
  const auto refuse = [&](absl::Status status) {
    options_.executors->PostControl([done, status] { done(status); });
  };
  if (program >= steps_.size()) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("program ", program, " does not exist; there are ", steps_.size())));
  }
  bool needs_job = false;
  {
    base::MutexLock lock(mutex_);
    if (running_)
      return refuse(absl::FailedPreconditionError("a run is already active on this lease"));
    if (!cancel_cause_.ok()) return refuse(cancel_cause_);
    running_ = true;
    run->number = NumberRun(program, &needs_job);
  }
  run->done = std::move(done);
  for (const auto& unit : units_) run->start_cycles.push_back(unit->cycles.load());
  if (!needs_job) return StartUnits(std::move(run));
  options_.job->StartRun(options_.instance, run->number, program,
                         [self = shared_from_this(), run](absl::Status status) {
                           if (status.ok()) return self->StartUnits(run);
                           {
                             base::MutexLock lock(run->mutex);
                             run->status = status;
                           }
                           self->FinishRun(run);
                         });
}

uint64_t Engine::NumberRun(uint32_t program, bool* needs_job) {
  if (executable_->has_collectives(program)) {
    *needs_job = true;
    return collective_runs_++;
  }
  // Other runs meet nobody outside the instance; the upper bits keep their meetings apart.
  const uint64_t instance = uint64_t{options_.instance} << 32;
  if (!spans_processes_) return (uint64_t{1} << 63) + instance;
  *needs_job = true;
  return (uint64_t{1} << 62) + instance + copying_runs_++;
}

void Engine::StartUnits(std::shared_ptr<Run_> run) {
  run->remaining = units_.size();
  for (const auto& unit : units_) {
    asio::co_spawn(
        options_.executors->impl().compute,
        [self = shared_from_this(), run, unit = unit.get()]() -> asio::awaitable<void> {
          Interpreter interpreter(*self, *run, *unit);
          const absl::Status status =
              co_await interpreter.RunAll(self->steps_[run->program][unit->ipu]);
          if (!status.ok()) {
            {
              base::MutexLock lock(run->mutex);
              if (run->status.ok()) run->status = status;
            }
            // Units of this lease that wait for the failed one must not wait for ever.
            self->Cancel(status);
            self->options_.job->Fail(status, false, self->options_.instance);
          }
          if (run->remaining.fetch_sub(1) == 1) self->FinishRun(run);
        },
        [](std::exception_ptr error) {
          if (error) std::rethrow_exception(error);  // nothing here throws; never swallow a bug
        });
  }
}

void Engine::FinishRun(const std::shared_ptr<Run_>& run) {
  absl::StatusOr<RunResult> result = RunResult{};
  {
    base::MutexLock lock(run->mutex);
    if (!run->status.ok()) result = run->status;
  }
  if (result.ok()) {
    for (size_t i = 0; i < units_.size(); ++i) {
      result->cycles =
          std::max(result->cycles, base::Cycles(units_[i]->cycles.load() - run->start_cycles[i]));
    }
  }
  {
    base::MutexLock lock(mutex_);
    running_ = false;
  }
  // On the thread of the last unit: another hop would cost an empty run a third of its time.
  run->done(result);
}

void Engine::Cancel(const absl::Status& cause) {
  base::MutexLock lock(mutex_);
  if (!cancel_cause_.ok()) return;
  cancel_cause_ = cause;
  cancelled_.store(true);
}

absl::Status Engine::WriteVariable(const program::v1::Variable& variable, uint32_t replica,
                                   uint64_t offset, absl::string_view data) {
  const program::v1::Tensor& tensor = executable_->TensorOf(variable);
  const uint64_t bytes = program::TypeOf(tensor).bytes();
  if (replica >= options_.local_replicas || offset > bytes || data.size() > bytes - offset) {
    return absl::OutOfRangeError(
        absl::StrCat("variable '", variable.name(), "' has ", bytes, " bytes on ",
                     options_.local_replicas, " replicas; bytes ", offset, " to ",
                     offset + data.size(), " of replica ", replica, " were written"));
  }
  base::MutexLock lock(mutex_);
  if (running_) return absl::FailedPreconditionError("a run is active on this lease");
  const Unit* unit = FindUnit(replica, variable.ipu());
  if (unit == nullptr) return absl::NotFoundError("the replica is on another process");
  std::memcpy(unit->arena.data() + tensor.offset() + offset, data.data(), data.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> Engine::ReadVariable(const program::v1::Variable& variable,
                                                 uint32_t replica) const {
  if (replica >= options_.local_replicas) {
    return absl::OutOfRangeError(absl::StrCat(
        "replica ", replica, " does not exist; the lease has ", options_.local_replicas));
  }
  base::MutexLock lock(mutex_);
  if (running_) return absl::FailedPreconditionError("a run is active on this lease");
  const program::v1::Tensor& tensor = executable_->TensorOf(variable);
  const Unit* unit = FindUnit(replica, variable.ipu());
  if (unit == nullptr) return absl::NotFoundError("the replica is on another process");
  return std::string(reinterpret_cast<const char*>(unit->arena.data()) + tensor.offset(),
                     program::TypeOf(tensor).bytes());
}

std::vector<base::Cycles> Engine::Counters() const {
  std::vector<base::Cycles> counters;
  for (const auto& unit : units_) counters.emplace_back(unit->cycles.load());
  return counters;
}

}  // namespace vpod::engine
