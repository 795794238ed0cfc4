#include "tools/gc-monitor/partitions.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/ipuof/lease.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"

namespace vpod::tools {
namespace {

absl::StatusOr<MonitoredPartition> Look(const vipu::ActivePartition& active) {
  MonitoredPartition partition;
  partition.id = active.partition_id;
  partition.gcd = active.gcd;
  partition.show_gcd = active.gcd_was_given || active.num_gcds > 1;
  const auto reconfigurable = active.config.attributes().find("Reconfigurable");
  partition.reconfigurable =
      reconfigurable != active.config.attributes().end() && reconfigurable->second == "true";
  const auto num_ipus = static_cast<uint32_t>(active.config.devices_size());
  for (const std::string& endpoint : ipuof::EndpointsOf(active, 0, num_ipus)) {
    VPOD_ASSIGN_OR_RETURN(const auto telemetry, vipu::GetTelemetry(endpoint, active.partition_id));
    for (const auto& ipu : telemetry.ipus()) {
      if (ipu.gcd_id() == active.gcd) partition.ipus.push_back(ipu);
    }
  }
  std::sort(partition.ipus.begin(), partition.ipus.end(),
            [](const auto& a, const auto& b) { return a.routing_id() < b.routing_id(); });
  if (partition.ipus.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition ", active.partition_id, ": GCD ", active.gcd, " does not exist."));
  }
  return partition;
}

}  // namespace

absl::StatusOr<std::vector<MonitoredPartition>> LookAtPartitions(bool all) {
  std::vector<MonitoredPartition> result;
  const auto active = vipu::FindActivePartition();
  if (active.ok()) {
    VPOD_ASSIGN_OR_RETURN(MonitoredPartition partition, Look(*active));
    result.push_back(std::move(partition));
  } else if (!all) {
    return active.status();
  }
  if (!all) return result;
  VPOD_ASSIGN_OR_RETURN(const vipu::ClientConfig config, vipu::DiscoverConfig({}));
  vipu::Client client(config, std::chrono::seconds(4));
  VPOD_ASSIGN_OR_RETURN(const auto partitions, client.ListPartitions());
  for (const vipuuser::Partition& listed : partitions) {
    if (listed.status().state() != vipuuser::PS_ACTIVE) continue;
    const auto partition = client.GetPartition(listed.requirements().id());
    if (absl::IsNotFound(partition.status())) continue;  // removed meanwhile
    VPOD_RETURN_IF_ERROR(partition.status());
    for (uint32_t gcd = 0; gcd < static_cast<uint32_t>(partition->gcds_size()); ++gcd) {
      if (active.ok() && partition->requirements().id() == active->partition_id &&
          gcd == active->gcd)
        continue;
      VPOD_ASSIGN_OR_RETURN(MonitoredPartition other,
                            Look(vipu::Describe(partition->gcds(static_cast<int>(gcd)))));
      other.active = false;
      result.push_back(std::move(other));
    }
  }
  if (result.empty()) return active.status();
  return result;
}

}  // namespace vpod::tools
