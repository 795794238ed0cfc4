#include "device/arch/device_id.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vpod::arch {

absl::StatusOr<IpuRange> IpusOfDevice(uint32_t num_ipus, uint32_t device_id) {
  uint32_t first_id = 0;
  for (uint32_t size = 1; size <= num_ipus; size *= 2) {
    const uint32_t groups = num_ipus / size;
    if (device_id < first_id + groups) return IpuRange{(device_id - first_id) * size, size};
    first_id += groups;
  }
  return absl::OutOfRangeError(absl::StrCat("device ", device_id, " does not exist; ", num_ipus,
                                            " IPUs have devices 0 to ",
                                            NumDeviceIds(num_ipus) - 1));
}

absl::StatusOr<uint32_t> DeviceOfIpus(uint32_t num_ipus, IpuRange range) {
  if (!IsPowerOfTwo(range.count) || range.first % range.count != 0 ||
      uint64_t{range.first} + range.count > num_ipus) {
    return absl::InvalidArgumentError(absl::StrCat("IPUs ", range.first, " to ",
                                                   range.first + range.count - 1,
                                                   " are not a device of ", num_ipus, " IPUs"));
  }
  return 2 * num_ipus - 2 * num_ipus / range.count + range.first / range.count;
}

std::string BoardSerial(uint32_t machine_index, uint32_t ipu_number) {
  return absl::StrFormat("%04d.%04d.%07d", 100 + machine_index / 100, ipu_number >= 2 ? 2 : 1,
                         8204521 + machine_index);
}

}  // namespace vpod::arch
