#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/engine/collective.h"
#include "device/engine/engine_impl.h"
#include "device/fabric/collectives.h"
#include "device/program/op.h"

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
  const Executors::KernelScope scope;
  try {
    return kernel(arena);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the host has no memory left for temporary data");
  }
}

}  // namespace

Engine::Interpreter::Interpreter(Engine& engine, Run_& run, Unit& unit)
    : engine_(engine),
      run_(run),
      unit_(unit),
      transfers_(engine.executable_->proto().streams_size()),
      copies_(engine.executable_->ipus_per_replica() * engine.executable_->ipus_per_replica()) {}

asio::io_context& Engine::Interpreter::context() {
  return engine_.options_.executors->impl().compute;
}

void Engine::Interpreter::Advance(const model::Cost& cost) {
  unit_.cycles.store(unit_.cycles.load(std::memory_order_relaxed) + cost.total().value(),
                     std::memory_order_relaxed);
}

asio::awaitable<absl::Status> Engine::Interpreter::RunAll(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    if (engine_.cancelled_.load(std::memory_order_relaxed)) {
      base::MutexLock lock(engine_.mutex_);
      co_return engine_.cancel_cause_;
    }
    if (std::chrono::steady_clock::now() - slice_start_ > kSlice) {
      co_await asio::post(context(), asio::use_awaitable);
      slice_start_ = std::chrono::steady_clock::now();
    }
    if (step.kernel) {
      const absl::Status status = RunKernel(step.kernel, unit_.arena.data());
      if (!status.ok()) co_return status;
    } else {
      const absl::Status status = co_await Communicate(step);
      if (!status.ok()) co_return status;
    }
    Advance(step.cost);
  }
  co_return absl::OkStatus();
}

asio::awaitable<absl::Status> Engine::Interpreter::Communicate(const Step& step) {
  const Instruction& source = *step.source;
  switch (program::FindOp(source.step_case())->role) {
    case program::Role::kControl:
      for (uint32_t i = 0; i < source.repeat().count(); ++i) {
        const absl::Status status = co_await RunAll(step.body);
        if (!status.ok()) co_return status;
      }
      co_return absl::OkStatus();
    case program::Role::kStream:
      co_return source.has_stream_in()
          ? Transfer(source.stream_in().stream(), source.stream_in().tensor(), true)
          : Transfer(source.stream_out().stream(), source.stream_out().tensor(), false);
    case program::Role::kCollective:
      co_return co_await MeetReplicas(*program::CollectiveOf(source));
    case program::Role::kExchange:
      if (source.has_send())
        co_return co_await CopyBetween(source.send().tensor(), unit_.ipu, source.send().to_ipu());
      co_return co_await CopyBetween(source.receive().tensor(), source.receive().from_ipu(),
                                     unit_.ipu);
    case program::Role::kKernel:
      break;
  }
  co_return absl::InternalError("not a communication step");
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

asio::awaitable<absl::Status> Engine::Interpreter::MeetReplicas(program::Collective op) {
  fabric::Job& job = *engine_.options_.job;
  const uint32_t replica = engine_.options_.replica_offset + unit_.replica;
  const program::GroupMembers group =
      program::MembersOf(*op.group, job.shape().total_replicas, replica);
  const fabric::RendezvousKey key{
      run_.number, unit_.ipu, collectives_++, {group.first, group.stride, group.size}};
  Participant me{this, &op};
  const uint32_t instance = engine_.options_.instance;
  co_return co_await Suspend(
      context(), [&me, &job, &key, replica, instance](fabric::Job::Resume resume) {
        job.Meet(key, key.group.Position(replica), instance, &me, std::move(resume),
                 [key](const std::vector<void*>& participants,
                       std::function<void(absl::Status)> finish) {
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
  Executors* executors = engine.options_.executors;
  const auto collectives = engine.options_.job->collectives();
  if (collectives != nullptr) return collectives->Run(key, std::move(collective), done);
  fabric::RunHere(
      std::move(collective),
      [executors](std::function<void()> task) { executors->PostCompute(std::move(task)); }, done);
}

asio::awaitable<absl::Status> Engine::Interpreter::CopyBetween(uint32_t tensor, uint32_t from,
                                                               uint32_t to) {
  const uint32_t ipus = engine_.executable_->ipus_per_replica();
  const uint32_t pair = from * ipus + to;
  // Channels above those of the collectives: one for each replica and ordered pair.
  const uint32_t replica = engine_.options_.replica_offset + unit_.replica;
  const fabric::RendezvousKey key{run_.number, ipus + replica * ipus * ipus + pair,
                                  copies_[pair]++};
  const bool sends = from == unit_.ipu;
  if (engine_.Hosts(unit_.replica, sends ? to : from))
    co_return co_await CopyHere(key, tensor, sends);
  fabric::CrossCopy copy;
  copy.from_unit = replica * ipus + from;
  copy.to_unit = replica * ipus + to;
  copy.data = DataAt(tensor);
  copy.arena_offset = TensorAt(tensor).offset();
  copy.bytes = program::TypeOf(TensorAt(tensor)).bytes();
  copy.clock = unit_.cycles.load();
  copy.keep_alive = engine_.shared_from_this();
  const auto collectives = engine_.options_.job->collectives();
  Unit* self = &unit_;
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

asio::awaitable<absl::Status> Engine::Interpreter::CopyHere(const fabric::RendezvousKey& key,
                                                            uint32_t tensor, bool sends) {
  Engine* self = &engine_;
  struct End {
    Unit* unit;
    std::byte* data;
  };
  End me{&unit_, DataAt(tensor)};
  const uint64_t bytes = program::TypeOf(TensorAt(tensor)).bytes();
  co_return co_await Suspend(context(), [=, &me](fabric::Job::Resume resume) {
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
