// Report of the tools that write patterns on every tile and look at what comes back (gc-memorytest,
// gc-exchangetest, gc-exchangewritetest; spec/gc-tools.md 7).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device/arch/hardware.h"
#include "tools/device_check/device_check.h"

namespace vpod::tools {

// Where the data of a test begin in a tile: the two memory elements below hold its code and state.
inline constexpr uint32_t kMemoryElementBytes = 16 * 1024;  // spec/hardware.md 2.3
inline constexpr uint32_t kTileMemoryBase = 0x4C000;        // spec/hardware.md 2.3
inline constexpr uint32_t kFirstDataAddress = kTileMemoryBase + 2 * kMemoryElementBytes;

// The first word that came back wrong.
struct TileFault {
  uint32_t ipu = 0;  // of the device
  uint32_t tile = 0;
  uint32_t address = 0;  // in the tile
  uint32_t expected = 0, found = 0;
};

struct TileTestReport {
  Rows details;        // what was done
  double seconds = 0;  // modelled
  double wall_seconds = 0;
  std::optional<TileFault> fault;
};

// "Result - Pass", or the fault and "Result - Fail", after the details.
std::string TileTestText(const TileTestReport& report, bool wall);
Rows TileTestRows(uint32_t device_id, const TileTestReport& report, bool wall);
// Prints the report; the exit status of the tool.
int PrintTileTest(const TestOptions& options, const TileTestReport& report);

// A whole tool that has no options of its own: attaches the device, runs the test, prints.
int RunTileTest(const std::string& tool, int argc, char** argv,
                absl::StatusOr<TileTestReport> (*test)(std::unique_ptr<session::Device>));

}  // namespace vpod::tools
