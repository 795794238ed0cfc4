// Allocations, and what users find in them.
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "server/controller/controller.h"
#include "server/controller/controller_fixture.h"

namespace vpod::controller {
namespace {

class AllocationsTest : public ControllerTest {
 protected:
  absl::Status CreateAllocation(const std::string& id, const std::vector<std::string>& agents) {
    vipuadmin::Allocation allocation;
    allocation.set_id(id);
    allocation.set_cluster_id("c1");
    for (const std::string& agent : agents) allocation.add_agent_ids(agent);
    return controller_->CreateAllocation(allocation, "root");
  }
  absl::Status UpdateAllocation(const std::string& id, const std::vector<std::string>& agents) {
    vipuadmin::UpdateAllocationRequest request;
    request.set_id(id);
    for (const std::string& agent : agents) request.mutable_agent_ids()->add_names(agent);
    return controller_->UpdateAllocation(request, "root");
  }
  // "a: ag0 ag1, c1: ag2 ag3"
  std::string Listed() {
    std::vector<std::string> words;
    for (const auto& allocation : controller_->ListAllocations())
      words.push_back(
          absl::StrCat(allocation.id(), ": ", absl::StrJoin(allocation.agent_ids(), " ")));
    return absl::StrJoin(words, ", ");
  }
  absl::Status CreateIn(const std::string& allocation, const std::string& id, uint32_t size) {
    vipuuser::PartitionRequirements wanted = Wanted(id, size);
    wanted.set_allocation_id(allocation);
    return Create(wanted);
  }
};

TEST_F(AllocationsTest, DefaultHasTheAgentsThatAreInNoOther) {
  CreatePod(4);
  ASSERT_TRUE(CreateAllocation("a", {"ag2", "ag0"}).ok());
  EXPECT_EQ(Listed(), "a: ag0 ag2, c1: ag1 ag3");  // in cluster order
  ASSERT_TRUE(CreateAllocation("b", {"ag1", "ag3"}).ok());
  EXPECT_EQ(Listed(), "a: ag0 ag2, b: ag1 ag3");  // hidden while empty
  EXPECT_EQ(Text(CreateIn("c1", "p", 1)), "NOT_FOUND: Allocation c1 does not exist.");
  EXPECT_EQ(controller_->ListClusters()[0].allocation_ids_size(), 2);
  ASSERT_TRUE(UpdateAllocation("a", {"ag0"}).ok());
  EXPECT_EQ(Listed(), "a: ag0, b: ag1 ag3, c1: ag2");
  ASSERT_TRUE(controller_->RemoveAllocation("b", "root").ok());
  Start();
  EXPECT_EQ(Listed(), "a: ag0, c1: ag1 ag2 ag3");
}

TEST_F(AllocationsTest, MembersAreAgentsOfTheClusterInNoOtherAllocation) {
  CreatePod(2);
  CreateAgents(2, 1);
  EXPECT_EQ(Text(CreateAllocation("a", {})),
            "INVALID_ARGUMENT: An allocation needs at least one agent.");
  EXPECT_EQ(Text(CreateAllocation("a", {"ag2"})),
            "INVALID_ARGUMENT: Agent ag2 is not in cluster c1.");
  EXPECT_EQ(Text(CreateAllocation("a", {"ag9"})), "NOT_FOUND: Agent ag9 does not exist.");
  EXPECT_EQ(Text(CreateAllocation("c1", {"ag0"})), "ALREADY_EXISTS: Allocation c1 already exists.");
  ASSERT_TRUE(CreateAllocation("a", {"ag0"}).ok());
  EXPECT_EQ(Text(CreateAllocation("b", {"ag0"})),
            "ALREADY_EXISTS: Agent ag0 is already in allocation a.");
  EXPECT_EQ(Text(CreateCluster(ClusterOf("a", 2, 1))),
            "ALREADY_EXISTS: Allocation a already exists.");
}

TEST_F(AllocationsTest, WhatIsInUseStays) {
  CreatePod(4);
  CreateActive(Wanted("p1", 4));
  EXPECT_EQ(Text(CreateAllocation("a", {"ag0"})),
            "FAILED_PRECONDITION: Agent ag0 is in use by partition p1.");
  ASSERT_TRUE(CreateAllocation("a", {"ag1"}).ok());
  ASSERT_TRUE(CreateIn("a", "p2", 2).ok());
  EXPECT_EQ(Text(controller_->RemoveAllocation("a", "root")),
            "FAILED_PRECONDITION: Allocation a is in use by partition p2.");
  EXPECT_EQ(Text(UpdateAllocation("a", {"ag2"})),
            "FAILED_PRECONDITION: Agent ag1 is in use by partition p2.");
  EXPECT_TRUE(UpdateAllocation("a", {"ag1", "ag2"}).ok());
  ASSERT_TRUE(Remove("p1").ok());
  ASSERT_TRUE(Remove("p2").ok());
  EXPECT_EQ(Text(controller_->RemoveCluster("c1", "root")),
            "FAILED_PRECONDITION: Cluster c1 is in use by allocation a.");
  EXPECT_EQ(controller_->RemoveAllocation("c1", "root").code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(AllocationsTest, PartitionsNeverSpanTwo) {
  CreatePod(4);
  ASSERT_TRUE(CreateAllocation("a", {"ag1", "ag2"}).ok());
  EXPECT_EQ(Text(Create("p", 16)),
            "RESOURCE_EXHAUSTED: Size 16 exceeds every allocation of user alice (at most 8).");
  // ag0 and ag3 are no neighbours.
  EXPECT_EQ(Text(CreateIn("c1", "p", 8)),
            "RESOURCE_EXHAUSTED: No 8 free IPUs in allocation c1 (8 free, largest free block 4).");
  ASSERT_TRUE(CreateIn("a", "p", 8).ok());
  EXPECT_EQ(Get("p").gcds(0).devices(0).agent_id(), "ag1");
}

TEST_F(AllocationsTest, AllocationAndClusterMustAgree) {
  CreatePod(2);
  CreateAgents(2, 1);
  ASSERT_TRUE(CreateCluster(ClusterOf("c2", 2, 1)).ok());
  ASSERT_TRUE(CreateAllocation("a", {"ag1"}).ok());
  vipuuser::PartitionRequirements wanted = Wanted("p", 1);
  wanted.set_allocation_id("a");
  wanted.set_cluster_id("c2");
  EXPECT_EQ(Text(Create(wanted)), "INVALID_ARGUMENT: Allocation a is in cluster c1, not c2.");
  wanted.clear_allocation_id();
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(Get("p").requirements().allocation_id(), "c2");
  // The first of the cluster.
  wanted = Wanted("q", 1);
  wanted.set_cluster_id("c1");
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(Get("q").requirements().allocation_id(), "a");
}

TEST_F(AllocationsTest, CallersFindRoomWhereTheyMay) {
  CreatePod(2);
  ASSERT_TRUE(CreateAllocation("a", {"ag0"}).ok());
  const Caller bob = {
      .user_id = "bob", .admin = false, .allocation_ids = std::set<std::string>{"c1"}};
  vipuuser::CreatePartitionRequest request;
  *request.mutable_requirements() = Wanted("p", 1);
  ASSERT_TRUE(controller_->CreatePartition(request, bob).ok());
  EXPECT_EQ(Get("p").requirements().allocation_id(), "c1");
  EXPECT_EQ(*controller_->AvailablePartitions(1, bob), 3u);
  *request.mutable_requirements() = Wanted("q", 1);
  request.mutable_requirements()->set_allocation_id("a");
  EXPECT_EQ(Text(controller_->CreatePartition(request, bob).status()),
            "PERMISSION_DENIED: User bob may not use allocation a.");
}

TEST_F(AllocationsTest, ClusterGrowsAndShrinksAroundItsPartitions) {
  CreatePod(2);
  Register(2, 2, "process-2");
  gateway_.ConfirmAll();
  CreateAgents(2, 2);
  CreateActive(Wanted("p1", 4));
  const auto update = [&](const std::vector<std::string>& agents) {
    vipuadmin::UpdateClusterRequest request;
    request.set_id("c1");
    for (const std::string& agent : agents) request.add_agent_ids(agent);
    return controller_->UpdateCluster(request, "root");
  };
  EXPECT_EQ(Text(update({"ag1", "ag0"})),
            "FAILED_PRECONDITION: Cluster c1 is in use by partition p1, whose agents must keep "
            "their places in their IPU-Link domains.");
  ASSERT_TRUE(update({"ag0", "ag3", "ag2", "ag1"}).ok());
  EXPECT_EQ(Listed(), "c1: ag0 ag3 ag2 ag1");
  CreateActive(Wanted("p2", 8));
  EXPECT_EQ(Get("p2").gcds(0).devices(0).agent_id(), "ag2");
  ASSERT_TRUE(Remove("p2").ok());
  ASSERT_TRUE(update({"ag0", "ag3"}).ok());
  EXPECT_EQ(controller_->GetAgent("ag1")->cluster_id(), "");
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

}  // namespace
}  // namespace vpod::controller
