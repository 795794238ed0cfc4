#include "device/engine/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::engine {
namespace {

// Rounded up: what is asked for does not fit, however little it is.
uint64_t MiB(uint64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

}  // namespace

absl::Status MemoryBudget::Reserve(uint64_t bytes) {
  uint64_t used = used_.load();
  do {
    if (bytes > limit_ || used > limit_ - bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the executable needs ", MiB(bytes), " MiB of host memory; ", MiB(used), " MiB of the ",
          owner_, "'s limit of ", limit_ >> 20, " MiB are in use", hint_));
    }
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return absl::OkStatus();
}

absl::StatusOr<Reservation> Reservation::Make(MemoryBudget& budget, uint64_t bytes) {
  VPOD_RETURN_IF_ERROR(budget.Reserve(bytes));
  Reservation reservation;
  reservation.budget_ = &budget;
  reservation.bytes_ = bytes;
  return reservation;
}

absl::Status Reservation::Grow(uint64_t bytes) {
  VPOD_RETURN_IF_ERROR(budget_->Reserve(bytes));
  bytes_ += bytes;
  return absl::OkStatus();
}

void Reservation::Shrink(uint64_t bytes) {
  if (bytes == 0) return;
  budget_->Release(bytes);
  bytes_ -= bytes;
}

void Reservation::MoveTo(Reservation& other, uint64_t bytes) {
  bytes_ -= bytes;
  other.budget_ = budget_;
  other.bytes_ += bytes;
}

}  // namespace vpod::engine
