// Copies between two units on different processes: the target says where it wants the bytes, the
// source puts or sends them there.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/fabric/collectives_impl.h"

namespace vpod::fabric {

void Collectives::Copy(const RendezvousKey& key, CrossCopy copy, Completed done) {
  const bool sends = IsHere(copy.from_unit);
  const size_t other = site_of_[sends ? copy.to_unit : copy.from_unit];
  OperationPtr operation;
  absl::Status refusal;
  bool ready = false;
  {
    base::MutexLock lock(mutex_);
    refusal = failure_;
    if (refusal.ok() && (operation = Find(key)) == nullptr)
      refusal = absl::ResourceExhaustedError("too many copies at once");
    if (refusal.ok()) {
      operation->clock = std::max(operation->clock, copy.clock);
      operation->failure.Update(copy.failure);
      operation->sites = {options_.here, other};
      operation->done = std::move(done);
      operation->since = Clock::now();
      operation->remaining = 1;
      operation->copy = std::move(copy);
      ready = operation->target_ready;
    }
  }
  if (!refusal.ok()) return done(refusal);
  if (!sends) {
    Header header = HeaderFor(*operation, kCopyReady);
    header.offset = operation->copy->arena_offset;
    Tell(other, header, operation->copy->failure);
  } else if (ready) {
    SendCopy(operation);
  }
}

void Collectives::SendCopy(const OperationPtr& operation) {
  const CrossCopy& failed = *operation->copy;
  if (!failed.failure.ok()) {
    Tell(site_of_[failed.to_unit], HeaderFor(*operation, kCopyFailed), failed.failure);
    return Done(operation, absl::OkStatus());
  }
  const auto self = shared_from_this();
  options_.compute([self, operation] {
    const CrossCopy& copy = *operation->copy;
    absl::Span<const std::byte> payload(copy.data, copy.bytes);
    const auto mapped = self->options_.arenas.find(copy.to_unit);
    if (mapped != self->options_.arenas.end()) {
      const absl::Span<std::byte> arena = mapped->second;
      if (operation->target_offset > arena.size() ||
          copy.bytes > arena.size() - operation->target_offset) {
        return self->options_.fail(absl::InternalError("a peer wants a tensor outside its memory"));
      }
      std::memcpy(arena.data() + operation->target_offset, copy.data, copy.bytes);
      payload = {};
    }
    self->Send(self->site_of_[copy.to_unit], self->HeaderFor(*operation, kCopyData), payload,
               [self, operation](const absl::Status& status) { self->Done(operation, status); });
  });
}

void Collectives::OnCopyReady(const OperationPtr& operation, const Header& header) {
  {
    base::MutexLock lock(mutex_);
    operation->clock = std::max(operation->clock, header.clock);
    operation->target_offset = header.offset;
    if (std::exchange(operation->target_ready, true) || !operation->copy) return;
    if (!IsHere(operation->copy->from_unit)) return;
  }
  SendCopy(operation);
}

Landing Collectives::OnCopyData(const OperationPtr& operation, const Header& header, size_t bytes) {
  {
    base::MutexLock lock(mutex_);
    if (!operation->copy || IsHere(operation->copy->from_unit)) return {};
    operation->clock = std::max(operation->clock, header.clock);
    operation->source_ready = true;
  }
  const CrossCopy& copy = *operation->copy;
  const bool written = options_.arenas.contains(copy.from_unit);
  if (bytes != (written ? 0 : copy.bytes)) {
    options_.fail(absl::InternalError("a peer sent a tensor of another size"));
    return {};
  }
  return {written ? nullptr : copy.data,
          [self = shared_from_this(), operation](const absl::Status& status) {
            self->Done(operation, status);
          }};
}

Landing Collectives::OnCopyFailed(const OperationPtr& operation, size_t bytes) {
  {
    base::MutexLock lock(mutex_);
    if (!operation->copy || IsHere(operation->copy->from_unit)) return {};
  }
  return TakeFailure(operation, bytes, [self = shared_from_this(), operation] {
    self->Done(operation, absl::OkStatus());
  });
}

std::optional<uint32_t> Collectives::AwaitedEnd(const Operation& operation) const {
  if (!operation.copy) return std::nullopt;
  const bool sends = IsHere(operation.copy->from_unit);
  if (sends ? operation.target_ready : operation.source_ready) return std::nullopt;
  return sends ? operation.copy->to_unit : operation.copy->from_unit;
}

std::vector<Collectives::LateEnd> Collectives::FindLateEnds(Clock::time_point now,
                                                            Clock::duration patience) {
  std::vector<LateEnd> late;
  base::MutexLock lock(mutex_);
  for (const auto& [key, operation] : operations_) {
    const std::optional<uint32_t> unit = AwaitedEnd(*operation);
    const Clock::duration waited = now - operation->since;
    if (!unit || waited < patience) continue;
    Wait& reported = reported_[*unit];
    if (reported.run == key.run && waited < 2 * reported.waited) continue;
    reported = {key.run, waited};
    late.push_back(
        {*unit,
         absl::StrCat("replica ", *unit / options_.ipus_per_replica, ": ",
                      operation->copy->name_other(), " on ", options_.sites[site_of_[*unit]].name,
                      " has not come to the exchange for ",
                      std::chrono::round<std::chrono::seconds>(waited).count(), " s")});
  }
  return late;
}

}  // namespace vpod::fabric
