// How the engines of a job in one process agree on the variables that they share in a run.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/engine.h"
#include "device/engine/engine_impl.h"
#include "device/engine/lease_group.h"
#include "device/program/op.h"
#include "device/program/ops/collective.h"

namespace vpod::engine {
namespace {

using program::ByteSet;

// The rendezvous of all replicas before the first collective of a run.
fabric::RendezvousKey BeforeRun(uint64_t run, uint32_t replicas) {
  return {run, /*channel=*/0, /*sequence=*/UINT64_MAX, {0, 1, replicas}};
}

}  // namespace

bool Engine::HoldsTheSame(const Engine& other, const program::HostTensor& variable) const {
  const auto has_joined = [&](const Engine& engine) {
    return engine.joined_[variable.ipu].Contains(variable.offset, variable.end());
  };
  if (this == &other || (has_joined(*this) && has_joined(other))) return true;
  return std::memcmp(FirstUnit(variable.ipu)->At(variable),
                     other.FirstUnit(variable.ipu)->At(variable), variable.type.bytes()) == 0;
}

absl::Status Engine::UnsharePages(uint32_t ipu, const ByteSet& pages) {
  shm::Segment& common = common_[ipu];
  for (const auto& [begin, end] : pages.ranges()) {
    const uint64_t bytes = end - begin;
    std::memcpy(common.data() + begin, FirstUnit(ipu)->arena.data() + begin, bytes);
    VPOD_RETURN_IF_ERROR(MapForAll(ipu, common, begin, bytes));
    joined_[ipu].Remove(begin, end);
  }
  offers_changed_ = true;
  return absl::OkStatus();
}

absl::Status Engine::SharePages(uint32_t ipu, const ByteSet& pages, const shm::Segment& segment) {
  for (const auto& [begin, end] : pages.ranges()) {
    VPOD_RETURN_IF_ERROR(MapForAll(ipu, segment, begin, end - begin));
    common_[ipu].Discard(begin, end - begin);
    joined_[ipu].Add(begin, end);
  }
  return absl::OkStatus();
}

absl::Status Engine::MapForAll(uint32_t ipu, const shm::Segment& segment, uint64_t begin,
                               uint64_t bytes) {
  for (const auto& unit : units_) {
    if (unit->ipu != ipu) continue;
    const absl::Status mapped = unit->arena.MapFrom(segment, begin, bytes);
    if (mapped.ok()) continue;
    unusable_ = mapped;  // some units may have other pages than the rest
    return mapped;
  }
  return absl::OkStatus();
}

absl::Status Engine::Unshare(uint32_t ipu, const ByteSet& pages) {
  return options_.group == nullptr ? absl::OkStatus() : options_.group->Unshare(*this, ipu, pages);
}

template <class Visit>
void Engine::ForEachStep(uint32_t program, const Visit& visit) const {
  for (uint32_t ipu = 0; ipu < steps_.size(); ++ipu) {
    const std::vector<uint64_t> executions = program::Executions(
        executable_->proto().ipus(static_cast<int>(ipu)), executable_->EntryOf(program, ipu));
    for (size_t f = 0; f < executions.size(); ++f) {
      if (executions[f] == 0) continue;
      for (const Step& step : steps_[ipu][f]) visit(ipu, step);
    }
  }
}

absl::Status Engine::UnshareBeforeWriting(uint32_t program) {
  offers_changed_ = true;
  const auto is_empty = [](const ByteSet& pages) { return pages.ranges().empty(); };
  if (!std::all_of(joined_.begin(), joined_.end(), is_empty)) {
    std::vector<ByteSet> written(joined_.size());
    ForEachStep(program, [&](uint32_t ipu, const Step& step) {
      if (std::max(step.scope, step.results) == Scope::kUnit) return;
      for (uint32_t output : step.source->outputs()) {
        const auto& tensors = executable_->proto().ipus(static_cast<int>(ipu)).tensors();
        const auto range = program::RangeOf(tensors[static_cast<int>(output)], false);
        AddPages(range.begin, range.end, written[ipu]);
      }
    });
    for (uint32_t ipu = 0; ipu < joined_.size(); ++ipu) {
      written[ipu].IntersectWith(joined_[ipu]);
      VPOD_RETURN_IF_ERROR(Unshare(ipu, written[ipu]));
    }
  }
  if (agreed_ == nullptr) return absl::OkStatus();
  // No step is for other leases in this run, also where pages were left before.
  agreed_ = nullptr;
  SetScopes();
  return absl::OkStatus();
}

void Engine::SetScopes() {
  for (size_t ipu = 0; ipu < steps_.size(); ++ipu) {
    for (size_t f = 0; f < steps_[ipu].size(); ++f) {
      for (Step& step : steps_[ipu][f]) {
        const auto scope = [&, ipu, f](auto field) {
          const auto holds = [&](const program::Uniformity& uniform) {
            return (uniform.*field)[ipu][f][step.number];
          };
          if (agreed_ != nullptr && holds(agreed_->uniform)) return Scope::kJob;
          return holds(sharing_.uniform) ? Scope::kLease : Scope::kUnit;
        };
        step.results = scope(&program::Uniformity::results_for_one);
        step.scope = scope(&program::Uniformity::once);
        // A check of results is where they are.
        if (!step.kernel.phases.empty()) step.scope = std::max(step.scope, step.results);
      }
    }
  }
}

bool Engine::MeetsOtherLeases(uint32_t program) const {
  const fabric::JobShape& shape = options_.job->shape();
  if (options_.group == nullptr || shape.num_instances == 1) return false;
  // Leases wait for each other only in a collective of all replicas, for which all must come:
  // smaller groups may run without the rest, and give results that are not equal on all.
  bool meets = false;
  ForEachStep(program, [&](uint32_t, const Step& step) {
    const auto collective = program::CollectiveOf(*step.source);
    meets = meets ||
            (collective && program::MembersOf(*collective->group, shape.total_replicas, 0).size ==
                               shape.total_replicas);
  });
  return meets;
}

void Engine::AgreeAndStart(const std::shared_ptr<Run_>& run) {
  size_t arriving = 0;
  for (const auto& unit : units_) arriving += unit->ipu == 0 ? 1 : 0;
  if (!run->meets_leases || arriving == 0) return StartUnits(run);
  run->remaining = arriving;
  const fabric::RendezvousKey key = BeforeRun(run->number, options_.job->shape().total_replicas);
  const auto resume = [self = shared_from_this(), run](const absl::Status& status) {
    bool all_agree;
    {
      base::MutexLock lock(run->mutex);
      run->status.Update(status);
      all_agree = run->status.ok();
    }
    if (run->remaining.fetch_sub(1) > 1) return;
    if (all_agree) return self->StartUnits(run);
    // Leases on other processes have begun, and wait for this one.
    if (run->spans_processes) self->options_.job->Fail(status, false, self->options_.instance);
    self->FinishRun(*run);
  };
  for (const auto& unit : units_) {
    if (unit->ipu != 0) continue;
    options_.job->Meet(key, key.group.Position(options_.replica_offset + unit->replica),
                       options_.instance, run.get(), resume, AgreeOnLeases);
  }
}

void Engine::AgreeOnLeases(const std::vector<void*>& participants,
                           const std::function<void(absl::Status)>& finish) {
  std::vector<Run_*> runs;
  std::vector<Engine*> engines;
  for (void* participant : participants) {
    auto* run = static_cast<Run_*>(participant);
    if (std::find(runs.begin(), runs.end(), run) != runs.end()) continue;
    runs.push_back(run);
    engines.push_back(run->engine.get());
  }
  // Not on the thread of a client's call: there may be gigabytes to compare and to copy. `finish`
  // holds the runs.
  const std::shared_ptr<ComputeQueue> queue = engines.front()->queue_;
  queue->Post([runs = std::move(runs), engines = std::move(engines), finish] {
    auto agreed = engines.front()->options_.group->Agree(engines);
    if (agreed.ok()) {
      for (Run_* run : runs) run->leases = *agreed;
    }
    finish(agreed.status());
  });
}

Task Engine::Interpreter::MeetLeases() {
  LeaseRun& leases = *run_.leases;
  UnitBarrier& barrier = leases.barrier(unit_.ipu);
  const absl::Status met = co_await Suspend([&barrier](fabric::Job::Resume resume) {
    barrier.Arrive([resume = std::move(resume)] { resume(absl::OkStatus()); });
  });
  absl::Status failure;
  if (!leases.IsStopped(&failure)) co_return met;
  if (MustStop()) co_return WhyStop();
  if (run_.spans_processes && !failure.ok()) {
    run_.Fail(failure);
    co_return absl::OkStatus();  // it goes on to meet others
  }
  // Another lease has failed, or is about to end: the job knows why, and tells all who wait for it.
  fabric::Job& job = *engine_.options_.job;
  const uint32_t replica = engine_.options_.replica_offset + unit_.replica;
  const fabric::RendezvousKey key{
      run_.number, unit_.ipu, UINT64_MAX - 1, {0, 1, job.shape().total_replicas}};
  co_return co_await Suspend([this, &job, &key, replica](fabric::Job::Resume resume) {
    job.Meet(key, replica, engine_.options_.instance, this, std::move(resume),
             [](const std::vector<void*>&, const std::function<void(absl::Status)>& finish) {
               finish(absl::AbortedError("all leases have failed"));
             });
  });
}

}  // namespace vpod::engine
