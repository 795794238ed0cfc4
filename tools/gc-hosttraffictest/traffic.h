// Bandwidth between host and IPU through the buffer in the gateway (spec/gc-tools.md 6.2): four
// ways in which the host's side and the tiles' side of the buffer can move at once. All data are
// compared.
//
// One iteration moves 256 bytes for each tile that takes part; host and tiles synchronise once per
// 125 of them. The tiles' figure is bytes / virtual cycles of the run. The host's side of the
// buffer has no cycles: its figure is a constant for each way, which the published measurement
// gives (spec/hardware.md F2 and F23), and at most the rate of the port of each machine (F15).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/device.h"
#include "tools/device_check/device_check.h"

namespace vpod::tools {

inline constexpr uint32_t kTransferBlocks = 4;  // of 64 bytes, per tile and iteration

struct HostTrafficOptions {
  uint32_t iterations = 100000;  // 1 or more; rounded up to whole transfers
  uint32_t tiles_per_ipu = 32;   // 1 to 1472
};

// One of the four ways.
struct HostTraffic {
  std::string key;                          // host_from_buffer_from_tile
  std::string description;                  // host <- buffer <- tile
  double seconds = 0;                       // modelled, of the slower side
  uint64_t host_bytes = 0, tile_bytes = 0;  // of all IPUs together
  double host_gbps = 0, tile_gbps = 0;
  double wall_host_seconds = 0, wall_tile_seconds = 0;
};

struct HostTrafficReport {
  HostTrafficOptions options;  // iterations as done
  uint32_t num_ipus = 0;
  std::vector<HostTraffic> ways;
};

// DataLoss: data came back wrong.
absl::StatusOr<HostTrafficReport> MeasureHostTraffic(std::unique_ptr<session::Device> device,
                                                     const HostTrafficOptions& options);

std::string HostTrafficText(const HostTrafficReport& report, bool wall);
std::string HostTrafficJson(const HostTrafficReport& report, bool wall);

}  // namespace vpod::tools
