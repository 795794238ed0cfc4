// Tests of the controller's start from its store.
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include "server/controller/controller_fixture.h"

namespace vpod::controller {
namespace {

class LoadTest : public ControllerTest {
 protected:
  // Two clusters of two machines; p1 has ag0, p2 half of ag1.
  LoadTest() {
    Register(0, 4);
    CreateAgents(0, 4);
    EXPECT_TRUE(CreateCluster(ClusterOf("c1", 0, 2)).ok());
    EXPECT_TRUE(CreateCluster(ClusterOf("c2", 2, 2)).ok());
    EXPECT_TRUE(Create("p1", 4).ok());
    EXPECT_TRUE(Create("p2", 2).ok());
  }

  template <class Message>
  Message Stored(const std::string& kind, const std::string& id) {
    Message message;
    EXPECT_TRUE(message.ParseFromString(store_->Load(kind)->at(id)));
    return message;
  }
  // Returns the error of a start with the object changed; the store then is as it was.
  template <class Message, class Edit>
  std::string StartWith(const std::string& kind, const std::string& id, const Edit& edit) {
    const auto object = Stored<Message>(kind, id);
    Message changed = object;
    edit(changed);
    EXPECT_TRUE(store_->Commit({{kind, id, changed.SerializeAsString()}}).ok());
    const auto controller = Controller::Create(store_.get(), &gateway_);
    EXPECT_EQ(store_->Load(kind)->at(id), changed.SerializeAsString());
    EXPECT_TRUE(store_->Commit({{kind, id, object.SerializeAsString()}}).ok());
    return Text(controller.status());
  }
  template <class Edit>
  std::string StartWithPartition(const Edit& edit) {
    return StartWith<store::StoredPartition>("partition", "p2", edit);
  }
  template <class Edit>
  std::string StartWithCluster(const Edit& edit) {
    return StartWith<store::StoredCluster>("cluster", "c2", edit);
  }
};

TEST_F(LoadTest, PartitionsThatCannotBeAreRefusedByName) {
  EXPECT_EQ(StartWithPartition([](auto&) {}), "OK: ");
  EXPECT_EQ(
      StartWithPartition([](auto& p) { p.set_first_ipu(3); }),
      "DATA_LOSS: storage: partition p2 has IPUs that partition p1 has too; restore a backup");
  EXPECT_EQ(
      StartWithPartition([](auto& p) { p.set_first_ipu(0); }),
      "DATA_LOSS: storage: partition p2 has IPUs that partition p1 has too; restore a backup");
  for (const uint32_t first : {7u, 8u, UINT32_MAX}) {
    EXPECT_EQ(StartWithPartition([&](auto& p) { p.set_first_ipu(first); }),
              "DATA_LOSS: storage: partition p2 names IPUs of allocation c1 that do not exist; "
              "restore a backup");
  }
  EXPECT_EQ(StartWithPartition([](auto& p) { p.mutable_requirements()->set_num_gcds(0); }),
            "DATA_LOSS: storage: partition p2 has 2 IPUs in 0 GCDs; restore a backup");
  EXPECT_EQ(StartWithPartition([](auto& p) { p.mutable_requirements()->set_num_gcds(4); }),
            "DATA_LOSS: storage: partition p2 has 2 IPUs in 4 GCDs; restore a backup");
  EXPECT_EQ(StartWithPartition([](auto& p) { p.mutable_requirements()->set_size(0); }),
            "DATA_LOSS: storage: partition p2 has 0 IPUs in 1 GCD; restore a backup");
  EXPECT_EQ(StartWithPartition([](auto& p) { p.mutable_requirements()->set_id("p1"); }),
            "DATA_LOSS: storage: partition p2 is damaged; restore a backup");
}

TEST_F(LoadTest, AgentsClustersAndAllocationsThatCannotBeAreRefusedByName) {
  EXPECT_EQ(StartWith<store::StoredAgent>("agent", "ag1", [](auto& a) { a.set_host(Host(0)); }),
            "DATA_LOSS: storage: agent ag1 has the address of agent ag0; restore a backup");
  EXPECT_EQ(StartWithCluster([](auto& c) { c.set_agent_ids(0, "ag9"); }),
            "DATA_LOSS: storage: cluster c2 names agent ag9 that does not exist; restore a backup");
  for (const char* twice : {"ag0", "ag3"}) {
    EXPECT_EQ(StartWithCluster([&](auto& c) { c.set_agent_ids(0, twice); }),
              absl::StrCat("DATA_LOSS: storage: cluster c2 names agent ", twice,
                           " that is in a cluster already; restore a backup"));
  }
  EXPECT_EQ(StartWithCluster([](auto& c) { c.clear_agent_ids(); }),
            "DATA_LOSS: storage: cluster c2 has 0 agents in 1 IPU-Link domain; restore a backup");
  vipuadmin::Allocation allocation;
  allocation.set_cluster_id("c2");
  for (const char* id : {"a", "b"}) {
    allocation.set_id(id);
    allocation.clear_agent_ids();
    allocation.add_agent_ids(id[0] == 'a' ? "ag2" : "ag3");
    ASSERT_TRUE(controller_->CreateAllocation(allocation, "root").ok());
  }
  EXPECT_EQ(StartWith<store::StoredAllocation>("allocation", "b",
                                               [](auto& a) { a.set_agent_ids(0, "ag2"); }),
            "DATA_LOSS: storage: allocation b names agent ag2 that is in an allocation already; "
            "restore a backup");
}

TEST_F(LoadTest, PartitionOfAnOlderVersionGetsAFabricKey) {
  auto old = Stored<store::StoredPartition>("partition", "p1");
  const std::string other = Stored<store::StoredPartition>("partition", "p2").fabric_key();
  old.clear_fabric_key();
  ASSERT_TRUE(store_->Commit({{"partition", "p1", old.SerializeAsString()}}).ok());
  Start();
  const auto now = Stored<store::StoredPartition>("partition", "p1");
  EXPECT_FALSE(now.fabric_key().empty());
  EXPECT_GT(now.generation(), old.generation());
  EXPECT_EQ(Stored<store::StoredPartition>("partition", "p2").fabric_key(), other);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  Register(0, 4);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  Start();
  EXPECT_EQ(Stored<store::StoredPartition>("partition", "p1").generation(), now.generation());
}

// Older controllers kept with a partition whatever its creator had sent.
TEST_F(LoadTest, WhatNobodyKnowsIsNotShown) {
  auto stored = Stored<store::StoredPartition>("partition", "p1");
  auto* requirements = stored.mutable_requirements();
  requirements->GetReflection()
      ->MutableUnknownFields(requirements)
      ->AddLengthDelimited(1000, std::string(1 << 20, 'x'));
  ASSERT_TRUE(store_->Commit({{"partition", "p1", stored.SerializeAsString()}}).ok());
  Start();
  for (const vipuuser::Partition& partition : controller_->ListPartitions())
    EXPECT_LT(partition.ByteSizeLong(), 1000u) << partition.requirements().id();
}

// Older controllers cut texts inside characters.
TEST_F(LoadTest, EventsThatAreNoTextAreShownAsSuch) {
  StartAfter("UPDATE events SET text = CAST(x'63757420c3' AS TEXT) WHERE number = 1");
  const auto events = controller_->ListEvents({});
  ASSERT_TRUE(events.ok()) << events.status();
  EXPECT_EQ((*events)[0].text, "cut \uFFFD");
}

}  // namespace
}  // namespace vpod::controller
