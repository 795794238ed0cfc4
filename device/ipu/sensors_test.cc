#include "device/ipu/sensors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vpod::ipu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SensorsTest : public testing::Test {
 protected:
  WallClock::time_point now_ = WallClock::time_point(seconds(1000));
  Sensors sensors_{1.0, now_};
};

TEST_F(SensorsTest, IdleIpuDrawsItsIdlePower) {
  const Reading reading = sensors_.Read(now_ + seconds(100));
  EXPECT_EQ(reading.utilisation, 0);
  EXPECT_DOUBLE_EQ(reading.power_watts, 46);
  EXPECT_DOUBLE_EQ(reading.settled_power_watts, 46);
}

TEST_F(SensorsTest, BusySecondShowsTheSharesOfTheRun) {
  sensors_.BeginSession(now_);
  sensors_.BeginRun({0.5, 0.25}, now_);
  const Reading reading = sensors_.Read(now_ + seconds(2));
  EXPECT_NEAR(reading.utilisation, 0.75, 1e-9);
  EXPECT_NEAR(reading.session_utilisation, 0.75, 1e-9);
  EXPECT_NEAR(reading.power_watts, 46 + 39 + 3.75, 1e-9);
}

TEST_F(SensorsTest, UtilisationCountsTheShareOfTheSecondInWhichARunWasActive) {
  // A tenth of a second of work, then rest, ten times over.
  for (int i = 0; i < 20; ++i) {
    sensors_.BeginRun({1, 0}, now_);
    sensors_.EndRun(now_ + milliseconds(50));
    now_ += milliseconds(100);
  }
  EXPECT_NEAR(sensors_.Read(now_).utilisation, 0.5, 0.05);
  EXPECT_EQ(sensors_.Read(now_ + seconds(3)).utilisation, 0);
}

TEST_F(SensorsTest, TemperatureFollowsWithALagOfTwentySeconds) {
  sensors_.BeginRun({1, 0}, now_);
  const double after_lag = sensors_.Read(now_ + seconds(20)).settled_power_watts;
  EXPECT_NEAR(after_lag, 46 + 78 * (1 - std::exp(-1.0)), 1e-6);
  const double settled = sensors_.Read(now_ + seconds(400)).settled_power_watts;
  EXPECT_NEAR(settled, 124, 1e-3);
  // Anchors of F21: a loaded board is a little above 40 °C.
  EXPECT_NEAR(BoardTemperature(settled, settled), 47.8, 0.1);
  EXPECT_GT(DieTemperature(47.8, settled), 47.8);
}

TEST_F(SensorsTest, ReadingOftenerChangesNothing) {
  Sensors other(1.0, now_);
  for (Sensors* sensors : {&sensors_, &other}) sensors->BeginRun({0.7, 0.1}, now_);
  for (int i = 1; i <= 300; ++i) other.Read(now_ + milliseconds(100 * i));
  EXPECT_NEAR(sensors_.Read(now_ + seconds(30)).settled_power_watts,
              other.Read(now_ + seconds(30)).settled_power_watts, 1e-9);
}

}  // namespace
}  // namespace vpod::ipu
