#include "tools/link_test/partition_links.h"

#include "client/ipuof/lease.h"
#include "device/base/status.h"

namespace vpod::tools {

absl::StatusOr<std::vector<telemetry::v1::LinkTelemetry>> LinksOf(
    const vipu::ActivePartition& partition) {
  std::vector<telemetry::v1::LinkTelemetry> links;
  const auto num_ipus = static_cast<uint32_t>(partition.config.devices_size());
  for (const std::string& endpoint : ipuof::EndpointsOf(partition, 0, num_ipus)) {
    VPOD_ASSIGN_OR_RETURN(const auto reply, vipu::GetLinks(endpoint, partition.partition_id));
    links.insert(links.end(), reply.links().begin(), reply.links().end());
  }
  return links;
}

}  // namespace vpod::tools
