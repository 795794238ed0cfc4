// Commands about partitions: what they ask, what they print, which files they write.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "device/base/file.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tools/vipu/cli_fixture.h"

namespace vpod::tools {
namespace {

using nlohmann::json;

// Returns the controller's partition: p1 of 4 reconfigurable IPUs in two GCDs.
vipuuser::GetPartitionReply ExistingPartition() {
  vipuuser::GetPartitionReply reply;
  auto* r = reply.mutable_partition()->mutable_requirements();
  r->set_id("p1");
  r->set_size(4);
  r->set_allocation_id("a1");
  r->set_cluster_id("c1");
  r->set_reconfigurable(true);
  r->set_num_gcds(2);
  r->set_num_replicas(2);
  r->set_sync_type("ST_C2_COMPATIBLE");
  r->set_ipu_link_routing("DNC");
  r->set_gw_link_routing("DEFAULT");
  r->set_num_ilds(1);
  r->set_shared(false);
  reply.mutable_partition()->mutable_status()->set_state(vipuuser::PS_ACTIVE);
  for (uint32_t gcd = 0; gcd < 2; ++gcd) {
    for (uint32_t i = 0; i < 2; ++i) {
      auto* device = reply.mutable_partition()->add_gcds()->add_devices();
      device->set_agent_id("ag0");
      device->set_routing_id(i);
    }
  }
  return reply;
}

TEST_F(CliTest, CreatePartitionSendsEveryFlag) {
  ExpectSuccess(
      "vipu create partition p1 --size=8 --gcds 2 --gcd-sync-replicas 4 --routing dnc --gw-routing "
      "ring --sync-type pod-native-default --allocation a1 --index 0 --num-ilds 2 --no-auto-reset "
      "--relocatable --shared --no-wait");
  EXPECT_EQ(out_, "create partition (p1): success.\n");
  const auto request = controller_.Last<vipuuser::CreatePartitionRequest>("CreatePartition");
  EXPECT_FALSE(request.request_id().empty());
  EXPECT_TRUE(request.disable_auto_reset());
  EXPECT_TRUE(request.relocatable());
  const auto& r = request.requirements();
  EXPECT_EQ(r.id(), "p1");
  EXPECT_EQ(r.size(), 8u);
  EXPECT_EQ(r.num_gcds(), 2u);
  EXPECT_EQ(r.num_replicas(), 4u);
  EXPECT_EQ(r.ipu_link_routing(), "dnc");
  EXPECT_EQ(r.gw_link_routing(), "ring");
  EXPECT_EQ(r.sync_type(), "pod-native-default");
  EXPECT_EQ(r.allocation_id(), "a1");
  EXPECT_TRUE(r.has_index());
  EXPECT_EQ(r.num_ilds(), 2u);
  EXPECT_TRUE(r.shared());
  EXPECT_FALSE(r.reconfigurable());
}

TEST_F(CliTest, CreatePartitionEndsWithTheErrorOfAPartitionThatFails) {
  vipuuser::GetPartitionStatusReply reply;
  reply.mutable_status()->set_state(vipuuser::PS_ERROR);
  reply.mutable_status()->set_message("Agent ag0 does not answer.");
  controller_.Answer("GetPartitionStatus", {&reply});
  EXPECT_EQ(Run("vipu create partition p1 --size 4"), 1);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(err_,
            "create partition (p1): failed. Partition is in state ERROR: Agent ag0 does not "
            "answer.\n");
}

TEST_F(CliTest, UpdatePartitionChangesOnlyWhatFlagsSay) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu update partition p1 --total-num-replicas 4 --no-wait");
  auto request = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition");
  EXPECT_EQ(request.requirements().num_replicas(), 4u);
  auto unchanged = request.requirements();
  unchanged.set_num_replicas(2);
  EXPECT_EQ(unchanged.SerializeAsString(), existing.partition().requirements().SerializeAsString());

  ExpectSuccess("vipu update partition p1 --relocatable --no-auto-reset=false --no-wait");
  request = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition");
  EXPECT_TRUE(request.relocatable());
  EXPECT_FALSE(request.disable_auto_reset());
}

TEST_F(CliTest, UpdatePartitionNeedsAFlagThatChangesSomething) {
  const std::string rule =
      "update partition needs at least one of --size, --num-gcds, --reconfigurable, "
      "--gcd-sync-replicas, --total-num-replicas, --routing, --gw-routing, --sync-type, --cluster, "
      "--allocation, --index, --num-ilds, --shared, --no-auto-reset and --relocatable.";
  ExpectUsageError("vipu update partition p1", rule);
  ExpectUsageError("vipu update partition p1 --no-wait --timeout 5", rule);
}

TEST_F(CliTest, IdsInFlagsHaveTheirRule) {
  const std::string rule =
      "Ids have 1 to 63 letters, digits, '.', '_' and '-' and begin with a letter or digit.";
  for (const auto& [line, wrong] : std::vector<std::pair<std::string, std::string>>{
           {"vipu create partition p --size 1 --allocation a/1",
            "--allocation: Invalid id 'a/1'. "},
           {"vipu create partition p --size 1 --cluster c1,c2", "--cluster: Invalid id 'c1,c2'. "},
           {"vipu-admin create cluster c --agents ag0,-ag1", "--agents: Invalid id '-ag1'. "},
           {"vipu-admin update allocation a --users bob,a|b", "--users: Invalid id 'a|b'. "},
           {"vipu-admin create user u --allocations a:1", "--allocations: Invalid id 'a:1'. "}})
    ExpectUsageError(line, absl::StrCat("Flag ", wrong, rule));
}

TEST_F(CliTest, UpdatePartitionChoosesAgainWhatFollowsFromTheChange) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu update partition p1 --size 16 --no-wait");
  auto r = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition").requirements();
  EXPECT_EQ(r.size(), 16u);
  EXPECT_TRUE(r.reconfigurable());
  EXPECT_EQ(r.ipu_link_routing(), "");
  EXPECT_EQ(r.num_ilds(), 0u);
  EXPECT_EQ(r.allocation_id(), "a1");
  ExpectSuccess("vipu update partition p1 --reconfigurable=false --num-gcds 1 --no-wait");
  r = controller_.Last<vipuuser::UpdatePartitionRequest>("UpdatePartition").requirements();
  EXPECT_FALSE(r.reconfigurable());
  EXPECT_EQ(r.sync_type(), "");
  EXPECT_EQ(r.num_gcds(), 1u);
  EXPECT_EQ(r.num_replicas(), 0u);
  EXPECT_EQ(r.ipu_link_routing(), "DNC");
}

TEST_F(CliTest, ResetAndUpdateRewriteOnlyFilesThatAreThere) {
  const auto existing = ExistingPartition();
  vipuuser::GetPartitionStatusReply status;
  *status.mutable_status() = existing.partition().status();
  controller_.Answer("GetPartition", {&existing});
  controller_.Answer("GetPartitionStatus", {&status});
  const fs::path file = directory_ / "ipuof/p1_gcd0.conf";
  for (const char* command : {"vipu reset partition p1", "vipu update partition p1 --shared"}) {
    ExpectSuccess(command);
    EXPECT_FALSE(fs::exists(directory_ / "ipuof")) << command;
  }
  ExpectSuccess("vipu create partition p1 --size 4 --num-gcds 2");
  for (const char* command : {"vipu reset partition p1", "vipu update partition p1 --shared"}) {
    ASSERT_TRUE(fs::exists(file));
    std::ofstream(file) << "{}";
    ExpectSuccess(command);
    EXPECT_NE(base::ReadFile(file).find("\"devices\""), std::string::npos) << command;
  }
}

TEST_F(CliTest, ListPartitionsNamesTheDevicesInJson) {
  vipuuser::ListPartitionsReply list;
  *list.add_partitions() = ExistingPartition().partition();
  controller_.Answer("ListPartitions", {&list});
  ExpectSuccess("vipu list partitions --showjson");
  EXPECT_EQ(json::parse(out_).at(0).at("partition").at("spec").at("ipus").size(), 4u);
  using Request = vipuuser::ListPartitionsRequest;
  EXPECT_TRUE(controller_.Last<Request>("ListPartitions").with_devices());
  ExpectSuccess("vipu list partitions");
  EXPECT_FALSE(controller_.Last<Request>("ListPartitions").with_devices());
}

TEST_F(CliTest, GetPartitionShowsOneGcdOnRequest) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu get partition p1 --gcd 1");
  EXPECT_NE(out_.find("\n GCD 1\n"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("\n GCD 0\n"), std::string::npos) << out_;
  EXPECT_EQ(Run("vipu get partition p1 --gcd 2"), 1);
  EXPECT_EQ(err_, "get partition (p1): failed. Partition has 2 GCDs; GCD 2 does not exist.\n");
}

TEST_F(CliTest, IpuofConfigurationsInJsonAreOneList) {
  const auto existing = ExistingPartition();
  controller_.Answer("GetPartition", {&existing});
  ExpectSuccess("vipu get partition p1 --ipuof-configs --showjson");
  EXPECT_EQ(json::parse(out_, nullptr, false).size(), 2u) << out_;
  ExpectSuccess("vipu get partition p1 --ipuof-configs --gcd 1 --showjson");
  EXPECT_TRUE(json::parse(out_, nullptr, false).is_object()) << out_;
}

TEST_F(CliTest, WaitPartitionEndsInTheStateOrAtTheTimeout) {
  vipuuser::GetPartitionStatusReply status;
  status.mutable_status()->set_state(vipuuser::PS_ACTIVE);
  controller_.Answer("GetPartitionStatus", {&status});
  ExpectSuccess("vipu wait partition p1 --for ACTIVE --timeout 30s");
  EXPECT_EQ(out_, "wait partition (p1): success.\n");
  EXPECT_EQ(Run("vipu wait partition p1 --for removed --timeout 500ms"), 1);
  EXPECT_EQ(err_, "wait partition (p1): failed. No result within 0.5 s; partition is ACTIVE.\n");
  EXPECT_EQ(out_, "");
  // An ERROR may heal.
  status.mutable_status()->set_state(vipuuser::PS_ERROR);
  status.mutable_status()->set_message("Agent ag0 does not answer.");
  controller_.Answer("GetPartitionStatus", {&status});
  EXPECT_EQ(Run("vipu wait partition p1 --for active --timeout 500ms"), 1);
  EXPECT_EQ(err_,
            "wait partition (p1): failed. No result within 0.5 s; partition is ERROR: Agent ag0 "
            "does not answer.\n");
  ExpectSuccess("vipu wait partition p1 --for error");
}

TEST_F(CliTest, WaitPartitionKnowsThatItIsGone) {
  vipuuser::GetPartitionStatusReply status;
  status.mutable_status()->set_state(vipuuser::PS_REMOVED);
  controller_.Answer("GetPartitionStatus", {&status});
  ExpectSuccess("vipu wait partition p1 --for removed");
  EXPECT_EQ(Run("vipu wait partition p1 --for active"), 1);
  EXPECT_EQ(err_, "wait partition (p1): failed. Partition was removed.\n");
  controller_.Answer("GetPartitionStatus", {}, absl::NotFoundError("Partition p1 does not exist."));
  ExpectSuccess("vipu wait partition p1 --for removed");
  EXPECT_EQ(Run("vipu wait partition p1 --for active"), 1);
  EXPECT_EQ(err_, "wait partition (p1): failed. Partition p1 does not exist.\n");
  ExpectUsageError("vipu wait partition p1 --for gone",
                   "Flag --for is one of active|removed|pending|error, not 'gone'.");
  ExpectUsageError("vipu wait partition p1", "wait partition needs --for.");
}

}  // namespace
}  // namespace vpod::tools
