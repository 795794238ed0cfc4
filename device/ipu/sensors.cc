#include "device/ipu/sensors.h"

#include <algorithm>
#include <cmath>

namespace vpod::ipu {
namespace {

constexpr double kIdleWatts = 46, kComputeWatts = 78, kExchangeWatts = 15;  // F21
constexpr double kLagSeconds = 20;
constexpr std::chrono::milliseconds kBucket{100};

double Seconds(WallClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Sensors::Sensors(double dynamic_power_scale, WallClock::time_point now)
    : scale_(dynamic_power_scale), last_(now), session_start_(now), settled_power_(kIdleWatts) {}

void Sensors::AdvanceTo(WallClock::time_point now) {
  if (now <= last_) return;
  const RunShares shares = running_ ? shares_ : RunShares{};
  const double power =
      kIdleWatts + scale_ * (kComputeWatts * shares.compute + kExchangeWatts * shares.exchange);
  const double seconds = Seconds(now - last_);
  settled_power_ += (power - settled_power_) * (1 - std::exp(-seconds / kLagSeconds));
  if (running_) {
    session_busy_seconds_ += seconds * (shares.compute + shares.exchange);
    // Only the last buckets matter, however long the run.
    auto from = std::max(last_, now - kBucket * static_cast<int64_t>(buckets_.size()));
    while (from < now) {
      const int64_t number = from.time_since_epoch() / kBucket;
      const WallClock::time_point end{
          std::min<WallClock::duration>(kBucket * (number + 1), now.time_since_epoch())};
      Bucket& bucket = buckets_[static_cast<size_t>(number) % buckets_.size()];
      if (bucket.number != number) bucket = {number, 0, 0};
      bucket.compute_seconds += Seconds(end - from) * shares.compute;
      bucket.exchange_seconds += Seconds(end - from) * shares.exchange;
      from = end;
    }
  }
  last_ = now;
}

void Sensors::BeginSession(WallClock::time_point now) {
  base::MutexLock lock(mutex_);
  AdvanceTo(now);
  session_start_ = now;
  session_busy_seconds_ = 0;
}

void Sensors::BeginRun(RunShares shares, WallClock::time_point now) {
  base::MutexLock lock(mutex_);
  AdvanceTo(now);
  running_ = true;
  shares_ = shares;
}

void Sensors::EndRun(WallClock::time_point now) {
  base::MutexLock lock(mutex_);
  AdvanceTo(now);
  running_ = false;
}

Reading Sensors::Read(WallClock::time_point now) {
  base::MutexLock lock(mutex_);
  AdvanceTo(now);
  const int64_t present = now.time_since_epoch() / kBucket;
  double compute = 0, exchange = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.number < present - 9 || bucket.number > present) continue;
    compute += bucket.compute_seconds;
    exchange += bucket.exchange_seconds;
  }
  // The present bucket is not over yet: the window is nine whole ones and its part.
  const double window = Seconds(now.time_since_epoch() - kBucket * (present - 9));
  compute = std::min(1.0, compute / window);
  exchange = std::min(1.0 - compute, exchange / window);
  Reading reading;
  reading.utilisation = compute + exchange;
  const double session = Seconds(now - session_start_);
  reading.session_utilisation = session > 0 ? std::min(1.0, session_busy_seconds_ / session) : 0;
  reading.power_watts = kIdleWatts + scale_ * (kComputeWatts * compute + kExchangeWatts * exchange);
  reading.settled_power_watts = settled_power_;
  return reading;
}

double BoardTemperature(double settled_power_a, double settled_power_b) {
  return 18 + 0.12 * (settled_power_a + settled_power_b);
}

double DieTemperature(double board_temperature, double settled_power) {
  return board_temperature + 2 + 0.02 * settled_power;
}

}  // namespace vpod::ipu
