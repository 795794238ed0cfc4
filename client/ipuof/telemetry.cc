#include "client/ipuof/telemetry.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/ipuof/agent_connection.h"
#include "client/ipuof/attributes.h"
#include "client/ipuof/lease.h"
#include "client/sdk_log/sdk_log.h"
#include "client/vipu/subset.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"

namespace vpod::ipuof {

using telemetry::v1::IpuTelemetry;

const char* MonitoredPartition::mark() const {
  if (description.releasing) return " [releasing]";
  if (!description.usable.ok()) return " [error]";
  return is_active() ? " [active]" : "";
}

uint32_t MonitoredPartition::num_devices() const {
  const auto count = static_cast<uint32_t>(num_ipus());
  return has_groups ? arch::NumDeviceIds(count) : count;
}

MonitoredPartition ToMonitor(vipu::ActivePartition description) {
  MonitoredPartition partition;
  partition.id = description.partition_id;
  partition.gcd = description.gcd;
  partition.show_gcd = description.gcd_was_given || description.num_gcds > 1;
  partition.has_groups = vipu::Subset(description).is_group();
  const auto& attributes = description.config.attributes();
  const auto reconfigurable = attributes.find("Reconfigurable");
  partition.reconfigurable = reconfigurable != attributes.end() && reconfigurable->second == "true";
  partition.description = std::move(description);
  return partition;
}

namespace {

void Warn(const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); }

// All but the active ones, as their controller, or else ours, shows them.
absl::StatusOr<std::vector<MonitoredPartition>> FindOthers(
    const std::vector<MonitoredPartition>& active) {
  const std::string controller = active.empty() ? std::string() : active[0].description.controller;
  VPOD_ASSIGN_OR_RETURN(vipu::ClientConfig config, vipu::DiscoverConfig({.host = controller}));
  if (!controller.empty()) config.source = active[0].description.file;
  vipu::Client client(config, std::chrono::seconds(4));
  VPOD_ASSIGN_OR_RETURN(const auto partitions, client.ListPartitions(/*with_devices=*/true));
  std::vector<MonitoredPartition> others;
  for (const vipuuser::Partition& partition : partitions) {
    const vipuuser::PartitionState state = partition.status().state();
    if (state == vipuuser::PS_PENDING) continue;
    for (const vipuuser::PartitionConfig& gcd : partition.gcds()) {
      MonitoredPartition other = ToMonitor(vipu::Describe(gcd, config.address()));
      const auto is_it = [&](const auto& one) {
        return one.id == other.id && one.gcd == other.gcd;
      };
      if (std::any_of(active.begin(), active.end(), is_it)) continue;
      other.active = false;
      other.description.releasing = state == vipuuser::PS_RELEASING;
      if (state != vipuuser::PS_ACTIVE)
        other.description.usable = absl::FailedPreconditionError(partition.status().message());
      others.push_back(std::move(other));
    }
  }
  return others;
}

// `lenient`: the active one is enough when the others cannot be found.
absl::StatusOr<std::vector<MonitoredPartition>> Find(bool all, bool lenient) {
  auto active = vipu::FindGcdsToInspect();
  if (!active.ok() && !all) return active.status();
  std::vector<MonitoredPartition> found;
  if (active.ok())
    std::transform(active->begin(), active->end(), std::back_inserter(found), ToMonitor);
  if (!all) return found;
  auto others = FindOthers(found);
  if (!others.ok() && !(lenient && active.ok())) return others.status();
  if (others.ok()) {
    std::move(others->begin(), others->end(), std::back_inserter(found));
  } else {
    Warn(absl::StrCat("only the active partition is shown: ", others.status().message()));
  }
  if (found.empty()) return active.status();
  return found;
}

}  // namespace

absl::StatusOr<std::vector<MonitoredPartition>> FindPartitions(bool all) {
  return Find(all, /*lenient=*/false);
}

std::vector<vipu::AgentQuery> AgentsOf(const vipu::ActivePartition& partition) {
  std::vector<vipu::AgentQuery> agents;
  const auto num_ipus = static_cast<uint32_t>(partition.config.devices_size());
  for (std::string& endpoint : EndpointsOf(partition, 0, num_ipus))
    agents.push_back({std::move(endpoint), partition.partition_id, partition.controller});
  return agents;
}

absl::Status WithAgent(const vipu::ActivePartition& partition, const std::string& endpoint,
                       const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(
      absl::StrCat(NameOfAgent(partition, endpoint), " ", status.message()));
}

namespace {

using Answers = vipu::AgentAnswers<telemetry::v1::GetPartitionTelemetryReply>;

absl::Status TakeTelemetry(const Answers& answers, MonitoredPartition& partition) {
  partition.ipus.clear();
  partition.silent.clear();
  const vipu::Subset subset(partition.description);
  const v1::ProcessInfo self = ThisProcess();
  absl::Status first_error;
  for (const vipu::AgentQuery& agent : AgentsOf(partition.description)) {
    const auto& telemetry = answers.at(agent);
    if (first_error.ok())
      first_error = WithAgent(partition.description, agent.endpoint, telemetry.status());
    if (!telemetry.ok()) continue;
    for (const IpuTelemetry& ipu : telemetry->ipus()) {
      const auto number = subset.NumberOf(ipu.routing_id());
      if (ipu.gcd_id() != partition.gcd || !number.has_value()) continue;
      IpuTelemetry& seen = partition.ipus.emplace_back(ipu);
      seen.set_routing_id(*number);
      const v1::ProcessInfo& process = ipu.process();
      if (ipu.attached() &&
          (process.host() != self.host() || process.pid_namespace() != self.pid_namespace()))
        (*seen.mutable_attributes())[kProcessNamespace] = kOtherNamespace;
    }
  }
  std::sort(partition.ipus.begin(), partition.ipus.end(),
            [](const auto& a, const auto& b) { return a.routing_id() < b.routing_id(); });
  std::set<uint32_t> heard;
  for (const IpuTelemetry& ipu : partition.ipus) heard.insert(ipu.routing_id());
  for (uint32_t number = 0; const auto& device : partition.description.config.devices()) {
    if (!heard.contains(number)) partition.silent.emplace_back(device).set_routing_id(number);
    ++number;
  }
  if (first_error.ok() && partition.ipus.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition ", partition.id, ": GCD ", partition.gcd, " does not exist."));
  }
  return first_error;
}

}  // namespace

std::vector<absl::Status> ReadTelemetry(std::vector<MonitoredPartition>& partitions) {
  std::set<vipu::AgentQuery> queries;
  for (const MonitoredPartition& partition : partitions) {
    const auto agents = AgentsOf(partition.description);
    queries.insert(agents.begin(), agents.end());
  }
  for (const vipu::AgentQuery& agent : queries) {
    SdkLog(LogModule::kIpuof, LogLevel::kDebug,
           absl::StrCat("Reading telemetry of partition ", agent.partition_id, " from ",
                        agent.endpoint));
  }
  const Answers answers = vipu::GetTelemetry(queries);
  std::vector<absl::Status> statuses;
  for (MonitoredPartition& partition : partitions)
    statuses.push_back(TakeTelemetry(answers, partition));
  return statuses;
}

namespace {

// Reads them, and leaves out those of which nobody knows.
absl::StatusOr<std::vector<MonitoredPartition>> Seen(std::vector<MonitoredPartition> partitions,
                                                     bool all) {
  VPOD_RETURN_IF_ERROR(CheckSdkLog());
  const std::vector<absl::Status> statuses = ReadTelemetry(partitions);
  std::vector<MonitoredPartition> seen;
  absl::Status why_none;
  std::set<std::string> warnings;  // once for all GCDs of a partition
  for (size_t i = 0; i < partitions.size(); ++i) {
    const absl::Status& status = statuses[i];
    if (absl::IsNotFound(status)) {  // removed meanwhile, or its file is older than the agent
      why_none.Update(absl::FailedPreconditionError(status.message()));
      continue;
    }
    if (!status.ok() && !all) return status;
    why_none.Update(status);
    if (!status.ok())
      warnings.insert(absl::StrCat("partition ", partitions[i].id, ": ", status.message()));
    if (!partitions[i].ipus.empty()) seen.push_back(std::move(partitions[i]));
  }
  if (seen.empty()) return why_none;
  for (const std::string& warning : warnings) Warn(warning);
  return seen;
}

}  // namespace

absl::StatusOr<std::vector<MonitoredPartition>> LookAtPartitions(bool all) {
  VPOD_ASSIGN_OR_RETURN(auto partitions, Find(all, /*lenient=*/true));
  return Seen(std::move(partitions), all);
}

absl::StatusOr<MonitoredPartition> LookAtActiveGcd() {
  VPOD_ASSIGN_OR_RETURN(vipu::ActivePartition active, vipu::FindPartitionToInspect());
  std::vector<MonitoredPartition> one = {ToMonitor(std::move(active))};
  VPOD_ASSIGN_OR_RETURN(one, Seen(std::move(one), /*all=*/false));
  return std::move(one.front());
}

absl::StatusOr<arch::IpuRange> IpusOf(const MonitoredPartition& partition, uint32_t device_id) {
  if (!partition.has_groups) return vipu::Subset(partition.description).IpusOf(device_id);
  return arch::IpusOfDevice(static_cast<uint32_t>(partition.num_ipus()), device_id);
}

absl::StatusOr<const IpuTelemetry*> FirstIpu(const MonitoredPartition& partition,
                                             uint32_t device_id) {
  VPOD_ASSIGN_OR_RETURN(const arch::IpuRange range, IpusOf(partition, device_id));
  for (const IpuTelemetry& ipu : partition.ipus) {
    if (ipu.routing_id() == range.first) return &ipu;
  }
  return absl::UnavailableError(
      absl::StrCat("the agent of device ", device_id, " says nothing of it"));
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
  DeviceAttributes attributes = AttributesOf(*ipu, device_id);
  // The other keys are those of its first IPU.
  if (device_id >= partition.num_ipus()) attributes[1].second = "Multi IPU";
  return attributes;
}

bool HasError(const IpuTelemetry& ipu) {
  const std::string state = Attribute(ipu, "ipu error state");
  return !state.empty() && state != "no errors";
}

}  // namespace vpod::ipuof
