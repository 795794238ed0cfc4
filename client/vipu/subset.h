// Which IPUs of its GCD a configuration has. A container manager hands the IPUs of one partition
// out to several containers, each with a file that names its own (docs/formats.md).
//
// The IPUs of a configuration are numbered 0 … n-1 in the order of their positions in the GCD. If
// they are an aligned group of it, they have the devices of the 2N-1 rule
// (device/arch/device_id.h); others are used one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/vipu/ipuof_config.h"
#include "device/arch/device_id.h"

namespace vpod::vipu {

class Subset {
 public:
  // Positions in a GCD of `gcd_ipus` IPUs, ascending.
  Subset(std::vector<uint32_t> positions, uint32_t gcd_ipus);
  explicit Subset(const ActivePartition& partition);

  // Whether it has devices of several IPUs.
  bool is_group() const { return is_group_; }
  // Whether these are all IPUs of the GCD.
  bool is_whole() const { return positions_.size() == gcd_ipus_; }
  uint32_t num_devices() const;
  // The IPUs of a device, by their number here. OutOfRange names the ids there are.
  absl::StatusOr<arch::IpuRange> IpusOf(uint32_t device_id) const;
  // Returns the device's id in the GCD, by which the agents know it. OutOfRange as above.
  absl::StatusOr<uint32_t> GcdDevice(uint32_t device_id) const;
  // The number here of the IPU at a position in the GCD; none: it belongs to others.
  std::optional<uint32_t> NumberOf(uint32_t position) const;

 private:
  const std::vector<uint32_t> positions_;
  const uint32_t gcd_ipus_;
  const bool is_group_;
};

}  // namespace vpod::vipu
