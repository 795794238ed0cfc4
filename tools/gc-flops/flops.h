// Rate of the AMP units (spec/gc-tools.md 7): each tile multiplies matrices of its own, on all
// tiles at once, and every element of the products is checked. The figure is the program's
// operations divided by the modelled time of its run.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/device.h"
#include "proto/program/v1/program.pb.h"
#include "tools/device_check/device_check.h"

namespace vpod::tools {

struct FlopsReport {
  std::string precision;  // FP16 or FP32
  double teraflops = 0;   // of the slowest IPU
  double seconds = 0;     // modelled, of the whole run
  double clock_hz = 0;
  double wall_seconds = 0;  // the emulating host's
  double wall_teraflops = 0;
};

// FLOAT16 or FLOAT32. DataLoss: a product is wrong.
absl::StatusOr<FlopsReport> MeasureFlops(std::unique_ptr<session::Device> device,
                                         program::v1::DataType type);

// Returns the text after "Starting … calculation...".
std::string FlopsText(const FlopsReport& report, bool wall);
Rows FlopsRows(uint32_t device_id, const FlopsReport& report, bool wall);

}  // namespace vpod::tools
