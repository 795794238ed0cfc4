#include "tools/vipu/tables.h"

#include <google/protobuf/util/json_util.h>

#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/table.h"
#include "client/vipu/client.h"

namespace vpod::tools {
namespace {

using Json = nlohmann::ordered_json;
using render::Table;

constexpr size_t kFirstColumn = 11;

std::string UtcTime(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string LastSeen(int64_t milliseconds) {
  return milliseconds < 0 ? "-" : render::ShortDuration(milliseconds / 1000);
}

std::string Number(uint64_t value) { return absl::StrCat(value); }

Json SpecJson(const vipuuser::Partition& partition) {
  const vipuuser::PartitionRequirements& r = partition.requirements();
  Json ipus = Json::array();
  for (const auto& gcd : partition.gcds()) {
    for (const auto& device : gcd.devices()) {
      ipus.push_back({{"agent_id", device.agent_id()}, {"pcie_id", device.pcie_id()}});
    }
  }
  return {{"ipus", ipus},
          {"num_gcds", r.num_gcds()},
          {"num_replicas", r.num_replicas()},
          {"size", r.size()},
          {"reconfigurable", r.reconfigurable()},
          {"sync_type", r.sync_type()},
          {"ipu_link_routing", r.ipu_link_routing()},
          {"gw_link_routing", r.gw_link_routing()},
          {"cluster_id", r.cluster_id()},
          {"allocation_id", r.allocation_id()}};
}

Json PartitionObject(const vipuuser::Partition& partition) {
  return {{"partition", {{"id", partition.requirements().id()}, {"spec", SpecJson(partition)}}},
          {"state", vipuuser::PartitionState_Name(partition.status().state())},
          {"num_ilds", partition.status().num_ilds()},
          {"created_by", partition.status().created_by()},
          {"created_at", UtcTime(partition.status().created_at())},
          {"last_error", partition.status().message()}};
}

Json ClusterObject(const vipuadmin::Cluster& cluster) {
  const uint32_t ilds = std::max(1u, cluster.num_ipulinkdomains());
  const int per_ild = cluster.agent_ids_size() / static_cast<int>(ilds);
  Json domains = Json::array();
  for (uint32_t ild = 0; ild < ilds; ++ild) {
    Json ipus = Json::array();
    for (int i = 0; i < per_ild; ++i) {
      for (int pcie = 3; pcie >= 0; --pcie) {
        ipus.push_back({{"agent_id", cluster.agent_ids(static_cast<int>(ild) * per_ild + i)},
                        {"pcie_id", pcie}});
      }
    }
    domains.push_back({{"ipus", ipus}});
  }
  return {{"id", cluster.id()},
          {"spec", {{"ipu_link_domains", domains}}},
          {"topology", cluster.topology()},
          {"cluster_topology", cluster.cluster_topology()},
          {"num_ipus", cluster.num_ipus()},
          {"free_ipus", cluster.free_ipus()}};
}

}  // namespace

std::string PartitionsTable(const std::vector<vipuuser::Partition>& partitions, bool admin,
                            bool without_user) {
  Table table;
  if (admin) table.headings = {"Allocation"};
  if (admin && !without_user) table.headings.push_back("User");
  for (const char* heading :
       {"Partition", "Cluster", "ILDs", "GW Routing", "ILD Routing", "Size", "GCDs", "State"}) {
    table.headings.push_back(heading);
  }
  table.minimum_widths = {kFirstColumn};
  for (const vipuuser::Partition& partition : partitions) {
    const vipuuser::PartitionRequirements& r = partition.requirements();
    std::vector<std::string> row;
    if (admin) row.push_back(r.allocation_id());
    if (admin && !without_user) row.push_back(partition.status().created_by());
    for (const std::string& cell :
         {r.id(), r.cluster_id(), Number(partition.status().num_ilds()), r.gw_link_routing(),
          r.ipu_link_routing(), Number(r.size()), Number(r.num_gcds()),
          vipu::StateText(partition.status().state())}) {
      row.push_back(cell);
    }
    table.rows.push_back(std::move(row));
  }
  return render::StyleH(table);
}

std::string PartitionText(const vipuuser::Partition& partition) {
  const vipuuser::PartitionRequirements& r = partition.requirements();
  const vipuuser::PartitionStatus& status = partition.status();
  std::string text = render::Block({
      {"Partition ID", r.id()},
      {"Cluster ID", r.cluster_id()},
      {"Allocation ID", r.allocation_id()},
      {"GW Link Routing", r.gw_link_routing()},
      {"IPU Link Routing", r.ipu_link_routing()},
      {"Number of ILDs", Number(status.num_ilds())},
      {"Number of GCDs", Number(r.num_gcds())},
      {"Number of replicas", Number(r.num_replicas())},
      {"Sync type", r.sync_type()},
      {"Reconfigurable", r.reconfigurable() ? "Yes" : "No"},
      {"Partition state", vipu::StateText(status.state())},
      {"Provisioning state",
       vipuuser::ProvisioningState_Name(status.provisioning_state()).substr(4)},
      {"Last error", status.message()},
      {"Created by", status.created_by()},
      {"Created at", UtcTime(status.created_at())},
  });
  for (int gcd = 0; gcd < partition.gcds_size(); ++gcd) {
    Table table;
    table.headings = {"ID", "ILD", "Agent", "Routing ID", "PCIe ID"};
    for (const vipuuser::IpuofDevice& device : partition.gcds(gcd).devices()) {
      table.rows.push_back({Number(device.routing_id()), Number(device.ild()), device.agent_id(),
                            Number(device.routing_id()), Number(device.pcie_id())});
    }
    absl::StrAppend(&text, render::Rule(table), " GCD ", gcd, "\n", render::StyleR(table));
  }
  return text;
}

std::string PartitionsJson(const std::vector<vipuuser::Partition>& partitions) {
  Json json = Json::array();
  for (const auto& partition : partitions) json.push_back(PartitionObject(partition));
  return json.dump(2) + "\n";
}

std::string PartitionJson(const vipuuser::Partition& partition) {
  return PartitionObject(partition).dump(2) + "\n";
}

std::string AllocationsTable(const std::vector<vipuuser::Allocation>& allocations, bool admin) {
  Table table;
  table.headings = admin
                       ? std::vector<std::string>{"Allocation ID", "Cluster ID", "Users", "Agents"}
                       : std::vector<std::string>{"Allocation ID", "Agents"};
  table.minimum_widths = {kFirstColumn};
  for (const auto& allocation : allocations) {
    const std::string agents = absl::StrJoin(allocation.spec().agent_ids(), " ");
    table.rows.push_back(
        admin
            ? std::vector<std::string>{allocation.id(), allocation.spec().cluster_id(), "", agents}
            : std::vector<std::string>{allocation.id(), agents});
  }
  return render::StyleR(table);
}

std::string AllocationText(const vipuuser::Allocation& allocation) {
  return render::Block({{"Allocation ID", allocation.id()},
                        {"Cluster ID", allocation.spec().cluster_id()},
                        {"Agents", absl::StrJoin(allocation.spec().agent_ids(), " ")}});
}

std::string AgentsTable(const std::vector<vipuadmin::Agent>& agents) {
  Table table;
  table.headings = {"Agent ID", "Host", "Port", "Cluster", "IPUs", "Free", "Status", "Last Seen"};
  table.minimum_widths = {kFirstColumn};
  for (const auto& agent : agents) {
    table.rows.push_back({agent.id(), agent.host(), Number(agent.port()), agent.cluster_id(),
                          Number(agent.num_ipus()), Number(agent.free_ipus()), agent.status(),
                          LastSeen(agent.last_seen_ms())});
  }
  return render::StyleH(table);
}

std::string AgentText(const vipuadmin::Agent& agent) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Agent ID", agent.id()},   {"Host", agent.host()},         {"Port", Number(agent.port())},
      {"Status", agent.status()}, {"Exporter", agent.exporter()},
  };
  for (const char* key : {"Platform", "Manufacturer", "Discovery Mode", "Virm version",
                          "Runtime version", "Board serial number", "Part number", "GWSW Version",
                          "IPUoF server version", "HDF Version", "HDF Hash", "Num of IPUs"}) {
    const auto it = agent.facts().find(key);
    rows.emplace_back(key, it == agent.facts().end() ? "" : it->second);
  }
  Table table;
  table.headings = {"IPU",          "PCI",       "Device", "Firmware",
                    "Architecture", "Num Tiles", "Clock",  "Partition"};
  table.minimum_widths = {kFirstColumn, 0, 0, 0, 0, 0, 0, 14};
  for (const auto& ipu : agent.ipus()) {
    table.rows.push_back({Number(ipu.index()), ipu.pci(), Number(ipu.index()), ipu.firmware(),
                          ipu.architecture(), Number(ipu.num_tiles()), ipu.clock(),
                          ipu.partition_id()});
  }
  return render::Block(rows) + render::StyleR(table);
}

std::string DiscoveredTable(const std::vector<vipuadmin::DiscoveredAgent>& agents) {
  Table table;
  table.headings = {"Host", "Port", "Network Interface", "Time Since Last Seen",
                    "Agent Auto-Add ID"};
  table.minimum_widths = {kFirstColumn};
  for (const auto& agent : agents) {
    table.rows.push_back({agent.host(), Number(agent.port()), agent.network_interface(),
                          LastSeen(agent.last_seen_ms()), agent.agent_id()});
  }
  return render::StyleH(table);
}

std::string ClustersTable(const std::vector<vipuadmin::Cluster>& clusters) {
  Table table;
  table.headings = {"Cluster ID", "Agents",           "ILDs",        "IPUs",      "Free",
                    "Topology",   "Cluster Topology", "Allocations", "Partitions"};
  table.minimum_widths = {kFirstColumn};
  for (const auto& cluster : clusters) {
    table.rows.push_back({cluster.id(), Number(static_cast<uint64_t>(cluster.agent_ids_size())),
                          Number(cluster.num_ipulinkdomains()), Number(cluster.num_ipus()),
                          Number(cluster.free_ipus()), cluster.topology(),
                          cluster.cluster_topology(), absl::StrJoin(cluster.allocation_ids(), " "),
                          Number(cluster.num_partitions())});
  }
  return render::StyleH(table);
}

std::string ClusterText(const vipuadmin::Cluster& cluster,
                        const std::vector<vipuadmin::Agent>& agents) {
  std::string text =
      render::Block({{"Cluster ID", cluster.id()},
                     {"Agents", Number(static_cast<uint64_t>(cluster.agent_ids_size()))},
                     {"ILDs", Number(cluster.num_ipulinkdomains())},
                     {"IPUs", Number(cluster.num_ipus())},
                     {"Free", Number(cluster.free_ipus())},
                     {"Topology", cluster.topology()},
                     {"Cluster Topology", cluster.cluster_topology()},
                     {"Allocations", absl::StrJoin(cluster.allocation_ids(), " ")},
                     {"Partitions", Number(cluster.num_partitions())}});
  std::map<std::string, const vipuadmin::Agent*> by_id;
  for (const auto& agent : agents) by_id[agent.id()] = &agent;
  const int per_ild =
      cluster.agent_ids_size() / static_cast<int>(std::max(1u, cluster.num_ipulinkdomains()));
  for (uint32_t ild = 0; ild < cluster.num_ipulinkdomains(); ++ild) {
    Table table;
    table.headings = {"Agent", "Host", "IPUs", "Free", "Status"};
    table.minimum_widths = {kFirstColumn};
    for (int i = 0; i < per_ild; ++i) {
      const auto it = by_id.find(cluster.agent_ids(static_cast<int>(ild) * per_ild + i));
      if (it == by_id.end()) continue;
      table.rows.push_back({it->second->id(), it->second->host(), Number(it->second->num_ipus()),
                            Number(it->second->free_ipus()), it->second->status()});
    }
    absl::StrAppend(&text, render::Rule(table), " ILD ", ild, "\n", render::StyleR(table));
  }
  return text;
}

std::string ClustersJson(const std::vector<vipuadmin::Cluster>& clusters) {
  Json json = Json::array();
  for (const auto& cluster : clusters) json.push_back(ClusterObject(cluster));
  return json.dump(2) + "\n";
}

std::string ClusterJson(const vipuadmin::Cluster& cluster) {
  return ClusterObject(cluster).dump(2) + "\n";
}

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace vpod::tools
