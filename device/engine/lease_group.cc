#include "device/engine/lease_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/engine_impl.h"

namespace vpod::engine {

using program::ByteSet;

absl::StatusOr<std::shared_ptr<LeaseRun>> LeaseGroup::Agree(std::vector<Engine*> engines) {
  std::sort(engines.begin(), engines.end(), [](const Engine* a, const Engine* b) {
    return a->options_.replica_offset < b->options_.replica_offset;
  });
  base::MutexLock lock(mutex_);
  UseExecutable(*engines.front()->executable_);
  const auto is_settled = [&](const Engine* engine) {
    return plan_ != nullptr && engine->agreed_ == plan_ && !engine->offers_changed_;
  };
  if (!std::all_of(engines.begin(), engines.end(), is_settled)) {
    VPOD_ASSIGN_OR_RETURN(std::vector<bool> candidates, Candidates(engines));
    if (plan_ == nullptr || candidates != candidates_) {
      candidates_ = candidates;
      plan_ = std::make_shared<const SharingPlan>(PlanFor(engines, std::move(candidates)));
    }
    VPOD_RETURN_IF_ERROR(Apply(engines));
  }
  const std::vector<bool>& shared = plan_->uniform.variables;
  if (std::find(shared.begin(), shared.end(), true) == shared.end()) return nullptr;
  std::vector<size_t> units(segments_.size());
  for (const Engine* engine : engines) {
    for (size_t ipu = 0; ipu < units.size(); ++ipu) units[ipu] += engine->units_of_ipu_[ipu];
  }
  return std::make_shared<LeaseRun>(engines.front(), units);
}

void LeaseGroup::UseExecutable(const program::Executable& executable) {
  if (hash_ == executable.hash()) return;
  hash_ = executable.hash();
  plan_ = nullptr;
  members_.clear();
  reserved_ = {};
  segments_.clear();
  segments_.resize(executable.ipus_per_replica());
}

absl::Status LeaseGroup::CheckCancelled(const std::vector<Engine*>& engines) {
  for (const Engine* engine : engines) {
    if (!engine->cancelled_.load()) continue;
    return absl::CancelledError(absl::StrCat("instance ", engine->options_.instance,
                                             " has ended: ", engine->CancelCause().message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<bool>> LeaseGroup::Candidates(const std::vector<Engine*>& engines) {
  const Engine& first = *engines.front();
  const std::vector<program::HostTensor>& variables = first.executable_->host_tensors();
  std::vector<bool> candidates(variables.size());
  if (engines.size() == 1) return candidates;
  uint32_t next = first.options_.replica_offset;
  for (const Engine* engine : engines) {
    // Replicas in a range, all of their IPUs here, and the same steps: checks are steps.
    if (engine->options_.replica_offset != next || engine->spans_processes_ ||
        engine->options_.check_finite != first.options_.check_finite ||
        engine->executable_->hash() != first.executable_->hash())
      return candidates;
    next += engine->options_.local_replicas;
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    VPOD_RETURN_IF_ERROR(CheckCancelled(engines));
    candidates[i] = std::all_of(engines.begin(), engines.end(), [&](const Engine* engine) {
      return engine->sharing_.uniform.variables[i] && engine->HoldsTheSame(first, variables[i]);
    });
  }
  return candidates;
}

SharingPlan LeaseGroup::PlanFor(const std::vector<Engine*>& engines, std::vector<bool> candidates) {
  const Engine& first = *engines.front();
  program::ReplicaRange replicas = first.Replicas();
  replicas.count = 0;
  for (const Engine* engine : engines) replicas.count += engine->options_.local_replicas;
  return PlanSharing(*first.executable_, replicas, std::move(candidates));
}

absl::Status LeaseGroup::Apply(const std::vector<Engine*>& engines) {
  members_.insert(engines.begin(), engines.end());
  const std::vector<ByteSet>& planned = plan_->pages;
  const auto ipus = static_cast<uint32_t>(segments_.size());
  for (Engine* engine : engines) {
    for (uint32_t ipu = 0; ipu < ipus; ++ipu)
      VPOD_RETURN_IF_ERROR(UnshareLocked(*engine, ipu, engine->joined_[ipu].Without(planned[ipu])));
  }
  // Before pages are mapped: a run of one lease, after an error, finds out by the scopes of its
  // steps what it must not write.
  for (Engine* engine : engines) {
    engine->agreed_ = plan_;
    engine->SetScopes();
  }
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) VPOD_RETURN_IF_ERROR(Join(engines, ipu, planned[ipu]));
  for (Engine* engine : engines) engine->offers_changed_ = false;
  return absl::OkStatus();
}

absl::Status LeaseGroup::Join(const std::vector<Engine*>& engines, uint32_t ipu,
                              const ByteSet& pages) {
  if (pages.ranges().empty()) return absl::OkStatus();
  shm::Segment& segment = segments_[ipu];
  if (segment.size() == 0) {
    const uint64_t end = engines.front()->common_[ipu].size();
    VPOD_ASSIGN_OR_RETURN(segment, shm::Segment::Create(end));
  }
  // Pages that no member has are copied from the first engine, which hands over the memory that it
  // was charged for them. An engine that was replaced and is about to end may still be charged for
  // older contents.
  const ByteSet added = NotHeld(ipu, pages, nullptr);
  ByteSet copied = pages;
  for (const Engine* engine : engines) copied = copied.Without(engine->joined_[ipu]);
  for (const auto& [begin, end] : copied.ranges()) {
    const std::byte* from = engines.front()->FirstUnit(ipu)->arena.data() + begin;
    std::memcpy(segment.data() + begin, from, end - begin);
  }
  VPOD_RETURN_IF_ERROR(CheckCancelled(engines));
  for (Engine* engine : engines) {
    const ByteSet joining = pages.Without(engine->joined_[ipu]);
    VPOD_RETURN_IF_ERROR(engine->SharePages(ipu, joining, segment));
    if (engine == engines.front()) {
      engine->reserved_.MoveTo(reserved_, added.size());
      engine->reserved_.Shrink(joining.size() - added.size());
    } else {
      engine->reserved_.Shrink(joining.size());
    }
  }
  return absl::OkStatus();
}

absl::Status LeaseGroup::Unshare(Engine& engine, uint32_t ipu, const ByteSet& pages) {
  base::MutexLock lock(mutex_);
  return UnshareLocked(engine, ipu, pages);
}

absl::Status LeaseGroup::UnshareLocked(Engine& engine, uint32_t ipu, const ByteSet& pages) {
  if (pages.ranges().empty()) return absl::OkStatus();
  // The last member takes the memory along.
  const ByteSet free = members_.contains(&engine) ? NotHeld(ipu, pages, &engine) : ByteSet();
  VPOD_RETURN_IF_ERROR(engine.reserved_.Grow(pages.size() - free.size()));
  reserved_.MoveTo(engine.reserved_, free.size());
  VPOD_RETURN_IF_ERROR(engine.UnsharePages(ipu, pages));
  for (const auto& [begin, end] : free.ranges()) segments_[ipu].Discard(begin, end - begin);
  return absl::OkStatus();
}

void LeaseGroup::Forget(Engine& engine) {
  base::MutexLock lock(mutex_);
  if (members_.erase(&engine) == 0) return;
  for (uint32_t ipu = 0; ipu < segments_.size() && ipu < engine.joined_.size(); ++ipu) {
    const ByteSet free = NotHeld(ipu, engine.joined_[ipu], nullptr);
    for (const auto& [begin, end] : free.ranges()) segments_[ipu].Discard(begin, end - begin);
    reserved_.Shrink(free.size());
  }
}

ByteSet LeaseGroup::NotHeld(uint32_t ipu, ByteSet pages, const Engine* except) const {
  for (const Engine* member : members_) {
    if (member != except && ipu < member->joined_.size())
      pages = pages.Without(member->joined_[ipu]);
  }
  return pages;
}

}  // namespace vpod::engine
