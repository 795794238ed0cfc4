// Golden tests against the published samples of spec/vipu.md 8.
#include "tools/vipu/tables.h"

#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "device/base/file.h"
#include "tools/vipu/json.h"

namespace vpod::tools {
namespace {

// A golden file beside this test, for tables wider than a source line.
std::string Golden(const std::string& name) {
  const std::string text = base::ReadFile("tools/vipu/testdata/" + name);
  EXPECT_NE(text, "") << name;
  return text;
}

vipuuser::Partition Partition64() {
  vipuuser::Partition partition;
  vipuuser::PartitionRequirements* r = partition.mutable_requirements();
  r->set_id("p64");
  r->set_size(64);
  r->set_allocation_id("c64_1-16");
  r->set_cluster_id("c64_1-16");
  r->set_num_gcds(1);
  r->set_num_replicas(1);
  r->set_ipu_link_routing("RINGSWNC");
  r->set_gw_link_routing("DEFAULT");
  partition.mutable_status()->set_state(vipuuser::PS_ACTIVE);
  partition.mutable_status()->set_num_ilds(1);
  partition.mutable_status()->set_created_by("alice");
  return partition;
}

void AddDevice(vipuuser::PartitionConfig* gcd, uint32_t routing_id, uint32_t pcie_id) {
  vipuuser::IpuofDevice* device = gcd->add_devices();
  device->set_agent_id("ag0");
  device->set_routing_id(routing_id);
  device->set_pcie_id(pcie_id);
}

vipuuser::Partition PartitionWithTwoGcds() {
  vipuuser::Partition partition;
  vipuuser::PartitionRequirements* r = partition.mutable_requirements();
  r->set_id("pt4");
  r->set_size(4);
  r->set_cluster_id("c16");
  r->set_allocation_id("c16");
  r->set_num_gcds(2);
  r->set_num_replicas(4);
  r->set_sync_type("ST_POD_NATIVE_DEFAULT");
  r->set_ipu_link_routing("DNC");
  r->set_gw_link_routing("DEFAULT");
  vipuuser::PartitionStatus* status = partition.mutable_status();
  status->set_state(vipuuser::PS_ACTIVE);
  status->set_num_ilds(1);
  status->set_created_by("alice");
  status->set_created_at(1683192600);
  for (uint32_t gcd = 0; gcd < 2; ++gcd) {
    vipuuser::PartitionConfig* config = partition.add_gcds();
    AddDevice(config, 0, 3 - 2 * gcd);
    AddDevice(config, 1, 2 - 2 * gcd);
  }
  return partition;
}

vipuuser::Allocation Allocation(const std::string& id, int first_agent, int agents) {
  vipuuser::Allocation allocation;
  allocation.set_id(id);
  allocation.mutable_spec()->set_cluster_id("c1");
  for (int i = 0; i < agents; ++i)
    allocation.mutable_spec()->add_agent_ids("ag" + std::to_string(first_agent + i));
  return allocation;
}

TEST(PartitionsTable, OfVipuIsThePublishedOne) {
  EXPECT_EQ(ListText(PartitionsListing({Partition64()}, /*admin=*/false)),
            R"( Partition   | Cluster  | ILDs | GW Routing | ILD Routing | Size | GCDs | State
---------------------------------------------------------------------------------
 p64         | c64_1-16 | 1    | DEFAULT    | RINGSWNC    | 64   | 1    | ACTIVE
---------------------------------------------------------------------------------
)");
}

TEST(PartitionsTable, OfVipuAdminHasAllocationAndUserFirst) {
  EXPECT_EQ(ListText(PartitionsListing({Partition64()}, /*admin=*/true)),
            Golden("admin_list_partitions.txt"));
}

// Public scripts cut the id out of the table (spec/vipu.md 12).
TEST(PartitionsTable, ScriptsFindThePartitionId) {
  const std::string table = ListText(PartitionsListing({Partition64()}, /*admin=*/true));
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  // grep ACTIVE | cut -d '|' -f 3 | cut -d ' ' -f 2
  const std::vector<std::string> columns = absl::StrSplit(lines.at(2), '|');
  EXPECT_EQ(columns.at(2), " p64       ");
  // awk '{print $5}' | sed -n '3 p'
  const std::vector<std::string> words = absl::StrSplit(lines.at(2), ' ', absl::SkipEmpty());
  EXPECT_EQ(words.at(4), "p64");
}

TEST(PartitionsTable, Compatibility2021DropsTheUserColumn) {
  EXPECT_EQ(
      ListText(PartitionsListing({Partition64()}, /*admin=*/true, /*without_user=*/true)),
      R"( Allocation  | Partition | Cluster  | ILDs | GW Routing | ILD Routing | Size | GCDs | State
---------------------------------------------------------------------------------------------
 c64_1-16    | p64       | c64_1-16 | 1    | DEFAULT    | RINGSWNC    | 64   | 1    | ACTIVE
---------------------------------------------------------------------------------------------
)");
}

TEST(PartitionsTable, UnknownUserPrintsADash) {
  vipuuser::Partition partition = Partition64();
  partition.mutable_status()->clear_created_by();
  EXPECT_NE(ListText(PartitionsListing({partition}, true)).find("\n c64_1-16    | -    | p64 "),
            std::string::npos);
}

TEST(PartitionsTable, EmptyPrintsHeadingAndRulesOnly) {
  EXPECT_EQ(ListText(PartitionsListing({}, /*admin=*/false)),
            R"( Partition   | Cluster | ILDs | GW Routing | ILD Routing | Size | GCDs | State
-------------------------------------------------------------------------------
-------------------------------------------------------------------------------
)");
}

TEST(PartitionsTable, WordActiveStandsInUsableRowsOnly) {
  for (const auto state : {vipuuser::PS_PENDING, vipuuser::PS_ERROR, vipuuser::PS_REMOVED}) {
    vipuuser::Partition partition = Partition64();
    partition.mutable_status()->set_state(state);
    EXPECT_EQ(ListText(PartitionsListing({partition}, true)).find("ACTIVE"), std::string::npos)
        << vipuuser::PartitionState_Name(state);
  }
}

TEST(PartitionText, IsABlockAndATablePerGcd) {
  EXPECT_EQ(PartitionText(PartitionWithTwoGcds()), R"(----------------------------------------------
 Partition ID         | pt4
 Cluster ID           | c16
 Allocation ID        | c16
 GW Link Routing      | DEFAULT
 IPU Link Routing     | DNC
 Number of ILDs       | 1
 Number of GCDs       | 2
 Number of replicas   | 4
 Sync type            | ST_POD_NATIVE_DEFAULT
 Reconfigurable       | No
 Partition state      | ACTIVE
 Provisioning state   | IDLE
 Last error           | -
 Created by           | alice
 Created at           | 2023-05-04T09:30:00Z
-----------------------------------------
 GCD 0
-----------------------------------------
 ID | ILD | Agent | Routing ID | PCIe ID
-----------------------------------------
 0  | 0   | ag0   | 0          | 3
 1  | 0   | ag0   | 1          | 2
-----------------------------------------
-----------------------------------------
 GCD 1
-----------------------------------------
 ID | ILD | Agent | Routing ID | PCIe ID
-----------------------------------------
 0  | 0   | ag0   | 2          | 1
 1  | 0   | ag0   | 3          | 0
-----------------------------------------
)");
}

TEST(PartitionText, ErrorAndBusyStatesAreNamed) {
  vipuuser::Partition partition = PartitionWithTwoGcds();
  partition.mutable_status()->set_state(vipuuser::PS_PENDING);
  partition.mutable_status()->set_provisioning_state(vipuuser::PRS_BUSY);
  partition.mutable_status()->set_message("Agent ag0 does not answer.");
  const std::string text = PartitionText(partition);
  EXPECT_NE(text.find(" Partition state      | PENDING\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" Provisioning state   | BUSY\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" Last error           | Agent ag0 does not answer.\n"), std::string::npos);
}

TEST(AllocationsTable, OfVipuIsThePublishedOne) {
  EXPECT_EQ(
      ListText(AllocationsListing({Allocation("alloc-1", 0, 4), Allocation("alloc-2", 4, 2)})),
      R"(---------------------------------
 Allocation ID | Agents
---------------------------------
 alloc-1       | ag0 ag1 ag2 ag3
 alloc-2       | ag4 ag5
---------------------------------
)");
}

TEST(AllocationsTable, OfVipuAdminNamesClusterAndUsers) {
  vipuadmin::Allocation allocation;
  allocation.set_id("alloc-1");
  allocation.set_cluster_id("c1");
  for (const char* agent : {"ag0", "ag1"}) allocation.add_agent_ids(agent);
  vipuadmin::Allocation shared = allocation;
  for (const char* user : {"alice", "bob"}) shared.add_user_ids(user);
  EXPECT_EQ(ListText(AllocationsListing({allocation, shared})),
            R"(--------------------------------------------------
 Allocation ID | Cluster ID | Users     | Agents
--------------------------------------------------
 alloc-1       | c1         | -         | ag0 ag1
 alloc-1       | c1         | alice bob | ag0 ag1
--------------------------------------------------
)");
  EXPECT_EQ(AllocationText(shared), R"(----------------------------------
 Allocation ID        | alloc-1
 Cluster ID           | c1
 Users                | alice bob
 Agents               | ag0 ag1
 Partitions           | 0
)");
}

TEST(AllocationsTable, EmptyPrintsHeadingAndRulesOnly) {
  EXPECT_EQ(ListText(AllocationsListing(std::vector<vipuuser::Allocation>())),
            R"(------------------------
 Allocation ID | Agents
------------------------
------------------------
)");
}

TEST(AgentText, HasThePublishedBlockAndTheIpusBelow) {
  vipuadmin::Agent agent;
  agent.set_id("ag10");
  agent.set_host("10.1.2.10");
  agent.set_port(8080);
  agent.set_status("Up");
  agent.set_exporter("http://10.1.2.10:2112/metrics");
  auto& facts = *agent.mutable_facts();
  facts["Platform"] = "ipum-p2";
  facts["Manufacturer"] = "Graphcore";
  facts["Discovery Mode"] = "DM_GCDA";
  facts["Virm version"] = "master-1189-1493e2a";
  facts["Runtime version"] = "1.0.48";
  facts["Board serial number"] = "8203921-0007";
  facts["Part number"] = "GC-ADA2-00-ES1 Rev. C";
  facts["GWSW Version"] = "2.0.5";
  facts["IPUoF server version"] = "v1.3.3";
  facts["HDF Version"] = "1.0.1";
  facts["HDF Hash"] = "1275acb46311f7a46e05f721d73d180c44975e7e";
  facts["Num of IPUs"] = "4";
  for (uint32_t i = 0; i < 2; ++i) {
    vipuadmin::AgentIpu* ipu = agent.add_ipus();
    ipu->set_index(i);
    ipu->set_pci(i == 0 ? "0000:1a:00.0" : "0000:2a:00.0");
    ipu->set_firmware("2.4.4");
    ipu->set_architecture("GC200");
    ipu->set_num_tiles(1472);
    ipu->set_clock("1330MHz");
    if (i == 0) ipu->set_partition_id("p1");
  }
  EXPECT_EQ(AgentText(agent), Golden("get_agent.txt"));
}

TEST(AgentText, RowsOfAnAgentNeverSeenShowDashes) {
  vipuadmin::Agent agent;
  agent.set_id("ag1");
  agent.set_host("10.1.2.1");
  agent.set_port(8080);
  agent.set_status("Unknown");
  const std::string text = AgentText(agent);
  EXPECT_NE(text.find(" Platform             | -\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" Num of IPUs          | -\n"), std::string::npos) << text;
}

TEST(AgentsTable, ShowsAgeAndDashesForMissingValues) {
  vipuadmin::Agent seen;
  seen.set_id("ag1");
  seen.set_host("10.1.2.1");
  seen.set_port(8080);
  seen.set_cluster_id("c16");
  seen.set_num_ipus(4);
  seen.set_free_ipus(2);
  seen.set_status("Up");
  seen.set_last_seen_ms(312999);
  vipuadmin::Agent unseen;
  unseen.set_id("ag2");
  unseen.set_host("10.1.2.2");
  unseen.set_port(8080);
  unseen.set_num_ipus(4);
  unseen.set_free_ipus(4);
  unseen.set_status("Unknown");
  unseen.set_last_seen_ms(-1);
  EXPECT_EQ(ListText(AgentsListing({seen, unseen})),
            R"( Agent ID    | Host     | Port | Cluster | IPUs | Free | Status  | Last Seen
-----------------------------------------------------------------------------
 ag1         | 10.1.2.1 | 8080 | c16     | 4    | 2    | Up      | 5m12s
 ag2         | 10.1.2.2 | 8080 | -       | 4    | 4    | Unknown | -
-----------------------------------------------------------------------------
)");
}

TEST(DiscoveredTable, IsThePublishedOne) {
  vipuadmin::DiscoveredAgent agent;
  agent.set_host("10.1.2.1");
  agent.set_port(8081);
  agent.set_network_interface("eno3");
  agent.set_last_seen_ms(2345);
  agent.set_agent_id("ag1");
  EXPECT_EQ(ListText(DiscoveredListing({agent})),
            R"( Host        | Port | Network Interface | Time Since Last Seen | Agent Auto-Add ID
-----------------------------------------------------------------------------------
 10.1.2.1    | 8081 | eno3              | 2s                   | ag1
-----------------------------------------------------------------------------------
)");
}

vipuadmin::Cluster ClusterOfTwoDomains() {
  vipuadmin::Cluster cluster;
  cluster.set_id("cl1x2");
  cluster.add_agent_ids("ag1");
  cluster.add_agent_ids("ag2");
  cluster.set_num_ipulinkdomains(2);
  cluster.set_topology("torus");
  cluster.set_cluster_topology("looped");
  cluster.set_num_ipus(8);
  cluster.set_free_ipus(6);
  cluster.add_allocation_ids("cl1x2");
  cluster.set_num_partitions(1);
  return cluster;
}

TEST(ClustersTable, ShowsNumbersAndTopologies) {
  EXPECT_EQ(ListText(ClustersListing({ClusterOfTwoDomains()})), Golden("list_clusters.txt"));
}

TEST(ClusterText, ListsTheAgentsOfEachDomain) {
  vipuadmin::GetClusterReply reply;
  *reply.mutable_cluster() = ClusterOfTwoDomains();
  for (int i = 0; i < 2; ++i) {
    vipuadmin::Agent* agent = reply.add_agents();
    agent->set_id("ag" + std::to_string(i + 1));
    agent->set_host("10.1.2." + std::to_string(i + 1));
    agent->set_num_ipus(4);
    agent->set_free_ipus(4);
    agent->set_status("Up");
  }
  const std::string text = ClusterText(reply);
  EXPECT_NE(text.find(R"( ILD 1
-----------------------------------------------
 Agent       | Host     | IPUs | Free | Status
-----------------------------------------------
 ag2         | 10.1.2.2 | 4    | 4    | Up
-----------------------------------------------
)"),
            std::string::npos)
      << text;
}

TEST(IpuAttributesTable, IsThePublishedLayout) {
  std::vector<vipuuser::IpuAttributes> ipus(3);
  for (uint32_t i = 0; i < 3; ++i) {
    ipus[i].set_agent_id(i < 2 ? "ag0" : "ag1");
    ipus[i].set_pcie_id(i % 2);
    (*ipus[i].mutable_attributes())["board ipu index"] = std::to_string(i % 2);
    (*ipus[i].mutable_attributes())["board serial number"] = "0024.0002.8203921";
    (*ipus[i].mutable_attributes())["board type"] = "M2000";
    (*ipus[i].mutable_attributes())["clock"] = "1330MHz";
  }
  EXPECT_EQ(ListText(IpuAttributesListing(ipus)), Golden("list_ipu_attrs.txt"));
}

TEST(UsersTable, ShowsRolesAndAllocations) {
  std::vector<vipuadmin::User> users(3);
  users[0].set_id("alice");
  users[0].mutable_allocation_ids()->add_names("a1");
  users[0].mutable_allocation_ids()->add_names("a2");
  users[0].set_num_partitions(2);
  users[0].set_created_at(1683191561);
  users[1].set_id("john");
  users[1].set_admin(true);
  users[1].set_created_at(1683191561);
  users[2].set_id("nobody");
  users[2].mutable_allocation_ids();
  users[2].set_created_at(1683191561);
  EXPECT_EQ(ListText(UsersListing(users)), Golden("list_users.txt"));
  EXPECT_EQ(UserText(users[0]), Golden("get_user.txt"));
}

TEST(EventsTable, HasARowForEach) {
  std::vector<vipuadmin::Event> events(2);
  events[0].set_number(1);
  events[0].set_time_ms(1683191561250);
  events[0].set_severity("INFO");
  events[0].set_object("partition p1");
  events[0].set_user("alice");
  events[0].set_text("created");
  events[1].set_number(2);
  events[1].set_time_ms(1683191562000);
  events[1].set_severity("ERROR");
  events[1].set_object("partition p1");
  events[1].set_text("ACTIVE -> ERROR: Agent ag0 does not answer.");
  EXPECT_EQ(ListText(EventsListing(events)), Golden("list_events.txt"));
  // A row that follows is aligned as in the table.
  EXPECT_NE(ListText(EventsListing(events)).find(EventRow(events[0])), std::string::npos);
}

TEST(ShowJson, ListClusterHasThePublishedShape) {
  const Json clusters = ToJson(std::vector<vipuadmin::Cluster>{ClusterOfTwoDomains()});
  ASSERT_TRUE(clusters.is_array());
  const Json& domains = clusters.at(0).at("spec").at("ipu_link_domains");
  ASSERT_EQ(domains.size(), 2u);
  ASSERT_TRUE(domains.at(1).is_object()) << domains;
  EXPECT_EQ(domains.at(0).at("ipus").size(), 4u);
  EXPECT_EQ(domains.at(1).at("ipus").at(0), Json({{"agent_id", "ag2"}, {"pcie_id", 3}}));
  EXPECT_EQ(clusters.at(0).at("id"), "cl1x2");
  EXPECT_EQ(clusters.at(0).at("num_ipulinkdomains"), 2);
  EXPECT_EQ(ToJson(std::vector<vipuadmin::Cluster>()), Json::array());
}

TEST(ShowJson, ListPartitionHasThePublishedShape) {
  const Json partitions = ToJson(std::vector<vipuuser::Partition>{PartitionWithTwoGcds()});
  ASSERT_TRUE(partitions.is_array());
  const Json& partition = partitions.at(0).at("partition");
  EXPECT_EQ(partition.at("id"), "pt4");
  EXPECT_EQ(partition.at("spec").at("ipus").size(), 4u);
  EXPECT_EQ(partition.at("spec").at("ipus").at(3), Json({{"agent_id", "ag0"}, {"pcie_id", 0}}));
  EXPECT_EQ(partition.at("spec").at("num_gcds"), 2);
  EXPECT_EQ(partition.at("spec").at("num_replicas"), 4);
  EXPECT_EQ(partitions.at(0).at("state"), "PS_ACTIVE");
  EXPECT_EQ(partitions.at(0).at("created_at"), "2023-05-04T09:30:00Z");
  EXPECT_EQ(partitions.at(0).at("last_error"), "");
  EXPECT_EQ(ToJson(std::vector<vipuuser::Partition>()), Json::array());
}

TEST(ShowJson, KeysOfTheFabricAreNotShown) {
  vipuuser::Partition partition = PartitionWithTwoGcds();
  partition.mutable_gcds(0)->set_fabric_key("secret");
  EXPECT_EQ(ToJson(partition).dump().find("secret"), std::string::npos);
}

TEST(ShowJson, OtherMessagesHaveTheNamesOfTheContract) {
  const Json two = ToJson(
      std::vector<vipuuser::Allocation>{Allocation("alloc-1", 0, 1), Allocation("alloc-2", 1, 1)});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two.at(0).at("spec").at("cluster_id"), "c1");
  EXPECT_EQ(two.at(1).at("spec").at("agent_ids"), Json::array({"ag1"}));
  vipuadmin::Agent agent;
  agent.set_last_seen_ms(-1);
  (*agent.mutable_facts())["Platform"] = "ipum-p2";
  (*agent.mutable_facts())["HDF Hash"] = "12";
  agent.add_ipus()->set_num_tiles(1472);
  const Json json = ToJson(agent);
  EXPECT_EQ(json.at("last_seen_ms"), -1);
  EXPECT_EQ(json.at("facts").dump(), R"({"HDF Hash":"12","Platform":"ipum-p2"})");
  EXPECT_EQ(json.at("ipus").at(0).at("num_tiles"), 1472);
}

}  // namespace
}  // namespace vpod::tools
