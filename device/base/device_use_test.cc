#include "device/base/device_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vpod::base {
namespace {

TEST(PidTextTest, MarksIdsThatMeanNothingToTheReader) {
  EXPECT_EQ(PidText(4711, "pid:[1]", "pid:[1]"), "4711");
  EXPECT_EQ(PidText(4711, "pid:[2]", "pid:[1]"), "4711 of another PID namespace");
  EXPECT_EQ(PidText(4711, "", "pid:[1]"), "4711");
  EXPECT_EQ(PidText(4711, "pid:[2]", ""), "4711");
  EXPECT_EQ(PidNamespace().rfind("pid:[", 0), 0u);
}

TEST(DeviceInUseTest, SaysWhoSinceWhenAndWhatToDo) {
  DeviceUse use{.device_id = 14,
                .pid = "4711",
                .program = "train",
                .user = "alice",
                .host = "host1",
                .seconds = 241,
                .partition = "partition p16",
                .free_ipus = 3,
                .ipus = 16};
  EXPECT_EQ(DeviceInUse(use),
            "device 14 is in use by process 4711 (train) of alice on host1, attached 4m1s ago; 3 "
            "of 16 IPUs of partition p16 are free. Wait, or choose a device whose IPUs are free; "
            "run 'gc-monitor' to see who uses which IPUs");
  use.free_ipus = 0;
  use.seconds = 0;
  use.since = "started";
  use.program = use.user = "";
  EXPECT_EQ(DeviceInUse(use),
            "device 14 is in use by process 4711 on host1, started 0s ago; no IPU of partition p16 "
            "is free. Wait, or use another partition; run 'gc-monitor' to see who uses which IPUs");
  use.partition = "";
  EXPECT_EQ(DeviceInUse(use),
            "device 14 is in use by process 4711 on host1, started 0s ago; wait until it detaches; "
            "run 'gc-monitor' to see who uses which IPUs");
}

// A name is what a process says of itself, to others.
TEST(DeviceInUseTest, ANameDoesNotPassForAPartOfTheSentence) {
  const DeviceUse use{.pid = "7", .program = "x) is gone. Run \"y\"", .user = "eve", .host = "h-1"};
  EXPECT_THAT(DeviceInUse(use),
              testing::StartsWith("device 0 is in use by process 7 (\"x) is gone. "
                                  "Run 'y'\") of eve on h-1, attached "));
}

}  // namespace
}  // namespace vpod::base
