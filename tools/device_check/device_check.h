// Common parts of the gc-* tools that run programs on a device: options, attaching, and the two
// kinds of figures. Modelled ones come from the virtual cycles of the run and the price list
// (device/model); host ones, shown with --wall, from the clock on the wall.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/session.h"
#include "device/model/cost.h"
#include "tools/gc_options.h"

namespace vpod::tools {

struct TestOptions {
  DeviceOption device;
  bool json = false;
  bool wall = false;
};
// --help, --version, --device-id, --json-output and --wall.
void AddTestOptions(po::options_description& options, TestOptions& values);

struct AttachOptions {
  uint32_t device_id = 0;
  bool monitoring = false;  // power and temperature become visible, as with GCDA_MONITOR=1
};
// Attaches a device of the active partition, one replica an IPU. Errors carry the agent's words,
// the holder's process among them when the device is in use.
absl::StatusOr<std::unique_ptr<session::Device>> AttachForTest(const AttachOptions& options);
// Ids of the single IPUs of a device of the active partition.
absl::StatusOr<std::vector<uint32_t>> IpusOfActiveDevice(uint32_t device_id);

// Returns the parameters of prices, for a device that runs one replica an IPU.
model::Topology TopologyOf(const session::Device& device);
// Runs a program once; cycles of each IPU.
absl::StatusOr<std::vector<base::Cycles>> RunCounted(session::Session& session,
                                                     const std::string& program, uint32_t slot = 0);

// Values that a test reports, in the order of printing.
using Rows = std::vector<std::pair<std::string, std::string>>;
// All 17 significant digits, as JSON output carries floats (spec/gc-tools.md 1.4).
std::string AllDigits(double value);
// An object of strings with an indent of one blank, and a newline.
std::string JsonObject(const Rows& rows);

// Seconds of wall time since it was made.
class WallTimer {
 public:
  WallTimer();
  double Seconds() const;

 private:
  const int64_t start_nanoseconds_;
};

}  // namespace vpod::tools
