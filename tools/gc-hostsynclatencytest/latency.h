// Time of the syncs between host and IPU (spec/gc-tools.md 6.5). The host posts marks ahead; the
// IPU takes them one by one, a sync each, and adds them up, which shows that none was lost.
//
// A mark travels in a stream of one word, because that is how emulated IPUs meet their host. A
// second program takes as many words from the machine's memory, over the same link and without the
// host; what the cycle counters of the two differ by are the syncs. A sync of the machine contains
// the 32 delay instructions of 5 cycles that the published time has (spec/hardware.md 2.6); other
// delays are counted in their place. One time is published, of one proxy and mode, so the others
// take as long: they are reported only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/device.h"
#include "tools/device_check/device_check.h"

namespace vpod::tools {

inline constexpr uint32_t kMaxMarks = 4095;

struct HostSyncOptions {
  std::string hsp = "hsp1";       // hsp1, hsp2 or both
  std::string mode = "polling";   // posted, polling or hybrid
  uint32_t iterations = 1;        // to take the average of
  bool split_increments = false;  // the host posts the marks in two halves
  uint32_t delay_cycles = 5;      // of a delay instruction
  uint32_t num_delays = 32;       // after each sync
  uint32_t mark_count = kMaxMarks;
};

struct HostSyncReport {
  HostSyncOptions options;
  double microseconds = 0;       // modelled, of all marks, average of the iterations
  double wall_microseconds = 0;  // the emulating host's
  bool passed = false;           // every mark arrived
};

absl::StatusOr<HostSyncReport> MeasureHostSync(std::unique_ptr<session::Device> device,
                                               const HostSyncOptions& options);

std::string HostSyncText(uint32_t device_id, const HostSyncReport& report, bool wall);
Rows HostSyncRows(uint32_t device_id, const HostSyncReport& report, bool wall);

}  // namespace vpod::tools
