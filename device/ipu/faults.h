// Errors that an IPU can have: raised by people who test their own software (vipu-admin inject,
// GCDA_OPTIONS simulateSOCError), shown by the attributes, cleared by a reset.
#pragma once

#include <cstdint>
#include <string>

#include "device/base/mutex.h"

namespace vpod::ipu {

// Sensor readings and clock of an IPU that is too hot; our own values, as nothing is published.
inline constexpr double kHotDieCelsius = 105, kHotBoardCelsius = 85;
inline constexpr double kThrottledClockShare = 0.5;

struct FaultState {
  std::string error;              // name in the status register, e.g. IPUSOFTERR; empty: none
  bool simulated = false;         // the error is one that a program asked for
  bool over_temperature = false;  // the clock is throttled; programs go on
  bool parity_error = false;      // tile memory needs a parity init before anything is loaded
  // Programs run on it.
  bool usable() const { return error.empty() && !parity_error; }
};

// Faults of one IPU. Thread-safe.
class Faults {
 public:
  FaultState Read() const {
    base::MutexLock lock(mutex_);
    return state_;
  }
  void SetError(const std::string& name, bool simulated) {
    base::MutexLock lock(mutex_);
    state_.error = name;
    state_.simulated = simulated;
  }
  void SetOverTemperature() {
    base::MutexLock lock(mutex_);
    state_.over_temperature = true;
  }
  void SetParityError() {
    base::MutexLock lock(mutex_);
    state_.parity_error = true;
    ++parity_errors_;
  }
  // Parity errors so far; a reset does not clear the count.
  uint64_t parity_errors() const {
    base::MutexLock lock(mutex_);
    return parity_errors_;
  }
  // An error that a program asked for, which ends with the program's partition.
  void EndSimulatedError() {
    base::MutexLock lock(mutex_);
    if (!state_.simulated) return;
    state_.error.clear();
    state_.simulated = false;
  }
  // A reset ends all errors; one of parity only with a parity init.
  void Reset(bool initialise_parity) {
    base::MutexLock lock(mutex_);
    const bool parity_stays = state_.parity_error && !initialise_parity;
    state_ = {};
    state_.parity_error = parity_stays;
  }

 private:
  mutable base::Mutex mutex_;
  FaultState state_ ABSL_GUARDED_BY(mutex_);
  uint64_t parity_errors_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vpod::ipu
