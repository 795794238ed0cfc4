// Agents, clusters and allocations.
#include "server/controller/controller.h"

#include <gtest/gtest.h>

#include "server/controller/controller_fixture.h"

namespace vpod::controller {
namespace {

constexpr char kIdRule[] =
    ". Ids have 1 to 63 letters, digits, '.', '_' and '-' and begin with a letter or digit.";

TEST_F(ControllerTest, AgentsNeedAGoodIdHostAndPort) {
  EXPECT_EQ(Text(CreateAgent("a b", "10.1.2.1")),
            absl::StrCat("INVALID_ARGUMENT: Invalid id 'a b'", kIdRule));
  for (const std::string& host : {std::string(), std::string(254, 'h'), std::string("ö"),
                                  std::string("a b"), std::string("h/1"), std::string("a|b")}) {
    EXPECT_EQ(Text(CreateAgent("ag1", host)),
              absl::StrCat("INVALID_ARGUMENT: Host '", host,
                           "' is not a name or address; give 1 to 253 letters, digits and "
                           "'._-:[]'."));
  }
  EXPECT_EQ(Text(CreateAgent("ag1", "h", 0)), "INVALID_ARGUMENT: Port is 0; give 1 to 65535.");
  EXPECT_EQ(Text(CreateAgent("ag1", "h", 65536)),
            "INVALID_ARGUMENT: Port is 65536; give 1 to 65535.");
  EXPECT_TRUE(controller_->ListAgents().empty());
}

TEST_F(ControllerTest, AgentIdsAndAddressesAreUnique) {
  ASSERT_TRUE(CreateAgent("ag1", "10.1.2.1").ok());
  EXPECT_EQ(Text(CreateAgent("ag1", "10.1.2.9")), "ALREADY_EXISTS: Agent ag1 already exists.");
  EXPECT_EQ(Text(CreateAgent("ag2", "10.1.2.1")),
            "ALREADY_EXISTS: Agent ag1 is already at 10.1.2.1:8080.");
  EXPECT_TRUE(CreateAgent("ag2", "10.1.2.1", 8081).ok());
}

TEST_F(ControllerTest, HostsAreNamesAndAddresses) {
  uint32_t n = 0;
  for (const char* host : {"10.1.2.1", "lr21-3-poplar1.example.org", "rack_7", "::1", "[fe80::1]"})
    EXPECT_TRUE(CreateAgent(absl::StrCat("ag", n++), host).ok()) << host;
}

TEST_F(ControllerTest, ListsAreInTheOrderInWhichPeopleCount) {
  const std::vector<std::string> ids = {"ag2", "ag9", "ag10", "ag100"};
  uint32_t port = 8080;
  for (auto id = ids.rbegin(); id != ids.rend(); ++id)
    ASSERT_TRUE(CreateAgent(*id, "h", ++port).ok());
  std::vector<std::string> listed;
  for (const auto& agent : controller_->ListAgents()) listed.push_back(agent.id());
  EXPECT_EQ(listed, ids);
}

TEST_F(ControllerTest, AgentStatusFollowsItsHeartbeats) {
  CreateAgents(0, 1);
  vipuadmin::Agent agent = *controller_->GetAgent("ag0");
  EXPECT_EQ(agent.status(), "Unknown");
  EXPECT_LT(agent.last_seen_ms(), 0);
  Register(0, 1);
  Advance(std::chrono::milliseconds(2000));
  agent = *controller_->GetAgent("ag0");
  EXPECT_EQ(agent.status(), "Up");
  EXPECT_EQ(agent.last_seen_ms(), 2000);
  EXPECT_EQ(agent.facts().at("Platform"), "ipum-p2");
  Advance(std::chrono::milliseconds(3001));
  EXPECT_EQ(controller_->GetAgent("ag0")->status(), "Down");
  Register(0, 1);
  EXPECT_EQ(controller_->GetAgent("ag0")->status(), "Up");
}

TEST_F(ControllerTest, AgentShowsItsIpusAndTheirPartitions) {
  CreatePod(1);
  CreateActive(Wanted("p1", 2));
  const vipuadmin::Agent agent = *controller_->GetAgent("ag0");
  EXPECT_EQ(agent.cluster_id(), "c1");
  EXPECT_EQ(agent.num_ipus(), 4u);
  EXPECT_EQ(agent.free_ipus(), 2u);
  ASSERT_EQ(agent.ipus_size(), 4);
  // The lowest positions are IPU 3 and 2.
  EXPECT_EQ(agent.ipus(0).partition_id(), "");
  EXPECT_EQ(agent.ipus(1).partition_id(), "");
  EXPECT_EQ(agent.ipus(2).partition_id(), "p1");
  EXPECT_EQ(agent.ipus(3).partition_id(), "p1");
  EXPECT_EQ(agent.ipus(3).architecture(), "GC200");
  EXPECT_EQ(agent.ipus(3).num_tiles(), 1472u);
  EXPECT_EQ(agent.ipus(3).clock(), "1330MHz");
}

TEST_F(ControllerTest, AgentShowsTheExporterOfItsProcess) {
  CreateAgents(0, 1);
  EXPECT_EQ(controller_->GetAgent("ag0")->exporter(), "");
  Register(0, 1, "process-1");
  EXPECT_EQ(controller_->GetAgent("ag0")->exporter(), "http://process-1:2112/metrics");
}

TEST_F(ControllerTest, ProcessesLearnTheIdsOfTheirMachinesOnce) {
  CreateAgents(0, 3);
  Register(0, 2, "process-1");
  Register(2, 1, "process-2");
  vipuagent::HeartbeatRequest request;
  request.set_endpoint("process-1");
  request.set_boot_id("boot-1");
  vipuagent::HeartbeatReply reply = controller_->Heartbeat(request);
  ASSERT_EQ(reply.names_size(), 2);
  EXPECT_EQ(reply.names(1).host(), Host(1));
  EXPECT_EQ(reply.names(1).agent_id(), "ag1");
  request.set_names_version(reply.names_version());
  EXPECT_EQ(controller_->Heartbeat(request).names_size(), 0);
  ASSERT_TRUE(controller_->RemoveAgent("ag0", "root").ok());
  reply = controller_->Heartbeat(request);
  EXPECT_EQ(reply.names_size(), 1);
  EXPECT_NE(reply.names_version(), request.names_version());
}

TEST_F(ControllerTest, MissingAgentIsNotFound) {
  EXPECT_EQ(Text(controller_->GetAgent("ag7").status()), "NOT_FOUND: Agent ag7 does not exist.");
  EXPECT_EQ(Text(controller_->RemoveAgent("ag7", "root")), "NOT_FOUND: Agent ag7 does not exist.");
}

TEST_F(ControllerTest, DiscoveryListsMachinesByAddressWithTheirIds) {
  Register(0, 12);
  ASSERT_TRUE(CreateAgent("first", Host(0)).ok());
  const auto found = *controller_->DiscoverAgents(false, "root");
  ASSERT_EQ(found.size(), 12u);
  EXPECT_EQ(found[0].host(), "10.1.2.1");
  EXPECT_EQ(found[0].agent_id(), "first");
  EXPECT_TRUE(found[0].added());
  EXPECT_EQ(found[1].host(), "10.1.2.2");  // not 10.1.2.10
  EXPECT_EQ(found[1].agent_id(), "ag1");
  EXPECT_FALSE(found[1].added());
  EXPECT_EQ(found[11].host(), "10.1.2.12");
  EXPECT_EQ(found[11].port(), 8080u);
}

TEST_F(ControllerTest, ClusterNeedsAgentsThatAreInNoOther) {
  CreateAgents(0, 4);
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c1", 0, 0))),
            "INVALID_ARGUMENT: A cluster needs at least one agent.");
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c1", 3, 2))), "NOT_FOUND: Agent ag4 does not exist.");
  vipuadmin::Cluster twice = ClusterOf("c1", 0, 1);
  twice.add_agent_ids("ag0");
  EXPECT_EQ(Text(CreateCluster(twice)), "INVALID_ARGUMENT: Agent ag0 is named twice.");
  ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, 2)).ok());
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c1", 2, 2))),
            "ALREADY_EXISTS: Cluster c1 already exists.");
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c2", 1, 2))),
            "ALREADY_EXISTS: Agent ag1 is already in cluster c1.");
  EXPECT_TRUE(CreateCluster(ClusterOf("c2", 2, 2)).ok());
  EXPECT_EQ(controller_->ListClusters().size(), 2u);
}

TEST_F(ControllerTest, ClusterChecksIdDomainsAndTopologies) {
  CreateAgents(0, 34);
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c|1", 0, 1))),
            absl::StrCat("INVALID_ARGUMENT: Invalid id 'c|1'", kIdRule));
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c1", 0, 4, 3))),
            "INVALID_ARGUMENT: Number of IPU-Link domains (3) must divide the number of agents "
            "(4).");
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c1", 0, 34))),
            "INVALID_ARGUMENT: An IPU-Link domain has at most 16 agents; 34 given (try "
            "--num-ipulinkdomains 3).");
  EXPECT_EQ(Text(CreateCluster(ClusterOf("c1", 0, 4, 1, "star"))),
            "INVALID_ARGUMENT: Unknown topology 'star'; use mesh or torus.");
  vipuadmin::Cluster odd = ClusterOf("c1", 0, 4);
  odd.set_cluster_topology("tree");
  EXPECT_EQ(
      Text(CreateCluster(odd)),
      "INVALID_ARGUMENT: Unknown cluster topology 'tree'; use none, mesh, looped or switched.");
  EXPECT_TRUE(controller_->ListClusters().empty());
  EXPECT_TRUE(CreateCluster(ClusterOf("c1", 0, 32, 2, "torus")).ok());
}

TEST_F(ControllerTest, ClusterTopologiesHaveDefaults) {
  CreateAgents(0, 4);
  ASSERT_TRUE(CreateCluster(ClusterOf("one", 0, 2, 0)).ok());
  ASSERT_TRUE(CreateCluster(ClusterOf("two", 2, 2, 2)).ok());
  const auto clusters = controller_->ListClusters();
  EXPECT_EQ(clusters[0].num_ipulinkdomains(), 1u);
  EXPECT_EQ(clusters[0].topology(), "mesh");
  EXPECT_EQ(clusters[0].cluster_topology(), "none");
  EXPECT_EQ(clusters[1].cluster_topology(), "mesh");
}

TEST_F(ControllerTest, ClusterCountsItsIpusAndPartitions) {
  CreatePod(2);
  CreateActive(Wanted("p1", 2));
  const auto clusters = controller_->ListClusters();
  ASSERT_EQ(clusters.size(), 1u);
  EXPECT_EQ(clusters[0].num_ipus(), 8u);
  EXPECT_EQ(clusters[0].free_ipus(), 6u);
  EXPECT_EQ(clusters[0].num_partitions(), 1u);
  EXPECT_EQ(clusters[0].allocation_ids(0), "c1");
}

TEST_F(ControllerTest, EveryClusterHasItsDefaultAllocation) {
  CreatePod(2);
  const auto allocations = controller_->ListAllocations();
  ASSERT_EQ(allocations.size(), 1u);
  EXPECT_EQ(allocations[0].id(), "c1");
  EXPECT_EQ(allocations[0].cluster_id(), "c1");
  EXPECT_EQ(allocations[0].agent_ids_size(), 2);
}

TEST_F(ControllerTest, WhatIsInUseCannotBeRemoved) {
  CreatePod(2);
  CreateActive(Wanted("p1", 2));
  EXPECT_EQ(Text(controller_->RemoveAgent("ag1", "root")),
            "FAILED_PRECONDITION: Agent ag1 is in use by cluster c1.");
  EXPECT_EQ(Text(controller_->RemoveCluster("c1", "root")),
            "FAILED_PRECONDITION: Cluster c1 is in use by partition p1.");
  EXPECT_EQ(Text(controller_->RemoveCluster("c2", "root")),
            "NOT_FOUND: Cluster c2 does not exist.");
  ASSERT_TRUE(Remove("p1").ok());
  EXPECT_TRUE(controller_->RemoveCluster("c1", "root").ok());
  EXPECT_TRUE(controller_->RemoveAgent("ag1", "root").ok());
  EXPECT_TRUE(controller_->ListAllocations().empty());
  EXPECT_EQ(controller_->ListAgents().size(), 1u);
}

}  // namespace
}  // namespace vpod::controller
