// The test program on the IPUModel, with and without a faulty link, and the layouts of
// gc-hosttraffictest.
#include "tools/gc-hosttraffictest/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "client/session/ipu_model.h"
#include "device/base/file.h"
#include "tools/device_check/faulty_device.h"

namespace vpod::tools {
namespace {

std::unique_ptr<session::Device> Model(uint32_t replicas) {
  auto device = session::CreateIpuModel({.replicas = replicas, .compute_threads = 2});
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

TEST(HostTrafficTest, FollowsTheRatesOfTheModel) {
  const auto report = MeasureHostTraffic(Model(2), {.iterations = 2000, .tiles_per_ipu = 32});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->num_ipus, 2u);
  ASSERT_EQ(report->ways.size(), 4u);
  // F23 for two IPUs, but F15 if the host writes and tiles read: one port of 11.25 GB/s.
  const std::map<std::string, double> host_gbps = {{"host_from_buffer_from_tile", 2 * 8 * 2.83},
                                                   {"host_to_buffer_to_tile", 8 * 11.25},
                                                   {"host_to_buffer_from_tile", 2 * 8 * 2.83},
                                                   {"host_from_buffer_to_tile", 2 * 8 * 5.03}};
  for (const HostTraffic& way : report->ways) {
    // 2 IPUs × 2000 iterations × 32 tiles × 256 bytes.
    EXPECT_EQ(way.host_bytes, 2ull * 2000 * 32 * 256) << way.key;
    EXPECT_EQ(way.tile_bytes, way.host_bytes) << way.key;
    EXPECT_NEAR(way.host_gbps, host_gbps.at(way.key), 1e-9) << way.key;
    // F2: 32 tiles × 0.1066 GB/s an IPU, less the requests' latency.
    EXPECT_LT(way.tile_gbps, 2 * 27.29) << way.key;
    EXPECT_GT(way.tile_gbps, 2 * 26.7) << way.key;
    const double slower = std::min(way.host_gbps, way.tile_gbps);
    EXPECT_NEAR(way.seconds, static_cast<double>(way.tile_bytes) * 8e-9 / slower, 1e-12);
  }
}

TEST(HostTrafficTest, FewerTilesAreSlower) {
  const auto report = MeasureHostTraffic(Model(1), {.iterations = 500, .tiles_per_ipu = 8});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_NEAR(report->ways[0].tile_gbps, 7, 0.5);
}

TEST(HostTrafficTest, IterationsAreRoundedUpToTransfers) {
  const auto report = MeasureHostTraffic(Model(1), {.iterations = 1, .tiles_per_ipu = 1});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->options.iterations, 125u);
  EXPECT_EQ(report->ways[0].tile_bytes, 125u * 256);
}

TEST(HostTrafficTest, FindsAFlippedBit) {
  const auto report =
      MeasureHostTraffic(std::make_unique<FaultyDevice>(Model(1), 3), {.iterations = 2000});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(report.status().message(), "data that IPU 0 of the device sent came back wrong");
}

std::string Golden(const std::string& name) {
  const std::string text = base::ReadFile("tools/gc-hosttraffictest/testdata/" + name);
  EXPECT_NE(text, "") << name;
  return text;
}

HostTrafficReport Sample() {
  HostTrafficReport report{.num_ipus = 1};
  HostTraffic traffic{.seconds = 3.4895363750000001,
                      .host_bytes = 819200000,
                      .tile_bytes = 819200000,
                      .host_gbps = 90,
                      .tile_gbps = 28.125,
                      .wall_host_seconds = 0.5,
                      .wall_tile_seconds = 0.25};
  for (const auto& [key, description] :
       {std::pair{"host_from_buffer_from_tile", "host <- buffer <- tile"},
        {"host_to_buffer_to_tile", "host -> buffer -> tile"}}) {
    traffic.key = key;
    traffic.description = description;
    report.ways.push_back(traffic);
  }
  return report;
}

TEST(HostTrafficTest, Layouts) {
  EXPECT_EQ(HostTrafficJson(Sample(), false), Golden("report.json"));
  EXPECT_EQ(HostTrafficText(Sample(), true), Golden("report_wall.txt"));
}

}  // namespace
}  // namespace vpod::tools
