#include "client/vipu/subset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::vipu {
namespace {

std::vector<uint32_t> PositionsOf(const vipuuser::PartitionConfig& config) {
  std::vector<uint32_t> positions;
  for (const vipuuser::IpuofDevice& device : config.devices())
    positions.push_back(device.routing_id());
  return positions;
}

bool IsGroup(const std::vector<uint32_t>& positions, uint32_t gcd_ipus) {
  const auto count = static_cast<uint32_t>(positions.size());
  return count > 0 && positions.back() == positions.front() + count - 1 &&
         arch::DeviceOfIpus(gcd_ipus, {positions.front(), count}).ok();
}

}  // namespace

Subset::Subset(std::vector<uint32_t> positions, uint32_t gcd_ipus)
    : positions_(std::move(positions)),
      gcd_ipus_(gcd_ipus),
      is_group_(IsGroup(positions_, gcd_ipus)) {}

Subset::Subset(const ActivePartition& partition)
    : Subset(PositionsOf(partition.config), partition.gcd_ipus) {}

uint32_t Subset::num_devices() const {
  const auto count = static_cast<uint32_t>(positions_.size());
  return is_group_ ? arch::NumDeviceIds(count) : count;
}

absl::StatusOr<arch::IpuRange> Subset::IpusOf(uint32_t device_id) const {
  const auto count = static_cast<uint32_t>(positions_.size());
  if (is_group_) return arch::IpusOfDevice(count, device_id);
  if (device_id < count) return arch::IpuRange{device_id, 1};
  return absl::OutOfRangeError(
      absl::StrCat("device ", device_id, " does not exist; ", count,
                   " IPUs that are not a device of their GCD have devices 0 to ", count - 1));
}

absl::StatusOr<uint32_t> Subset::GcdDevice(uint32_t device_id) const {
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range, IpusOf(device_id));
  if (range.count == 1) return positions_[range.first];
  return arch::DeviceOfIpus(gcd_ipus_, {positions_[range.first], range.count});
}

std::optional<uint32_t> Subset::NumberOf(uint32_t position) const {
  const auto found = std::lower_bound(positions_.begin(), positions_.end(), position);
  if (found == positions_.end() || *found != position) return std::nullopt;
  return static_cast<uint32_t>(found - positions_.begin());
}

}  // namespace vpod::vipu
