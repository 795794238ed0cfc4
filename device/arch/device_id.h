// Device ids of a GCD: the 2N-1 rule. Ids 0 … N-1 are the single IPUs, then all aligned pairs,
// quads, … up to the one device of all N IPUs; the first id of the groups of S IPUs is 2N - 2N/S.
// With N = 4: 0-3, 4-5, 6.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace vpod::arch {

// A run of consecutive IPUs, by routing id.
struct IpuRange {
  uint32_t first = 0;
  uint32_t count = 0;
  friend bool operator==(const IpuRange&, const IpuRange&) = default;
};

constexpr bool IsPowerOfTwo(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

constexpr uint32_t NextPowerOfTwo(uint32_t n) {
  uint32_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// Number of device ids of `num_ipus` IPUs (a power of two).
constexpr uint32_t NumDeviceIds(uint32_t num_ipus) { return 2 * num_ipus - 1; }

// IPUs of a device; OutOfRange when the id is not below 2N-1.
absl::StatusOr<IpuRange> IpusOfDevice(uint32_t num_ipus, uint32_t device_id);

// Id of the aligned group `range`; InvalidArgument when it is not an aligned power-of-two group
// within num_ipus.
absl::StatusOr<uint32_t> DeviceOfIpus(uint32_t num_ipus, IpuRange range);

// IPU# of the tools counts downwards inside a machine: routing position 0 is IPU 3.
constexpr uint32_t IpuNumberOfPosition(uint32_t position_in_machine) {
  return 3 - position_in_machine;
}

// Board serial number in 4.4.7 digits: IPU 3 and 2 sit on board 0002, IPU 1 and 0 on board 0001 of
// their machine.
std::string BoardSerial(uint32_t machine_index, uint32_t ipu_number);

}  // namespace vpod::arch
