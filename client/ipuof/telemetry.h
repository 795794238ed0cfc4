// Telemetry of partitions and their IPUs from the agents, without a lease: the source of the gc-*
// tools and of gcipuinfo.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/vipu/agent_queries.h"
#include "client/vipu/ipuof_config.h"
#include "device/arch/device_id.h"
#include "proto/telemetry/v1/telemetry.pb.h"

namespace vpod::ipuof {

// A GCD of a partition with the telemetry of its IPUs.
struct MonitoredPartition {
  std::string id;
  bool active = true;  // the one this shell uses
  bool reconfigurable = true;
  bool has_groups = true;  // devices of several IPUs; not for IPUs that are used one by one
  bool show_gcd = false;   // IPUOF_VIPU_API_GCD_ID is set, or there are several GCDs
  uint32_t gcd = 0;
  vipu::ActivePartition description;  // where its IPUs are
  // By device id: their `routing_id` counts the IPUs of the configuration, which may have some of
  // the GCD's only.
  std::vector<telemetry::v1::IpuTelemetry> ipus;
  // IPUs without telemetry: their agent does not answer, or does not know them.
  std::vector<vipuuser::IpuofDevice> silent;

  size_t num_ipus() const { return ipus.size() + silent.size(); }
  uint32_t num_devices() const;
  // Whether programs of this shell can use it.
  bool is_active() const { return active && description.usable.ok(); }
  // " [active]" behind the name of the one that this shell uses, " [error]" of one in ERROR.
  const char* mark() const;
};

// The GCDs of the active partition, be it in ERROR; with `all`, the others follow that its
// controller shows, or else the one of vipu::DiscoverConfig. Without an active one, `all` gives
// those there are. No agent is asked yet. NotFound: no partition; FailedPrecondition: the active
// one is PENDING; Unavailable: the controller does not answer.
absl::StatusOr<std::vector<MonitoredPartition>> FindPartitions(bool all);

// Unread, from a configuration.
MonitoredPartition ToMonitor(vipu::ActivePartition description);

// Fills `ipus` and `silent` of all by asking their agents, all at once and for 4 s at most. By
// partition: NotFound, the agents do not have it any more; Unavailable, not all of them answer, and
// what the others say is filled in; InvalidArgument, it has no such GCD.
std::vector<absl::Status> ReadTelemetry(std::vector<MonitoredPartition>& partitions);

// FindPartitions, all of them read, for tools that show them. FailedPrecondition: no agent has the
// partition any more; Unavailable: an agent does not answer. With `all`, those are errors only when
// nobody has answered: what is missing, be it IPUs, partitions or the word of the controller, is a
// warning on stderr.
absl::StatusOr<std::vector<MonitoredPartition>> LookAtPartitions(bool all);

// As that, for tools that need one GCD: NotFound says how to choose one.
absl::StatusOr<MonitoredPartition> LookAtActiveGcd();

// The agents of a partition, by their first IPU.
std::vector<vipu::AgentQuery> AgentsOf(const vipu::ActivePartition& partition);

// The status of such a query, with the agent's name if it does not answer.
absl::Status WithAgent(const vipu::ActivePartition& partition, const std::string& endpoint,
                       const absl::Status& status);

// The IPUs of a device, by their ids; OutOfRange names the devices there are.
absl::StatusOr<arch::IpuRange> IpusOf(const MonitoredPartition& partition, uint32_t device_id);
// The first of them.
absl::StatusOr<const telemetry::v1::IpuTelemetry*> FirstIpu(const MonitoredPartition& partition,
                                                            uint32_t device_id);

// Attributes of a device (spec/gc-tools.md 4): id and target, then those of its first IPU, sorted.
using DeviceAttributes = std::vector<std::pair<std::string, std::string>>;
DeviceAttributes AttributesOf(const telemetry::v1::IpuTelemetry& ipu, uint32_t device_id);
absl::StatusOr<DeviceAttributes> AttributesOf(const MonitoredPartition& partition,
                                              uint32_t device_id);

// Whether the IPU reports an error: SoC errors and memory parity errors, until it is reset.
bool HasError(const telemetry::v1::IpuTelemetry& ipu);

}  // namespace vpod::ipuof
