#include "client/ipuof/device_events.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/ipuof/telemetry.h"

namespace vpod::ipuof {
namespace {

// Ids of those IPUs of `range` that are silent or report an error.
std::set<uint32_t> Culprits(const vipu::ActivePartition& partition, arch::IpuRange range) {
  std::vector<MonitoredPartition> monitored = {ToMonitor(partition)};
  ReadTelemetry(monitored);  // who does not answer is silent
  std::set<uint32_t> culprits;
  const auto add = [&](uint32_t id) {
    if (id >= range.first && id < range.first + range.count) culprits.insert(id);
  };
  for (const auto& device : monitored[0].silent) add(device.routing_id());
  for (const auto& ipu : monitored[0].ipus) {
    if (HasError(ipu)) add(ipu.routing_id());
  }
  return culprits;
}

std::string HostsOf(const vipu::ActivePartition& partition, const std::set<uint32_t>& ipus) {
  std::set<std::string> hosts;
  for (const uint32_t ipu : ipus)
    hosts.insert(partition.config.devices(static_cast<int>(ipu)).ip());
  return absl::StrJoin(hosts, ",");
}

std::set<uint32_t> All(arch::IpuRange range) {
  std::set<uint32_t> ipus;
  for (uint32_t i = 0; i < range.count; ++i) ipus.insert(range.first + i);
  return ipus;
}

}  // namespace

DeviceEvents::DeviceEvents(const vipu::ActivePartition& partition, arch::IpuRange ipus)
    : directory_(vipu::Environment(kRecordVariable)), partition_(partition), ipus_(ipus) {}

void DeviceEvents::Attached(uint32_t device_id) {
  if (directory_.empty()) return;
  base::MutexLock lock(mutex_);
  Write(EventSeverity::kInfo,
        {{event_key::kDescription, absl::StrCat("attached to device ", device_id, " of partition ",
                                                partition_.partition_id)}});
}

void DeviceEvents::Failed(const absl::Status& status) {
  if (directory_.empty()) return;
  const EventSeverity severity =
      absl::IsUnavailable(status) ? EventSeverity::kFatal : EventSeverity::kError;
  base::MutexLock lock(mutex_);
  if (failure_.has_value() && *failure_ >= severity) return;
  failure_ = severity;
  const std::set<uint32_t> culprits = Culprits(partition_, ipus_);
  Write(severity, {{event_key::kSpecificIpus, absl::StrJoin(culprits, ",")},
                   {event_key::kSpecificIpuHosts, HostsOf(partition_, culprits)},
                   {event_key::kDescription, std::string(status.message())}});
}

void DeviceEvents::Write(EventSeverity severity, EventRecord record) {
  const std::set<uint32_t> attached = All(ipus_);
  record[event_key::kAttachedIpus] = absl::StrJoin(attached, ",");
  record[event_key::kAttachedIpuHosts] = HostsOf(partition_, attached);
  record[event_key::kPartition] = partition_.partition_id;
  const absl::Status written = WriteEventRecord(directory_, severity, std::move(record));
  if (!written.ok())
    std::fprintf(stderr, "warning: no event record: %s\n", std::string(written.message()).c_str());
}

}  // namespace vpod::ipuof
