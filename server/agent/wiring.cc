#include "server/agent/wiring.h"

#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/base/status.h"

namespace vpod::agent {

absl::StatusOr<Wiring> Wiring::Create(const vipuagent::AgentPartition& partition) {
  std::map<uint32_t, std::vector<std::string>> hosts_of_ild;
  std::map<std::string, bool> seen;
  for (const vipuagent::Gcd& gcd : partition.gcds()) {
    for (const vipuagent::Slice& slice : gcd.slices()) {
      if (seen.try_emplace(slice.machine_host(), true).second)
        hosts_of_ild[slice.ild()].push_back(slice.machine_host());
    }
  }
  Wiring wiring;
  std::map<std::string, uint32_t> machine_of;
  for (const auto& [ild, hosts] : hosts_of_ild) {
    if (hosts.size() != hosts_of_ild.begin()->second.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("partition ", partition.id(), " has IPU-Link domains of different sizes"));
    }
    for (const std::string& host : hosts) {
      machine_of[host] = static_cast<uint32_t>(wiring.hosts_.size());
      wiring.hosts_.push_back(host);
    }
  }
  const auto topology = partition.target_options().find("ipuLinkTopology");
  VPOD_ASSIGN_OR_RETURN(
      wiring.shape_,
      arch::MakeShape(
          static_cast<uint32_t>(wiring.hosts_.size()), static_cast<uint32_t>(hosts_of_ild.size()),
          topology == partition.target_options().end() ? "mesh" : topology->second,
          partition.cluster_topology().empty() ? "none" : partition.cluster_topology()));
  if (!partition.ild_routing().empty()) {
    VPOD_ASSIGN_OR_RETURN(wiring.routing_, arch::FindRouting(partition.ild_routing()));
  }
  wiring.contained_.resize(wiring.hosts_.size() * arch::kIpusPerMachine);
  for (const vipuagent::Gcd& gcd : partition.gcds()) {
    for (const vipuagent::Slice& slice : gcd.slices()) {
      for (uint32_t i = 0; i < slice.num_ipus(); ++i) {
        const uint32_t position = arch::IpuNumberOfPosition(slice.first_pcie_id() - i);
        wiring.ipus_.push_back(machine_of[slice.machine_host()] * arch::kIpusPerMachine + position);
        wiring.contained_[wiring.ipus_.back()] = true;
      }
    }
  }
  return wiring;
}

std::vector<arch::Link> Wiring::LinksOf(uint32_t machine) const {
  const auto contains = [this](const arch::LinkEnd& end) {
    return Contains(end.machine * arch::kIpusPerMachine +
                    arch::IpuNumberOfPosition(arch::IpuOfPort(end.port)));
  };
  std::vector<arch::Link> links;
  arch::ForEachPort(shape_, machine, [&](const arch::Link& link) {
    const bool ours =
        link.kind == arch::LinkKind::kGwLink ||
        (link.kind == arch::LinkKind::kIpuLink && contains(link.near) && contains(link.far));
    if (ours) links.push_back(link);
  });
  return links;
}

// Ways lead from rung to rung, so those between neighbouring machines show all; and every IPU
// reaches its gateway.
std::set<uint32_t> Wiring::RoutedPorts(uint32_t machine) const {
  const uint32_t per_ild = shape_.machines_per_ild(), first = machine / per_ild * per_ild;
  std::set<uint32_t> near;
  for (uint32_t step : {per_ild - 1, 0u, 1u}) {
    const uint32_t neighbour = first + (machine - first + step) % per_ild;
    for (uint32_t i = 0; i < arch::kIpusPerMachine; ++i) {
      const uint32_t ipu = neighbour * arch::kIpusPerMachine + i;
      if (Contains(ipu)) near.insert(ipu);
    }
  }
  std::set<uint32_t> ports = {arch::kFirstGwPort, arch::kFirstGwPort + 1};
  for (uint32_t from : near) {
    for (uint32_t to : near) {
      if (from == to) continue;
      const auto hops = Route(from, to);
      if (!hops.ok()) continue;
      for (const arch::Hop& hop : *hops) {
        for (uint32_t i = 0; hop.machine == machine && i < hop.num_ports; ++i)
          ports.insert(hop.first_port + i);
      }
    }
  }
  return ports;
}

}  // namespace vpod::agent
