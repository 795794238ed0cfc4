// Links as users see them: counters of what programs move, and telemetry.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

// "NLC_E_0A" of IPU 3, from "IPU3.NLC_E_0A".
std::string ShortName(uint32_t port) {
  const std::string name = arch::PortName(port);
  return name.substr(name.find('.') + 1);
}

}  // namespace

std::vector<std::vector<MachineTraffic>> Agent::TrafficOfLease(
    const Lease& lease, const program::Executable& executable) {
  std::shared_ptr<const Wiring> wiring;
  uint32_t first_ipu = 0;  // of the lease, among the partition's
  {
    base::MutexLock lock(mutex_);
    const Partition* partition = PartitionOf(lease);
    if (partition == nullptr || partition->wiring == nullptr) return {};
    // The partition has another shape already, so the lease is about to end.
    if (partition->spec.config_generation() != lease.open.generation()) return {};
    wiring = partition->wiring;
    const auto& gcds = partition->gcds;
    const uint32_t gcd = lease.open.gcd_id();
    for (uint32_t i = 0; i < gcd; ++i) first_ipu += static_cast<uint32_t>(gcds[i].size());
    const auto range =
        arch::IpusOfDevice(static_cast<uint32_t>(gcds[gcd].size()), lease.open.device_id());
    if (!range.ok()) return {};
    first_ipu += range->first;
  }
  std::vector<bool> is_here;
  for (const std::string& host : wiring->hosts())
    is_here.push_back(machine_by_host_.contains(host));
  const ipuof::v1::JobMember& job = lease.open.job();
  const uint32_t ipus = executable.ipus_per_replica();
  // Replicas lie one after the other: those that fit before the lease's, and from there on.
  const uint32_t before = std::min(job.replica_offset(), (first_ipu + ipus - 1) / ipus);
  const uint32_t from_here = static_cast<uint32_t>(wiring->ipus().size()) - first_ipu;
  const Replicas known = {job.replica_offset() - before,
                          job.replica_offset() + (from_here + ipus - 1) / ipus};
  std::vector<std::vector<MachineTraffic>> programs;
  for (uint32_t program = 0; program < static_cast<uint32_t>(executable.proto().programs_size());
       ++program) {
    programs.push_back(TrafficOf(*wiring, FlowsOf(executable, program, job, known),
                                 job.replica_offset() * ipus, job.local_replicas() * ipus,
                                 first_ipu, is_here));
    for (MachineTraffic& traffic : programs.back())
      traffic.machine =
          static_cast<uint32_t>(machine_by_host_.find(wiring->hosts()[traffic.machine])->second);
  }
  return programs;
}

void Agent::CountTraffic(const Loaded& loaded, uint32_t program) {
  if (program >= loaded.traffic.size()) return;
  for (const MachineTraffic& traffic : loaded.traffic[program])
    machines_[traffic.machine]->links().Count(traffic.ports);
}

telemetry::v1::LinkTelemetry Agent::DescribeLink(const Wiring& wiring,
                                                 const arch::Link& link) const {
  const auto machine_of = [&](const arch::LinkEnd& end) -> machine::Machine* {
    if (end.machine == arch::LinkEnd::kSwitch) return nullptr;
    const auto it = machine_by_host_.find(wiring.hosts()[end.machine]);
    return it == machine_by_host_.end() ? nullptr : machines_[it->second].get();
  };
  machine::LinkReading worse = machine_of(link.near)->links().Read(link.near.port);
  telemetry::v1::LinkTelemetry result;
  result.set_tx_bytes(worse.counters.tx_bytes);
  result.set_rx_bytes(worse.counters.rx_bytes);
  result.set_correctable_errors(worse.counters.correctable_errors);
  result.set_uncorrectable_errors(worse.counters.uncorrectable_errors);
  // A link is as good as the worse of its ends, as far as this process holds them.
  if (machine::Machine* far = machine_of(link.far)) {
    const machine::LinkReading other = far->links().Read(link.far.port);
    if (other.lanes() < worse.lanes() || worse.state() == "up") worse = other;
  }
  const size_t near = machine_by_host_.at(wiring.hosts()[link.near.machine]);
  result.set_data_ip(machines_[near]->identity().data_ip);
  const bool is_ipu_link = link.kind == arch::LinkKind::kIpuLink;
  result.set_host(wiring.hosts()[link.near.machine]);
  if (is_ipu_link) result.set_pcie_id(arch::IpuOfPort(link.near.port));
  result.set_name(ShortName(link.near.port));
  if (link.far.machine == arch::LinkEnd::kSwitch) {
    result.set_peer_name(absl::StrCat("switch port ", link.far.port));
  } else {
    result.set_peer_host(wiring.hosts()[link.far.machine]);
    if (is_ipu_link) result.set_peer_pcie_id(arch::IpuOfPort(link.far.port));
    result.set_peer_name(ShortName(link.far.port));
  }
  result.set_kind(std::string(arch::LinkKindName(link.kind)));
  result.set_state(std::string(worse.state()));
  if (is_ipu_link) {
    result.set_gen(4);
    result.set_lanes(worse.lanes());
  }
  return result;
}

absl::StatusOr<telemetry::v1::GetPartitionLinksReply> Agent::GetLinks(
    absl::string_view partition_id) {
  std::shared_ptr<const Wiring> wiring;
  {
    base::MutexLock lock(mutex_);
    const auto it = partitions_.find(std::string(partition_id));
    if (it == partitions_.end()) {
      return absl::NotFoundError(absl::StrCat("partition ", partition_id, " is not on this agent"));
    }
    wiring = it->second->wiring;
  }
  telemetry::v1::GetPartitionLinksReply reply;
  if (wiring == nullptr) return reply;
  for (uint32_t machine = 0; machine < wiring->shape().machines; ++machine) {
    if (!machine_by_host_.contains(wiring->hosts()[machine])) continue;
    const std::set<uint32_t> routed = wiring->RoutedPorts(machine);
    for (const arch::Link& link : wiring->LinksOf(machine)) {
      *reply.add_links() = DescribeLink(*wiring, link);
      reply.mutable_links()->rbegin()->set_routed(routed.contains(link.near.port));
    }
  }
  return reply;
}

}  // namespace vpod::agent
