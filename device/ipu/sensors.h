// Readings of an IPU's sensors: the only bridge from programs to quantities of wall time. A stated
// first-order model (spec/hardware.md F21) driven by utilisation; it never enters results, cycles
// or reports.
//
//   IPU power   = 46 W + scale · (78 W · compute share + 15 W · exchange share)
//   board       = 18 °C + 0.12 °C per board watt (two IPUs), die = board + 2 °C + 0.02 °C per IPU
//   watt,
//                 both following with a lag of 20 s
#pragma once

#include <array>
#include <chrono>

#include "device/base/mutex.h"

namespace vpod::ipu {

using WallClock = std::chrono::steady_clock;

// Shares of a run's virtual cycles in which an IPU computes and exchanges; it waits for the rest.
struct RunShares {
  double compute = 0;
  double exchange = 0;
};

struct Reading {
  double utilisation = 0;          // 0 to 1, over the last second
  double session_utilisation = 0;  // 0 to 1, since the attach
  double power_watts = 0;          // over the last second
  double settled_power_watts = 0;  // power after the thermal lag
};

// Sensors of one IPU. Thread-safe.
class Sensors {
 public:
  explicit Sensors(double dynamic_power_scale, WallClock::time_point now);

  void BeginSession(WallClock::time_point now);
  void BeginRun(RunShares shares, WallClock::time_point now);
  void EndRun(WallClock::time_point now);
  Reading Read(WallClock::time_point now);

 private:
  // Busy time of a tenth of a second.
  struct Bucket {
    int64_t number = -1;
    double compute_seconds = 0;
    double exchange_seconds = 0;
  };
  void AdvanceTo(WallClock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const double scale_;
  base::Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  RunShares shares_ ABSL_GUARDED_BY(mutex_);
  WallClock::time_point last_ ABSL_GUARDED_BY(mutex_);
  WallClock::time_point session_start_ ABSL_GUARDED_BY(mutex_);
  double session_busy_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  double settled_power_ ABSL_GUARDED_BY(mutex_);
  std::array<Bucket, 11> buckets_
      ABSL_GUARDED_BY(mutex_);  // a second of whole ones and the present one
};

// Board temperature of two IPUs and die temperature of one, in °C.
double BoardTemperature(double settled_power_a, double settled_power_b);
double DieTemperature(double board_temperature, double settled_power);

}  // namespace vpod::ipu
