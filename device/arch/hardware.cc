#include "device/arch/hardware.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace vpod::arch {
namespace {

constexpr MachineType kMachineTypes[] = {
    {"m2000", "M2000", "GC200", 1.33e9, 1.0},
    {"bow2000", "Bow-2000", "Bow", 1.85e9, 1.15},
};

}  // namespace

absl::StatusOr<MachineType> FindMachineType(absl::string_view flag) {
  for (const MachineType& type : kMachineTypes) {
    if (type.flag == flag) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown machine type '", flag, "'; give m2000 or bow2000"));
}

std::string ClockText(const MachineType& type) {
  return absl::StrCat(std::lround(type.clock_hz / 1e6), "MHz");
}

uint32_t SyncHops(uint32_t num_ipus) { return 1 + num_ipus / 4; }

base::Cycles ExternalSyncCycles(uint32_t num_ipus, double clock_hz) {
  const double formula = std::ceil(kLinkHopSeconds * clock_hz * SyncHops(num_ipus) * 2);
  return base::Cycles(std::max(kExternalSyncCycles, static_cast<uint64_t>(formula)));
}

double IpuLinkBytesPerSecond(uint32_t from_ipu, uint32_t to_ipu) {
  if (from_ipu / 2 == to_ipu / 2) return kPairLinks * kLinkBytesPerSecond;
  if (from_ipu % 2 != to_ipu % 2) {
    return std::min(kCrossLinks, kLadderLinks) * kLinkBytesPerSecond;
  }
  return kLadderLinks * kLinkBytesPerSecond;
}

double RingBytesPerSecond(uint64_t distance) {
  return kRingBytesPerSecond / static_cast<double>(std::max<uint64_t>(1, distance / 2));
}

}  // namespace vpod::arch
