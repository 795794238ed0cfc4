// The budget of host memory for the emulated IPUs of a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vpod::engine {

// Host memory that emulated IPUs may take together. Thread-safe.
class MemoryBudget {
 public:
  // `hint` says behind the refusal where the limit is set.
  explicit MemoryBudget(uint64_t limit_bytes, std::string owner = "POD",
                        std::string hint = " (see vpod up --memory-limit)")
      : limit_(limit_bytes), owner_(std::move(owner)), hint_(std::move(hint)) {}
  // ResourceExhausted names what was asked, what is in use, the limit and whose it is.
  absl::Status Reserve(uint64_t bytes);
  void Release(uint64_t bytes) { used_ -= bytes; }
  uint64_t used() const { return used_; }
  uint64_t limit() const { return limit_; }

 private:
  const uint64_t limit_;
  const std::string owner_, hint_;
  std::atomic<uint64_t> used_ = 0;
};

// Bytes of a budget, which outlives them; given back with the object.
class Reservation {
 public:
  // Fails as Reserve does.
  static absl::StatusOr<Reservation> Make(MemoryBudget& budget, uint64_t bytes);
  // Reserves more; what there is stays if that fails.
  absl::Status Grow(uint64_t bytes);
  // Gives some of the bytes back.
  void Shrink(uint64_t bytes);
  // Hands some of the bytes over, which are in use throughout.
  void MoveTo(Reservation& other, uint64_t bytes);
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Reservation() {
    if (budget_ != nullptr) budget_->Release(bytes_);
  }

 private:
  MemoryBudget* budget_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace vpod::engine
