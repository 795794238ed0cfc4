// Where units meet: collectives between replicas, and exchanges between the IPUs of one.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/engine/collective.h"
#include "device/engine/engine_impl.h"
#include "device/engine/ipu_names.h"
#include "device/fabric/collectives.h"

namespace vpod::engine {

Task Engine::Interpreter::MeetReplicas(program::Collective op, bool needs_results) {
  fabric::Job& job = *engine_.options_.job;
  const uint32_t replica = engine_.options_.replica_offset + unit_.replica;
  const program::GroupMembers group =
      program::MembersOf(*op.group, job.shape().total_replicas, replica);
  const fabric::RendezvousKey key{
      run_.number, unit_.ipu, collectives_++, {group.first, group.stride, group.size}};
  Participant me{this, &op, needs_results};
  const uint32_t instance = engine_.options_.instance;
  co_return co_await Suspend([&me, &job, &key, replica, instance](fabric::Job::Resume resume) {
    job.Meet(
        key, key.group.Position(replica), instance, &me, std::move(resume),
        [key](const std::vector<void*>& participants, std::function<void(absl::Status)> finish) {
          RunCollective(key, participants, std::move(finish));
        });
  });
}

Task Engine::Interpreter::MeetUnits(Scope scope) {
  if (scope == Scope::kJob) co_return co_await MeetLeases();
  UnitBarrier& barrier = run_.barriers[unit_.ipu];
  // By reference: see ExchangeHere.
  co_return co_await Suspend([&barrier](fabric::Job::Resume resume) {
    barrier.Arrive([resume = std::move(resume)] { resume(absl::OkStatus()); });
  });
}

Task Engine::Interpreter::MeetAtEnd() {
  static const program::v1::Instruction* const kGatherNothing = [] {
    auto* instruction = new program::v1::Instruction;
    instruction->mutable_all_gather();
    return instruction;
  }();
  // Each unit keeps the time at which it has ended.
  const uint64_t end = unit_.clock.load();
  const absl::Status status = co_await MeetReplicas(*program::CollectiveOf(*kGatherNothing), true);
  if (status.ok()) unit_.clock.store(end);
  co_return status;
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
  std::vector<Interpreter*> units;
  auto engines = std::make_shared<std::vector<std::shared_ptr<Engine>>>();
  for (void* participant : participants) {
    Interpreter& each = *static_cast<Participant*>(participant)->unit;
    units.push_back(&each);
    collective.failure.Update(each.Failure());
    engines->push_back(each.engine_.shared_from_this());
    collective.replicas.push_back(each.engine_.options_.replica_offset + each.unit_.replica);
    collective.arenas.push_back(each.unit_.arena.data());
    collective.needs_results.push_back(static_cast<Participant*>(participant)->needs_results);
    collective.clock = std::max(collective.clock, each.unit_.clock.load());
  }
  collective.keep_alive = engines;
  const fabric::Completed done =
      [units, engines, finish = std::move(finish)](absl::StatusOr<fabric::Outcome> outcome) {
        for (Interpreter* unit : units) unit->Met(outcome);
        finish(outcome.status());
      };
  const auto collectives = engine.options_.job->collectives();
  if (collectives != nullptr) collective.needs_results.clear();  // others write into these arenas
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
      clock = std::max(clock, unit->clock.load());
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
    for (const auto& [ipu, unit] : units) unit->clock.store(clock);
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
  cross.clock = unit_.clock.load();
  cross.failure = Failure();
  // Without a copy of the engine, which outlives the wait: so small that it takes no memory.
  cross.name_other = [engine = &engine_, program = run_.program,
                      ipu = copy.from == unit_.ipu ? copy.to : copy.from] {
    return NameOfIpu(*engine->executable_, program, ipu);
  };
  cross.keep_alive = engine_.shared_from_this();
  const auto collectives = engine_.options_.job->collectives();
  // By reference: see ExchangeHere.
  co_return co_await Suspend([&collectives, &key, &cross, this](fabric::Job::Resume resume) {
    collectives->Copy(key, cross,
                      [this, resume = std::move(resume)](absl::StatusOr<fabric::Outcome> outcome) {
                        Met(outcome);
                        resume(outcome.status());
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
          const uint64_t clock = std::max(source->unit->clock.load(), target->unit->clock.load());
          source->unit->clock.store(clock);
          target->unit->clock.store(clock);
          finish(absl::OkStatus());
        });
  });
}

}  // namespace vpod::engine
