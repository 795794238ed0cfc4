// The variables of an engine: what the host reads and writes, and which of them replicas share.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/engine/engine.h"
#include "device/engine/engine_impl.h"
#include "device/engine/host_access.h"

namespace vpod::engine {

using program::HostTensor;

void Engine::PlanFirstSharing() {
  const bool alone = *std::max_element(units_of_ipu_.begin(), units_of_ipu_.end()) == 1 &&
                     (options_.group == nullptr || options_.job->shape().num_instances == 1);
  const bool any = options_.sharing && !alone;
  sharing_ = Plan(std::vector<bool>(executable_->host_tensors().size(), any));
  can_share_ = sharing_.uniform.variables;
}

program::ReplicaRange Engine::Replicas() const {
  return {options_.replica_offset, options_.local_replicas, topology_.num_replicas,
          options_.job->spans_processes()};
}

SharingPlan Engine::Plan(std::vector<bool> candidates) const {
  return PlanSharing(*executable_, Replicas(), std::move(candidates));
}

uint64_t Engine::SavedBytes(const SharingPlan& plan) const {
  uint64_t bytes = 0;
  for (size_t ipu = 0; ipu < plan.pages.size(); ++ipu) {
    if (units_of_ipu_[ipu] > 1) bytes += (units_of_ipu_[ipu] - 1) * plan.pages[ipu].size();
  }
  return bytes;
}

bool Engine::IsShared(const HostTensor& variable) const {
  return !variable.remote && sharing_.pages[variable.ipu].Touches(variable.offset, variable.end());
}

absl::Status Engine::ShareFirst() {
  const uint32_t ipus = executable_->ipus_per_replica();
  SharingPlan plan = std::exchange(sharing_, {});
  sharing_.pages.resize(ipus);
  joined_.resize(ipus);
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    const auto& ranges = plan.pages[ipu].ranges();
    const uint64_t end = ranges.empty() ? 0 : ranges.rbegin()->second;
    VPOD_ASSIGN_OR_RETURN(common_.emplace_back(), shm::Segment::Create(end));
  }
  return Remap(std::move(plan));
}

absl::Status Engine::Split(const HostTensor& variable) {
  std::vector<bool> candidates = sharing_.uniform.variables;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const HostTensor& other = executable_->host_tensors()[i];
    const bool overlaps = other.offset < variable.end() && variable.offset < other.end();
    if (other.ipu == variable.ipu && overlaps) candidates[i] = false;
  }
  SharingPlan plan = Plan(std::move(candidates));
  const uint64_t bytes = SavedBytes(sharing_) - SavedBytes(plan);
  absl::Status split = split_.Grow(bytes);
  if (split.ok()) {
    split = Remap(std::move(plan));
    if (!split.ok()) split_.Shrink(bytes);
  }
  if (split.ok()) return split;
  return absl::Status(split.code(),
                      absl::StrCat("variable '", variable.name,
                                   "' needs a copy for each replica to differ: ", split.message()));
}

absl::Status Engine::ShareAgain() {
  VPOD_RETURN_IF_ERROR(unusable_);
  if (!std::exchange(may_share_again_, false)) return absl::OkStatus();
  std::vector<bool> candidates = sharing_.uniform.variables;
  for (size_t i = 0; i < candidates.size(); ++i)
    candidates[i] = candidates[i] || (can_share_[i] && IsEqual(executable_->host_tensors()[i]));
  if (candidates == sharing_.uniform.variables) return absl::OkStatus();
  SharingPlan plan = Plan(std::move(candidates));
  const uint64_t saved = SavedBytes(plan) - SavedBytes(sharing_);
  VPOD_RETURN_IF_ERROR(Remap(std::move(plan)));
  split_.Shrink(saved);
  return absl::OkStatus();
}

bool Engine::IsEqual(const HostTensor& variable) const {
  const Unit* first = nullptr;
  return std::all_of(units_.begin(), units_.end(), [&](const auto& unit) {
    if (unit->ipu != variable.ipu) return true;
    if (first == nullptr) first = unit.get();
    return std::memcmp(unit->At(variable), first->At(variable), variable.type.bytes()) == 0;
  });
}

absl::Status Engine::Remap(SharingPlan plan) {
  offers_changed_ = true;
  for (uint32_t ipu = 0; ipu < plan.pages.size(); ++ipu)
    VPOD_RETURN_IF_ERROR(Unshare(ipu, joined_[ipu].Without(plan.pages[ipu])));
  for (uint32_t ipu = 0; ipu < plan.pages.size(); ++ipu) {
    const program::ByteSet split = sharing_.pages[ipu].Without(plan.pages[ipu]);
    const program::ByteSet shared = plan.pages[ipu].Without(sharing_.pages[ipu]);
    absl::Status mapped = MapPages(ipu, split, /*shared=*/false);
    mapped.Update(MapPages(ipu, shared, /*shared=*/true));
    if (mapped.ok()) continue;
    unusable_ = mapped;  // some units may have other pages than the rest
    return mapped;
  }
  sharing_ = std::move(plan);
  saved_bytes_ = SavedBytes(sharing_);
  SetScopes();
  return absl::OkStatus();
}

absl::Status Engine::MapPages(uint32_t ipu, const program::ByteSet& pages, bool shared) {
  shm::Segment& common = common_[ipu];
  for (const auto& [begin, end] : pages.ranges()) {
    const uint64_t bytes = end - begin;
    for (const auto& unit : units_) {
      if (unit->ipu != ipu) continue;
      std::byte* own = unit->arena.data() + begin;
      if (shared) {
        if (unit->leads()) std::memcpy(common.data() + begin, own, bytes);
        VPOD_RETURN_IF_ERROR(unit->arena.MapFrom(common, begin, bytes));
        unit->arena.Discard(begin, bytes);
      } else {
        VPOD_RETURN_IF_ERROR(unit->arena.MapOwn(begin, bytes));
        std::memcpy(own, common.data() + begin, bytes);
      }
    }
    if (!shared) common.Discard(begin, bytes);
  }
  return absl::OkStatus();
}

absl::Status Engine::UnshareToWrite(const HostTensor& variable) {
  program::ByteSet pages;
  AddPages(variable.offset, variable.end(), pages);
  pages.IntersectWith(joined_[variable.ipu]);
  const absl::Status left = Unshare(variable.ipu, pages);
  if (left.ok()) return left;
  return absl::Status(
      left.code(),
      absl::StrCat("variable '", variable.name,
                   "' needs a copy for the lease to differ from others: ", left.message()));
}

absl::Status Engine::WriteVariable(const HostTensor& variable, std::optional<uint32_t> replica,
                                   uint64_t offset, absl::string_view data) {
  const uint64_t bytes = variable.type.bytes();
  if ((replica && *replica >= options_.local_replicas) || offset > bytes ||
      data.size() > bytes - offset) {
    return absl::OutOfRangeError(absl::StrCat(
        "variable '", variable.name, "' has ", bytes, " bytes on ", options_.local_replicas,
        " replicas; bytes ", offset, " to ", offset + data.size(), " of ",
        replica ? absl::StrCat("replica ", *replica) : "all", " were written"));
  }
  base::MutexLock lock(mutex_);
  if (running_) return absl::FailedPreconditionError("a run is active on this lease");
  VPOD_RETURN_IF_ERROR(unusable_);
  if (replica && FindUnit(*replica, variable.ipu) == nullptr)
    return absl::NotFoundError("the replica is on another process");
  const bool joined = joined_[variable.ipu].Touches(variable.offset, variable.end());
  if (IsShared(variable) && (replica || joined)) {
    const std::byte* bytes_here = FirstUnit(variable.ipu)->At(variable);
    if (ReadHostBytes(variable, bytes_here, offset, data.size()) == data) return absl::OkStatus();
    VPOD_RETURN_IF_ERROR(replica ? Split(variable) : UnshareToWrite(variable));
  }
  offers_changed_ = true;
  const bool shared = IsShared(variable);
  for (const auto& unit : units_) {
    if (unit->ipu != variable.ipu || (replica && unit->replica != *replica)) continue;
    if (!shared || unit->leads()) WriteHostBytes(variable, unit->At(variable), offset, data);
    if (!variable.remote) unit->forms->AllWritten();
  }
  may_share_again_ = may_share_again_ || !shared;
  return absl::OkStatus();
}

absl::StatusOr<std::string> Engine::ReadVariable(const program::HostTensor& variable,
                                                 uint32_t replica, uint64_t offset,
                                                 uint64_t bytes) const {
  if (replica >= options_.local_replicas) {
    return absl::OutOfRangeError(absl::StrCat(
        "replica ", replica, " does not exist; the lease has ", options_.local_replicas));
  }
  const uint64_t size = variable.type.bytes();
  if (offset > size) {
    return absl::OutOfRangeError(absl::StrCat("variable '", variable.name, "' has ", size,
                                              " bytes; byte ", offset, " was read"));
  }
  base::MutexLock lock(mutex_);
  if (running_) return absl::FailedPreconditionError("a run is active on this lease");
  const Unit* unit = FindUnit(replica, variable.ipu);
  if (unit == nullptr) return absl::NotFoundError("the replica is on another process");
  return ReadHostBytes(variable, unit->At(variable), offset, std::min(bytes, size - offset));
}

}  // namespace vpod::engine
