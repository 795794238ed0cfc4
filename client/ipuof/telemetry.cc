#include "client/ipuof/telemetry.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/ipuof/attributes.h"
#include "client/ipuof/lease.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"

namespace vpod::ipuof {

using telemetry::v1::IpuTelemetry;

MonitoredPartition ToMonitor(vipu::ActivePartition description) {
  MonitoredPartition partition;
  partition.id = description.partition_id;
  partition.gcd = description.gcd;
  partition.show_gcd = description.gcd_was_given || description.num_gcds > 1;
  const auto& attributes = description.config.attributes();
  const auto reconfigurable = attributes.find("Reconfigurable");
  partition.reconfigurable = reconfigurable != attributes.end() && reconfigurable->second == "true";
  partition.description = std::move(description);
  return partition;
}

absl::StatusOr<std::vector<MonitoredPartition>> FindPartitions(bool all) {
  std::vector<MonitoredPartition> result;
  auto active = vipu::FindActivePartition();
  if (active.ok()) {
    result.push_back(ToMonitor(*active));
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
      result.push_back(ToMonitor(vipu::Describe(partition->gcds(static_cast<int>(gcd)))));
      result.back().active = false;
    }
  }
  if (result.empty()) return active.status();
  return result;
}

namespace {

absl::Status ReadTelemetry(MonitoredPartition& partition, vipu::AgentConnections& agents) {
  const vipu::ActivePartition& description = partition.description;
  partition.ipus.clear();
  partition.silent.clear();
  absl::Status first_error;
  const auto num_ipus = static_cast<uint32_t>(description.config.devices_size());
  for (const std::string& endpoint : EndpointsOf(description, 0, num_ipus)) {
    const auto telemetry = vipu::GetTelemetry(endpoint, partition.id, &agents);
    first_error.Update(telemetry.status());
    if (!telemetry.ok()) continue;
    for (const IpuTelemetry& ipu : telemetry->ipus()) {
      if (ipu.gcd_id() == partition.gcd) partition.ipus.push_back(ipu);
    }
  }
  std::sort(partition.ipus.begin(), partition.ipus.end(),
            [](const auto& a, const auto& b) { return a.routing_id() < b.routing_id(); });
  std::set<uint32_t> heard;
  for (const IpuTelemetry& ipu : partition.ipus) heard.insert(ipu.routing_id());
  for (const vipuuser::IpuofDevice& device : description.config.devices()) {
    if (!heard.contains(device.routing_id())) partition.silent.push_back(device);
  }
  if (first_error.ok() && partition.ipus.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition ", partition.id, ": GCD ", partition.gcd, " does not exist."));
  }
  return first_error;
}

}  // namespace

absl::Status ReadTelemetry(MonitoredPartition& partition) {
  vipu::AgentConnections agents;
  return ReadTelemetry(partition, agents);
}

absl::StatusOr<std::vector<MonitoredPartition>> LookAtPartitions(bool all) {
  VPOD_ASSIGN_OR_RETURN(auto partitions, FindPartitions(all));
  vipu::AgentConnections agents;
  std::vector<MonitoredPartition> seen;
  absl::Status removed;
  for (MonitoredPartition& partition : partitions) {
    const absl::Status status = ReadTelemetry(partition, agents);
    if (absl::IsNotFound(status)) {  // removed meanwhile, or its file is older than the agent
      removed = absl::FailedPreconditionError(status.message());
      continue;
    }
    VPOD_RETURN_IF_ERROR(status);
    seen.push_back(std::move(partition));
  }
  if (seen.empty()) return removed;
  return seen;
}

absl::StatusOr<const IpuTelemetry*> FirstIpu(const MonitoredPartition& partition,
                                             uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(
      const auto range,
      arch::IpusOfDevice(static_cast<uint32_t>(partition.ipus.size()), device_id));
  return &partition.ipus[range.first];
}

DeviceAttributes AttributesOf(const IpuTelemetry& ipu, uint32_t device_id) {
  DeviceAttributes attributes(ipu.attributes().begin(), ipu.attributes().end());
  std::sort(attributes.begin(), attributes.end());
  attributes.insert(attributes.begin(), {{"id", absl::StrCat(device_id)}, {"target", "Fabric"}});
  return attributes;
}

absl::StatusOr<DeviceAttributes> AttributesOf(const MonitoredPartition& partition,
                                              uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const IpuTelemetry* ipu, FirstIpu(partition, device_id));
  return AttributesOf(*ipu, device_id);
}

bool HasError(const IpuTelemetry& ipu) {
  const std::string state = Attribute(ipu, "ipu error state");
  return !state.empty() && state != "no errors";
}

}  // namespace vpod::ipuof
