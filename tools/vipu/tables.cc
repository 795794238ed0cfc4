#include "tools/vipu/tables.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/render/table.h"
#include "client/vipu/client.h"

namespace vpod::tools {
namespace {

using render::Table;

constexpr size_t kFirstColumn = 11;

std::string LastSeen(int64_t milliseconds) {
  return milliseconds < 0 ? "-" : render::ShortDuration(milliseconds / 1000);
}

std::string Number(uint64_t value) { return absl::StrCat(value); }

std::string YesNo(bool value) { return value ? "Yes" : "No"; }

std::string Fact(const vipuadmin::Agent& agent, const char* name) {
  const auto it = agent.facts().find(name);
  return it == agent.facts().end() ? "" : it->second;
}

// Facts of `get agent` that differ from machine to machine or release to release.
constexpr const char* kWideFacts[] = {"Board serial number", "GWSW Version",
                                      "IPUoF server version"};

std::string Role(const vipuadmin::User& user) { return user.admin() ? "admin" : "user"; }

std::string AllocationsOf(const vipuadmin::User& user) {
  return user.has_allocation_ids() ? absl::StrJoin(user.allocation_ids().names(), " ") : "all";
}

// Rows are printed before the next is known, so the widths are those of the usual texts.
Table TestTable() {
  return {.headings = {"Test Type", "Duration", "Passed", "Summary"},
          .minimum_widths = {13, 8, 6, 45}};
}

Table EventTable() {
  return {.headings = {"Number", "Time", "Severity", "Object", "User", "Event"},
          .minimum_widths = {kFirstColumn, 24, 8, 14, 8, 30}};
}

std::vector<std::string> EventCells(const vipuadmin::Event& event) {
  return {Number(event.number()), render::UtcTimeMillis(event.time_ms()),
          event.severity(),       event.object(),
          event.user(),           event.text()};
}

}  // namespace

Listing PartitionsListing(const std::vector<vipuuser::Partition>& partitions, bool admin,
                          bool without_user) {
  Listing listing;
  Table& table = listing.table;
  if (admin) table.headings = {"Allocation"};
  if (admin && !without_user) table.headings.push_back("User");
  listing.name_column = table.headings.size();
  for (const char* heading :
       {"Partition", "Cluster", "ILDs", "GW Routing", "ILD Routing", "Size", "GCDs", "State"}) {
    table.headings.push_back(heading);
  }
  for (const char* heading : {"Replicas", "Reconfigurable", "Created by", "Created at", "Error"}) {
    table.headings.push_back(heading);
    ++listing.wide_columns;
  }
  table.minimum_widths = {kFirstColumn};
  table.rows.reserve(partitions.size());
  for (const vipuuser::Partition& partition : partitions) {
    const vipuuser::PartitionRequirements& r = partition.requirements();
    const vipuuser::PartitionStatus& status = partition.status();
    std::vector<std::string>& row = table.rows.emplace_back();
    row.reserve(table.headings.size());
    if (admin) row.push_back(r.allocation_id());
    if (admin && !without_user) row.push_back(status.created_by());
    row.push_back(r.id());
    row.push_back(r.cluster_id());
    row.push_back(Number(status.num_ilds()));
    row.push_back(r.gw_link_routing());
    row.push_back(r.ipu_link_routing());
    row.push_back(Number(r.size()));
    row.push_back(Number(r.num_gcds()));
    row.push_back(vipu::StateText(status.state()));
    row.push_back(Number(r.num_replicas()));
    row.push_back(YesNo(r.reconfigurable()));
    row.push_back(status.created_by());
    row.push_back(render::UtcTime(status.created_at()));
    row.push_back(status.message());
  }
  return listing;
}

std::string PartitionText(const vipuuser::Partition& partition, std::optional<uint32_t> only_gcd) {
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
      {"Reconfigurable", YesNo(r.reconfigurable())},
      {"Partition state", vipu::StateText(status.state())},
      {"Provisioning state",
       vipuuser::ProvisioningState_Name(status.provisioning_state()).substr(4)},
      {"Last error", status.message()},
      {"Created by", status.created_by()},
      {"Created at", render::UtcTime(status.created_at())},
  });
  std::map<uint32_t, uint32_t> next_in_ild;  // routing ids go on from GCD to GCD
  for (int gcd = 0; gcd < partition.gcds_size(); ++gcd) {
    Table table;
    table.headings = {"ID", "ILD", "Agent", "Routing ID", "PCIe ID"};
    for (const vipuuser::IpuofDevice& device : partition.gcds(gcd).devices()) {
      table.rows.push_back({Number(device.routing_id()), Number(device.ild()), device.agent_id(),
                            Number(next_in_ild[device.ild()]++), Number(device.pcie_id())});
    }
    if (only_gcd.value_or(static_cast<uint32_t>(gcd)) != static_cast<uint32_t>(gcd)) continue;
    absl::StrAppend(&text, render::Rule(table), " GCD ", gcd, "\n", render::StyleR(table));
  }
  return text;
}

Listing AllocationsListing(const std::vector<vipuuser::Allocation>& allocations) {
  Listing listing{.wide_columns = 1, .rule_above = true};
  listing.table.headings = {"Allocation ID", "Agents", "Cluster ID"};
  for (const auto& allocation : allocations) {
    listing.table.rows.push_back({allocation.id(),
                                  absl::StrJoin(allocation.spec().agent_ids(), " "),
                                  allocation.spec().cluster_id()});
  }
  return listing;
}

Listing AllocationsListing(const std::vector<vipuadmin::Allocation>& allocations) {
  Listing listing{.wide_columns = 1, .rule_above = true};
  listing.table.headings = {"Allocation ID", "Cluster ID", "Users", "Agents", "Partitions"};
  for (const auto& allocation : allocations) {
    listing.table.rows.push_back(
        {allocation.id(), allocation.cluster_id(), absl::StrJoin(allocation.user_ids(), " "),
         absl::StrJoin(allocation.agent_ids(), " "), Number(allocation.num_partitions())});
  }
  return listing;
}

std::string AllocationText(const vipuuser::Allocation& allocation) {
  return render::Block({{"Allocation ID", allocation.id()},
                        {"Cluster ID", allocation.spec().cluster_id()},
                        {"Agents", absl::StrJoin(allocation.spec().agent_ids(), " ")}});
}

std::string AllocationText(const vipuadmin::Allocation& allocation) {
  return render::Block({{"Allocation ID", allocation.id()},
                        {"Cluster ID", allocation.cluster_id()},
                        {"Users", absl::StrJoin(allocation.user_ids(), " ")},
                        {"Agents", absl::StrJoin(allocation.agent_ids(), " ")},
                        {"Partitions", Number(allocation.num_partitions())}});
}

Listing IpuAttributesListing(const std::vector<vipuuser::IpuAttributes>& ipus) {
  Listing listing{.merged_columns = 2};
  listing.table.headings = {"Agent", "IPU", "Attribute", "Value"};
  listing.table.minimum_widths = {10, 0, 33, 18};
  for (size_t i = 0; i < ipus.size(); ++i) {
    const std::map<std::string, std::string> sorted(ipus[i].attributes().begin(),
                                                    ipus[i].attributes().end());
    for (const auto& [name, value] : sorted) {
      listing.table.rows.push_back({ipus[i].agent_id(), Number(ipus[i].pcie_id()), name, value});
      listing.object_of_row.push_back(i);
    }
  }
  return listing;
}

Listing AgentsListing(const std::vector<vipuadmin::Agent>& agents) {
  Listing listing;
  Table& table = listing.table;
  table.headings = {"Agent ID", "Host", "Port", "Cluster", "IPUs", "Free", "Status", "Last Seen"};
  for (const char* heading : kWideFacts) table.headings.push_back(heading);
  table.headings.insert(table.headings.end(), {"Exporter", "Error"});
  listing.wide_columns = std::size(kWideFacts) + 2;
  table.minimum_widths = {kFirstColumn};
  for (const auto& agent : agents) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {agent.id(),
           agent.host(),
           Number(agent.port()),
           agent.cluster_id(),
           Number(agent.num_ipus()),
           Number(agent.free_ipus()),
           agent.status(),
           LastSeen(agent.last_seen_ms())};
    for (const char* fact : kWideFacts) row.push_back(Fact(agent, fact));
    row.insert(row.end(), {agent.exporter(), agent.error()});
  }
  return listing;
}

std::string AgentText(const vipuadmin::Agent& agent) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"Agent ID", agent.id()},   {"Host", agent.host()},         {"Port", Number(agent.port())},
      {"Status", agent.status()}, {"Exporter", agent.exporter()},
  };
  for (const char* key : {"Platform", "Manufacturer", "Discovery Mode", "Virm version",
                          "Runtime version", "Board serial number", "Part number", "GWSW Version",
                          "IPUoF server version", "HDF Version", "HDF Hash", "Num of IPUs"}) {
    rows.emplace_back(key, Fact(agent, key));
  }
  if (!agent.error().empty()) rows.emplace_back("Error", agent.error());
  Table table;
  table.headings = {"IPU",          "PCI",       "Device", "Firmware",
                    "Architecture", "Num Tiles", "Clock",  "Partition"};
  table.minimum_widths = {kFirstColumn, 0, 0, 0, 0, 0, 0, 14};
  for (const auto& ipu : agent.ipus()) {
    table.rows.push_back({Number(ipu.index()), ipu.pci(), Number(ipu.index()), ipu.firmware(),
                          ipu.architecture(), Number(ipu.num_tiles()), ipu.clock(),
                          ipu.partition_id()});
    if (!ipu.releasing().empty())
      rows.emplace_back(absl::StrCat("IPU ", ipu.index(), " RELEASING"), ipu.releasing());
  }
  return render::Block(rows) + render::StyleR(table);
}

Listing DiscoveredListing(const std::vector<vipuadmin::DiscoveredAgent>& agents) {
  Listing listing{.wide_columns = 1, .name_column = 4};
  listing.table.headings = {
      "Host", "Port", "Network Interface", "Time Since Last Seen", "Agent Auto-Add ID", "Added"};
  listing.table.minimum_widths = {kFirstColumn};
  for (const auto& agent : agents) {
    listing.table.rows.push_back({agent.host(), Number(agent.port()), agent.network_interface(),
                                  LastSeen(agent.last_seen_ms()), agent.agent_id(),
                                  YesNo(agent.added())});
  }
  return listing;
}

Listing ClustersListing(const std::vector<vipuadmin::Cluster>& clusters) {
  Listing listing{.wide_columns = 1};
  listing.table.headings = {
      "Cluster ID", "Agents",           "ILDs",        "IPUs",       "Free",
      "Topology",   "Cluster Topology", "Allocations", "Partitions", "Agent IDs"};
  listing.table.minimum_widths = {kFirstColumn};
  for (const auto& cluster : clusters) {
    listing.table.rows.push_back(
        {cluster.id(), Number(static_cast<uint64_t>(cluster.agent_ids_size())),
         Number(cluster.num_ipulinkdomains()), Number(cluster.num_ipus()),
         Number(cluster.free_ipus()), cluster.topology(), cluster.cluster_topology(),
         absl::StrJoin(cluster.allocation_ids(), " "), Number(cluster.num_partitions()),
         absl::StrJoin(cluster.agent_ids(), " ")});
  }
  return listing;
}

std::string ClusterText(const vipuadmin::GetClusterReply& reply) {
  const vipuadmin::Cluster& cluster = reply.cluster();
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
  const int ilds = static_cast<int>(std::max(1u, cluster.num_ipulinkdomains()));
  const int per_ild = reply.agents_size() / ilds;
  for (int ild = 0; ild < ilds; ++ild) {
    Table table;
    table.headings = {"Agent", "Host", "IPUs", "Free", "Status"};
    table.minimum_widths = {kFirstColumn};
    for (int i = 0; i < per_ild; ++i) {
      const vipuadmin::Agent& agent = reply.agents(ild * per_ild + i);
      table.rows.push_back({agent.id(), agent.host(), Number(agent.num_ipus()),
                            Number(agent.free_ipus()), agent.status()});
    }
    absl::StrAppend(&text, render::Rule(table), " ILD ", ild, "\n", render::StyleR(table));
  }
  return text;
}

Listing UsersListing(const std::vector<vipuadmin::User>& users) {
  Listing listing;
  listing.table.headings = {"User ID", "Role", "Allocations", "Partitions", "Created at"};
  listing.table.minimum_widths = {kFirstColumn};
  for (const auto& user : users) {
    listing.table.rows.push_back({user.id(), Role(user), AllocationsOf(user),
                                  Number(user.num_partitions()),
                                  render::UtcTime(user.created_at())});
  }
  return listing;
}

std::string UserText(const vipuadmin::User& user) {
  return render::Block({{"User ID", user.id()},
                        {"Role", Role(user)},
                        {"Allocations", AllocationsOf(user)},
                        {"Partitions", Number(user.num_partitions())},
                        {"Created at", render::UtcTime(user.created_at())}});
}

std::string TestHead(const std::string& cluster_id) {
  return absl::StrCat("Showing test results for cluster ", cluster_id, "\n",
                      render::Head(TestTable()));
}

std::string TestRow(const vipuadmin::TestClusterReply& result) {
  return render::Row(TestTable(),
                     {result.test(), absl::StrFormat("%.2fs", result.seconds()),
                      absl::StrCat(result.passed(), "/", result.expected()), result.summary()});
}

std::string TestTail(const std::vector<vipuadmin::TestClusterReply>& results) {
  std::string text = render::Rule(TestTable());
  for (const auto& result : results) {
    for (const std::string& failure : result.failures())
      absl::StrAppend(&text, result.test(), ": ", failure, "\n");
  }
  return text;
}

Listing EventsListing(const std::vector<vipuadmin::Event>& events) {
  Listing listing{.table = EventTable()};
  for (const auto& event : events) listing.table.rows.push_back(EventCells(event));
  return listing;
}

std::string EventHead() { return render::Head(EventTable()); }
std::string EventRow(const vipuadmin::Event& event) {
  return render::Row(EventTable(), EventCells(event));
}

}  // namespace vpod::tools
