// The test program on the IPUModel, and the layouts of gc-flops.
#include "tools/gc-flops/flops.h"

#include <gtest/gtest.h>

#include "client/session/ipu_model.h"

namespace vpod::tools {
namespace {

FlopsReport Measure(const std::string& machine_type, program::v1::DataType type) {
  auto device =
      session::CreateIpuModel({.replicas = 2, .machine_type = machine_type, .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  auto report = MeasureFlops(*std::move(device), type);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.value_or(FlopsReport{});
}

// Quoted peaks at the clock of the tiles: 1472 tiles × 64 or 16 multiply-adds a cycle
// (spec/hardware.md 1). Loading weights, starting workers and syncs leave 93 to 96 % of them.
TEST(FlopsTest, ComesCloseToThePeak) {
  for (const auto& [machine, clock] : {std::pair{"m2000", 1.33e9}, {"bow2000", 1.85e9}}) {
    const FlopsReport half = Measure(machine, program::v1::FLOAT16);
    EXPECT_EQ(half.clock_hz, clock);
    EXPECT_NEAR(half.teraflops / (1472 * 64 * 2 * clock / 1e12), 0.945, 0.015);
    const FlopsReport single = Measure(machine, program::v1::FLOAT32);
    EXPECT_NEAR(single.teraflops / (1472 * 16 * 2 * clock / 1e12), 0.945, 0.015);
    EXPECT_GT(single.seconds, 0);
  }
}

FlopsReport Published() {
  return {.precision = "FP32",
          .teraflops = 87.1078,
          .seconds = 27.8703,
          .clock_hz = 1.85e9,
          .wall_seconds = 0.25,
          .wall_teraflops = 0.125};
}

TEST(FlopsTest, TextIsThePublishedOne) {
  EXPECT_EQ(FlopsText(Published(), false),
            "Flops per IPU (FP32): 87.1078 teraFLOPS (took: 27.8703 seconds)\n"
            "IPU clock speed: 1850 MHz\n");
  EXPECT_EQ(FlopsText(Published(), true),
            "Flops per IPU (FP32): 87.1078 teraFLOPS (took: 27.8703 seconds)\n"
            "Host per IPU (FP32): 0.125 teraFLOPS (took: 0.25 seconds)\n"
            "IPU clock speed: 1850 MHz\n");
}

TEST(FlopsTest, JsonIsOneObjectOfStrings) {
  FlopsReport report = Published();
  report.teraflops = 86.5;
  report.seconds = 0.5;
  EXPECT_EQ(JsonObject(FlopsRows(3, report, false)),
            "{\n \"device_id\": \"3\",\n \"precision\": \"FP32\",\n"
            " \"teraflops_per_ipu\": \"86.5\",\n \"duration_seconds\": \"0.5\",\n"
            " \"ipu_clock_speed_mhz\": \"1850\"\n}\n");
  EXPECT_EQ(FlopsRows(3, report, true).size(), 7u);
}

}  // namespace
}  // namespace vpod::tools
