// Rules and placement of partitions.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"
#include "server/controller/controller_fixture.h"

namespace vpod::controller {
namespace {

using PartitionsTest = ControllerTest;

TEST_F(PartitionsTest, IdsAreGoodAndUnique) {
  CreatePod(1);
  EXPECT_EQ(Text(Create("p 1", 1)).rfind("INVALID_ARGUMENT: Invalid id 'p 1'.", 0), 0u);
  ASSERT_TRUE(Create("p1", 1).ok());
  EXPECT_EQ(Text(Create("p1", 1)), "ALREADY_EXISTS: Partition p1 already exists.");
}

TEST_F(PartitionsTest, CreatingAgainWithTheSameRequestIdSucceedsOnce) {
  CreatePod(1);
  ASSERT_TRUE(Create(Wanted("p1", 2), "request-1").ok());
  EXPECT_TRUE(Create(Wanted("p1", 2), "request-1").ok());
  EXPECT_EQ(controller_->ListPartitions().size(), 1u);
  EXPECT_EQ(Text(Create(Wanted("p1", 2), "request-2")),
            "ALREADY_EXISTS: Partition p1 already exists.");
  Start();  // also after a restart of the controller
  EXPECT_TRUE(Create(Wanted("p1", 2), "request-1").ok());
}

TEST_F(PartitionsTest, SizesArePowersOfTwo) {
  CreatePod(8);
  EXPECT_EQ(Text(Create("p9", 24)),
            "INVALID_ARGUMENT: 24 IPUs requested, sizes are powers of two (next: 32).");
  EXPECT_EQ(Text(Create("p9", 65535)),
            "INVALID_ARGUMENT: 65535 IPUs requested, sizes are powers of two (next: 65536).");
  for (const uint32_t size : {0u, 65537u, 0xffffffffu}) {
    EXPECT_EQ(Text(Create("p9", size)),
              absl::StrCat("INVALID_ARGUMENT: ", size,
                           " IPUs requested; use a power of two from 1 to 65536."));
  }
  EXPECT_TRUE(controller_->ListPartitions().empty());
}

TEST_F(PartitionsTest, ASizeThatIsTooLargeIsRefusedWithWhatIsAllowed) {
  CreatePod(3);
  EXPECT_EQ(Text(Create("p9", 64)),
            "RESOURCE_EXHAUSTED: 64 IPUs requested, allocation c1 has 12, which are all of the "
            "POD's; use 8 or less, or a larger POD.");
  vipuuser::PartitionRequirements one_domain = Wanted("p9", 64);
  one_domain.set_reconfigurable(true);
  EXPECT_EQ(Text(Create(one_domain)).rfind("RESOURCE_EXHAUSTED: 64 IPUs requested", 0), 0u);
  vipuadmin::Allocation allocation;
  allocation.set_id("a1");
  allocation.set_cluster_id("c1");
  allocation.add_agent_ids("ag0");
  ASSERT_TRUE(controller_->CreateAllocation(allocation, "root").ok());
  vipuuser::PartitionRequirements wanted = Wanted("p9", 8);
  wanted.set_allocation_id("a1");
  EXPECT_EQ(Text(Create(wanted)),
            "RESOURCE_EXHAUSTED: 8 IPUs requested, allocation a1 has 4 of the POD's 12; use 4 or "
            "less, or another allocation.");
  EXPECT_TRUE(controller_->ListPartitions().empty());
}

TEST_F(PartitionsTest, GcdsDivideTheSizeAndReplicasAreAMultiple) {
  CreatePod(2);
  vipuuser::PartitionRequirements wanted = Wanted("p1", 4);
  wanted.set_num_gcds(3);
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: Number of GCDs must divide the size. 3 GCDs of 4 IPUs requested.");
  wanted.set_num_gcds(8);
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: Number of GCDs must divide the size. 8 GCDs of 4 IPUs requested.");
  wanted.set_num_gcds(2);
  wanted.set_num_replicas(3);
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: Number of replicas must be a multiple of the number of GCDs. 3 "
            "replicas, 2 GCDs requested.");
  wanted.set_num_replicas(wanted.size() + 2);
  EXPECT_EQ(Text(Create(wanted)),
            absl::StrCat("INVALID_ARGUMENT: A replica needs an IPU; give at most ", wanted.size(),
                         " replicas. ", wanted.size() + 2, " replicas of ", wanted.size(),
                         " IPUs requested."));
}

TEST_F(PartitionsTest, KnownCombinationsOfSizeGcdsAndReplicasAreTaken) {
  CreatePod(32, /*ilds=*/2, "torus");
  for (const auto& [size, gcds, replicas] :
       {std::tuple{2u, 1u, 2u}, {4u, 2u, 4u}, {8u, 2u, 8u}, {128u, 32u, 32u}, {128u, 2u, 16u}}) {
    vipuuser::PartitionRequirements wanted = Wanted("p", size);
    wanted.set_num_gcds(gcds);
    wanted.set_num_replicas(replicas);
    EXPECT_TRUE(Create(wanted).ok()) << size;
    EXPECT_TRUE(Remove("p").ok());
  }
}

TEST_F(PartitionsTest, DefaultsAreFilledIn) {
  CreatePod(2);
  ASSERT_TRUE(Create("p1", 4).ok());
  const vipuuser::Partition partition = Get("p1");
  const vipuuser::PartitionRequirements& r = partition.requirements();
  EXPECT_EQ(r.num_gcds(), 1u);
  EXPECT_EQ(r.num_replicas(), 1u);
  EXPECT_EQ(r.num_ilds(), 1u);
  EXPECT_EQ(r.sync_type(), "ST_POD_NATIVE_DEFAULT");
  EXPECT_EQ(r.ipu_link_routing(), "DNC");
  EXPECT_EQ(r.gw_link_routing(), "DEFAULT");
  EXPECT_EQ(r.cluster_id(), "c1");
  EXPECT_EQ(r.allocation_id(), "c1");
  EXPECT_EQ(partition.status().created_by(), "alice");
}

TEST_F(PartitionsTest, SeveralDomainsNeedAGcdEach) {
  CreatePod(2, /*ilds=*/2, "", "looped");
  vipuuser::PartitionRequirements wanted = Wanted("pa1x2", 8);
  wanted.set_num_gcds(1);
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: A partition over 2 ILDs needs at least 2 GCDs.");
  wanted.set_num_gcds(2);
  wanted.set_num_ilds(1);
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: 8 IPUs of cluster c1 lie in 2 IPU-Link domains; 1 requested.");
  wanted.clear_num_ilds();
  wanted.clear_num_gcds();
  wanted.set_gw_link_routing("ring");
  ASSERT_TRUE(Create(wanted).ok());
  const vipuuser::Partition partition = Get("pa1x2");
  EXPECT_EQ(partition.requirements().num_gcds(), 2u);
  EXPECT_EQ(partition.requirements().gw_link_routing(), "RING");
  EXPECT_EQ(partition.status().num_ilds(), 2u);
  EXPECT_EQ(partition.gcds(0).devices(0).ild(), 0u);
  EXPECT_EQ(partition.gcds(1).devices(0).ild(), 1u);
}

TEST_F(PartitionsTest, ReconfigurableNeedsC2CompatibleSyncAndOneDomain) {
  CreatePod(2, /*ilds=*/2);
  vipuuser::PartitionRequirements wanted = Wanted("p1", 4);
  wanted.set_reconfigurable(true);
  wanted.set_sync_type("pod-native-default");
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: Reconfigurable partitions need sync type c2-compatible.");
  wanted.mutable_index()->set_index(0);  // silently replaced together with --index
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(Get("p1").requirements().sync_type(), "ST_C2_COMPATIBLE");
  vipuuser::PartitionRequirements large = Wanted("p2", 8);
  large.set_reconfigurable(true);
  large.set_num_gcds(2);
  EXPECT_EQ(Text(Create(large)),
            "INVALID_ARGUMENT: Reconfigurable partitions cannot use GW-Links.");
}

TEST_F(PartitionsTest, SyncTypesHaveTwoSpellingsInAnyCase) {
  CreatePod(1);
  for (const auto& [spelling, name] : std::vector<std::pair<std::string, std::string>>{
           {"pod-native-default", "ST_POD_NATIVE_DEFAULT"},
           {"ST_POD_NATIVE_DEFAULT", "ST_POD_NATIVE_DEFAULT"},
           {"C2-Compatible", "ST_C2_COMPATIBLE"},
           {"st_c2_compatible", "ST_C2_COMPATIBLE"}}) {
    vipuuser::PartitionRequirements wanted = Wanted("p", 1);
    wanted.set_sync_type(spelling);
    ASSERT_TRUE(Create(wanted).ok()) << spelling;
    EXPECT_EQ(Get("p").requirements().sync_type(), name);
    ASSERT_TRUE(Remove("p").ok());
  }
  vipuuser::PartitionRequirements wanted = Wanted("p", 1);
  wanted.set_sync_type("fast");
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: Unknown sync type 'fast'; use pod-native-default or c2-compatible.");
}

TEST_F(PartitionsTest, RingRoutingNeedsWholeDomainsOfATorus) {
  constexpr char kText[] =
      "INVALID_ARGUMENT: Routing RINGSWNC needs whole IPU-Link domains of a torus cluster.";
  CreatePod(16, 1, "torus");
  vipuuser::PartitionRequirements wanted = Wanted("p", 32);
  wanted.set_ipu_link_routing("ring-swnc");
  EXPECT_EQ(Text(Create(wanted)), kText);
  wanted.set_size(64);
  EXPECT_TRUE(Create(wanted).ok());
  EXPECT_EQ(Get("p").requirements().ipu_link_routing(), "RINGSWNC");
  CreateAgents(16, 4);
  ASSERT_TRUE(CreateCluster(ClusterOf("mesh", 16, 4)).ok());
  wanted = Wanted("q", 16);
  wanted.set_cluster_id("mesh");
  wanted.set_ipu_link_routing("RINGSWNC");
  EXPECT_EQ(Text(Create(wanted)), kText);
  wanted.set_ipu_link_routing("spiral");
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: Unknown routing 'spiral'; use dnc, swnc, ringswnc or btnc.");
  wanted.set_ipu_link_routing("btnc");
  wanted.set_gw_link_routing("star");
  EXPECT_EQ(Text(Create(wanted)),
            "INVALID_ARGUMENT: Unknown GW routing 'star'; use default or ring.");
}

TEST_F(PartitionsTest, GwRingNeedsAllDomainsOfALoop) {
  constexpr char kText[] =
      "INVALID_ARGUMENT: GW routing RING needs all IPU-Link domains of a looped cluster.";
  CreatePod(4, /*ilds=*/4, "", "looped");
  vipuuser::PartitionRequirements wanted = Wanted("p", 8);
  wanted.set_gw_link_routing("ring");
  EXPECT_EQ(Text(Create(wanted)), kText);
  wanted.set_size(16);
  EXPECT_TRUE(Create(wanted).ok());
  ASSERT_TRUE(Remove("p").ok());
  wanted.set_size(4);  // without GW-Links it says nothing
  EXPECT_TRUE(Create(wanted).ok());
  CreateAgents(4, 2);
  ASSERT_TRUE(CreateCluster(ClusterOf("mesh", 4, 2, /*ilds=*/2, "", "mesh")).ok());
  wanted = Wanted("q", 8);
  wanted.set_cluster_id("mesh");
  wanted.set_gw_link_routing("ring");
  EXPECT_EQ(Text(Create(wanted)), kText);
}

// domain size, configuration, topology, gateway mode, instance size
std::vector<std::string> TargetOptions(const vipuuser::PartitionStatus& status) {
  std::vector<std::string> values;
  for (const char* key : {"ipuLinkDomainSize", "ipuLinkConfiguration", "ipuLinkTopology",
                          "gatewayMode", "instanceSize"})
    values.push_back(status.target_options().at(key));
  EXPECT_EQ(status.target_options_size(), 5);
  return values;
}

TEST_F(PartitionsTest, TargetOptionsAreThePublishedOnes) {
  using Values = std::vector<std::string>;
  CreatePod(16, 1, "torus");
  vipuuser::PartitionRequirements wanted = Wanted("p4", 4);
  wanted.set_reconfigurable(true);
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(TargetOptions(StatusOf("p4")), Values({"4", "default", "mesh", "true", "4"}));
  ASSERT_TRUE(Remove("p4").ok());
  ASSERT_TRUE(Create("p64", 64).ok());
  EXPECT_EQ(TargetOptions(StatusOf("p64")), Values({"64", "slidingWindow", "torus", "true", "64"}));
  ASSERT_TRUE(Remove("p64").ok());
  wanted = Wanted("pb", 64);
  wanted.set_ipu_link_routing("btnc");
  wanted.set_num_gcds(16);
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(TargetOptions(StatusOf("pb")), Values({"64", "barleyTwist", "mesh", "true", "4"}));
}

TEST_F(PartitionsTest, WholeMeshDomainIsRoutedSwnc) {
  CreatePod(2);
  ASSERT_TRUE(Create("p8", 8).ok());
  EXPECT_EQ(Get("p8").requirements().ipu_link_routing(), "SWNC");
  EXPECT_EQ(StatusOf("p8").target_options().at("ipuLinkTopology"), "mesh");
}

TEST_F(PartitionsTest, FullAllocationAndTakenPositionsAreRefused) {
  CreatePod(2);
  vipuuser::PartitionRequirements wanted = Wanted("p1", 4);
  wanted.mutable_index()->set_index(1);
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag1");
  wanted.set_id("p2");
  EXPECT_EQ(Text(Create(wanted)), "RESOURCE_EXHAUSTED: Position 1 is in use.");
  EXPECT_EQ(Text(Create("p2", 8)),
            "RESOURCE_EXHAUSTED: No 8 free IPUs in allocation c1 (4 free, largest free block 4).");
}

TEST_F(PartitionsTest, FirstAllocationWithRoomIsTakenUnlessOneIsNamed) {
  EXPECT_EQ(Text(Create("p", 1)), "FAILED_PRECONDITION: There is no cluster; create one first.");
  CreateAgents(0, 3);
  ASSERT_TRUE(CreateCluster(ClusterOf("a", 0, 1)).ok());
  ASSERT_TRUE(CreateCluster(ClusterOf("b", 1, 2)).ok());
  ASSERT_TRUE(Create("p8", 8).ok());
  EXPECT_EQ(Get("p8").requirements().allocation_id(), "b");
  ASSERT_TRUE(Create("p2", 2).ok());
  EXPECT_EQ(Get("p2").requirements().allocation_id(), "a");
  vipuuser::PartitionRequirements wanted = Wanted("p", 1);
  wanted.set_allocation_id("b");
  EXPECT_EQ(Text(Create(wanted)),
            "RESOURCE_EXHAUSTED: No free IPU in allocation b (0 free, largest free block 0).");
  wanted.set_allocation_id("x");
  EXPECT_EQ(Text(Create(wanted)), "NOT_FOUND: Allocation x does not exist.");
  wanted.clear_allocation_id();
  wanted.set_cluster_id("x");
  EXPECT_EQ(Text(Create(wanted)), "NOT_FOUND: Cluster x does not exist.");
}

TEST_F(PartitionsTest, ConfigurationNamesTheDevicesOfItsGcd) {
  CreatePod(2);
  vipuuser::PartitionRequirements wanted = Wanted("pt4", 4);
  wanted.set_num_gcds(2);
  wanted.set_num_replicas(4);
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(Text(controller_->GetPartitionConfig("pt4", 0).status()),
            "FAILED_PRECONDITION: Partition pt4 is not ACTIVE (state PENDING).");
  gateway_.ConfirmAll();
  EXPECT_EQ(Text(controller_->GetPartitionConfig("pt4", std::nullopt).status()),
            "INVALID_ARGUMENT: Partition has 2 GCDs; give a GCD id.");
  EXPECT_EQ(Text(controller_->GetPartitionConfig("pt4", 2).status()),
            "INVALID_ARGUMENT: Partition has 2 GCDs; GCD 2 does not exist.");
  EXPECT_EQ(Text(controller_->GetPartitionConfig("p", 0).status()),
            "NOT_FOUND: Partition p does not exist.");
  const auto config = controller_->GetPartitionConfig("pt4", 1);
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->devices_size(), 2);
  EXPECT_EQ(config->devices(0).ip(), "10.1.5.1");
  EXPECT_EQ(config->devices(0).server_port(), 11001u);
  EXPECT_EQ(config->devices(0).rdma_port(), 11101u);
  EXPECT_EQ(config->devices(0).agent_id(), "ag0");
  EXPECT_EQ(config->devices(0).pcie_id(), 1u);
  EXPECT_EQ(config->devices(0).routing_id(), 0u);
  EXPECT_EQ(config->devices(0).endpoint(), "process-1");
  EXPECT_EQ(config->devices(1).pcie_id(), 0u);
  EXPECT_EQ(config->attributes().at("GCD Id"), "1");
  EXPECT_EQ(config->attributes().at("Partition Id"), "pt4");
  EXPECT_EQ(config->attributes().at("Number of GCDs"), "2");
  EXPECT_EQ(config->attributes().at("Number of replicas"), "4");
  EXPECT_EQ(config->attributes().at("Reconfigurable"), "false");
  EXPECT_EQ(config->attributes().at("Sync type"), "ST_POD_NATIVE_DEFAULT");
  EXPECT_EQ(config->attributes().at("instanceSize"), "2");
}

TEST_F(PartitionsTest, OnlyGcdNeedsNoNumber) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  const auto config = controller_->GetPartitionConfig("p1", std::nullopt);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices_size(), 4);
}

TEST_F(PartitionsTest, UpdateRebuildsUnderTheSameId) {
  CreatePod(2);
  CreateActive(Wanted("p1", 2));
  const uint64_t generation = StatusOf("p1").generation();
  vipuuser::PartitionRequirements wanted = Wanted("p1", 8);
  wanted.set_num_gcds(2);
  ASSERT_TRUE(Update(wanted).ok());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_GT(StatusOf("p1").generation(), generation);
  EXPECT_EQ(Get("p1").requirements().size(), 8u);
  EXPECT_EQ(Get("p1").gcds_size(), 2);
  EXPECT_EQ(StatusOf("p1").created_by(), "alice");
}

TEST_F(PartitionsTest, RefusedUpdateLeavesThePartitionAsItWas) {
  CreatePod(2);
  CreateActive(Wanted("p1", 2));
  const std::string before = Get("p1").DebugString();
  EXPECT_FALSE(Update(Wanted("p1", 16)).ok());
  EXPECT_FALSE(Update(Wanted("p1", 3)).ok());
  EXPECT_EQ(Get("p1").DebugString(), before);
  EXPECT_EQ(Text(Update(Wanted("p2", 2))), "NOT_FOUND: Partition p2 does not exist.");
}

TEST_F(PartitionsTest, UpdateLeavesThePartitionWhereItIs) {
  CreatePod(4);
  CreateActive(Wanted("p0", 8));
  CreateActive(Wanted("p1", 4));
  ASSERT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag2");
  ASSERT_TRUE(Remove("p0").ok());
  vipuuser::PartitionRequirements wanted = Wanted("p1", 4);
  wanted.set_shared(true);
  ASSERT_TRUE(Update(wanted).ok());
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag2");
  ASSERT_TRUE(Update(Wanted("p1", 2)).ok());  // another size goes where it fits best
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag0");
  wanted.mutable_index()->set_index(3);
  ASSERT_TRUE(Update(wanted).ok());
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag3");
}

TEST_F(PartitionsTest, RemovedStatusIsAnsweredForAMinute) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  ASSERT_TRUE(Remove("p1").ok());
  EXPECT_TRUE(controller_->ListPartitions().empty());
  EXPECT_EQ(Text(controller_->GetPartition("p1").status()),
            "NOT_FOUND: Partition p1 does not exist.");
  Advance(std::chrono::seconds(60));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_REMOVED);
  Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(Text(controller_->GetPartitionStatus("p1").status()),
            "NOT_FOUND: Partition p1 does not exist.");
  EXPECT_EQ(Text(Remove("p1")), "NOT_FOUND: Partition p1 does not exist.");
  EXPECT_EQ(Text(Reset("p1")), "NOT_FOUND: Partition p1 does not exist.");
}

TEST_F(PartitionsTest, RemovedStatusIsAnsweredForTheLastOnes) {
  options_.most_removed_kept = 2;
  Start();
  CreatePod(1);
  for (const char* id : {"p1", "p2", "p3"}) {
    CreateActive(Wanted(id, 4));
    ASSERT_TRUE(Remove(id).ok());
  }
  EXPECT_EQ(Text(controller_->GetPartitionStatus("p1").status()),
            "NOT_FOUND: Partition p1 does not exist.");
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_REMOVED);
  EXPECT_EQ(StateOf("p3"), vipuuser::PS_REMOVED);
}

// Writes down what it is asked about, and allows it or not.
class Asked {
 public:
  PartitionCheck Check(bool allowed) {
    return [this, allowed](const PartitionAccess& access) {
      accesses.push_back(access);
      return allowed ? absl::OkStatus() : absl::PermissionDeniedError("no");
    };
  }
  std::vector<PartitionAccess> accesses;
};

TEST_F(PartitionsTest, RemovedPartitionIsStillItsOwners) {
  CreatePod(1);
  vipuuser::PartitionRequirements wanted = Wanted("p1", 4);
  wanted.set_shared(true);
  CreateActive(wanted);
  ASSERT_TRUE(Remove("p1").ok());
  Asked asked;
  EXPECT_EQ(Text(controller_->GetPartitionStatus("p1", asked.Check(false)).status()),
            "PERMISSION_DENIED: no");
  ASSERT_EQ(asked.accesses.size(), 1u);
  EXPECT_EQ(asked.accesses[0].id, "p1");
  EXPECT_EQ(asked.accesses[0].allocation_id, "c1");
  EXPECT_EQ(asked.accesses[0].created_by, "alice");
  EXPECT_TRUE(asked.accesses[0].shared);
  vipuuser::CreatePartitionRequest again;
  *again.mutable_requirements() = Wanted("p1", 4);
  ASSERT_TRUE(controller_->CreatePartition(again, Anyone("bob")).ok());
  ASSERT_TRUE(controller_->GetPartitionStatus("p1", asked.Check(true)).ok());
  EXPECT_EQ(asked.accesses[1].created_by, "bob");
}

TEST_F(PartitionsTest, ACallThatIsRefusedChangesNothing) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  const std::string before = Get("p1").DebugString();
  Asked asked;
  const PartitionCheck no = asked.Check(false);
  vipuuser::UpdatePartitionRequest update;
  *update.mutable_requirements() = Wanted("p1", 2);
  for (const absl::Status& status :
       {controller_->UpdatePartition(update, Anyone(), no),
        controller_->ResetPartition("p1", "", no), controller_->RemovePartition("p1", "", no),
        controller_->GetPartition("p1", no).status(),
        controller_->GetPartitionConfig("p1", 0, no).status()})
    EXPECT_EQ(Text(status), "PERMISSION_DENIED: no");
  EXPECT_EQ(asked.accesses.size(), 5u);
  EXPECT_EQ(Get("p1").DebugString(), before);
}

TEST_F(PartitionsTest, ListNamesDevicesOnRequest) {
  CreatePod(1);
  CreateActive(Wanted("p1", 2));
  EXPECT_TRUE(controller_->ListPartitions()[0].gcds().empty());
  EXPECT_EQ(controller_->ListPartitions(true)[0].DebugString(), Get("p1").DebugString());
}

TEST_F(PartitionsTest, AttributesAreAskedOfEachMachineUntilItsProcessIsSilent) {
  Register(0, 2, "process-1");
  Register(2, 2, "process-2");
  CreateAgents(0, 4);
  ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, 4)).ok());
  const auto patient = [] { return false; };
  EXPECT_EQ(controller_->ListIpuAttributes(Anyone(), patient).size(), 16u);
  gateway_.described.clear();
  gateway_.silent = "process-1";
  EXPECT_EQ(controller_->ListIpuAttributes(Anyone(), patient).size(), 8u);
  EXPECT_EQ(gateway_.described, (std::vector<std::string>{Host(0), Host(2), Host(3)}));
  gateway_.described.clear();
  const auto gone = [&] { return gateway_.described.size() == 2; };
  controller_->ListIpuAttributes(Anyone(), gone);
  EXPECT_EQ(gateway_.described.size(), 2u);
}

TEST_F(PartitionsTest, NameUsedBeforeGetsALaterGeneration) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  const uint64_t generation = StatusOf("p1").generation();
  ASSERT_TRUE(Remove("p1").ok());
  CreateActive(Wanted("p1", 4));
  EXPECT_GT(StatusOf("p1").generation(), generation);
}

TEST_F(PartitionsTest, AvailablePartitionsAreCounted) {
  CreatePod(4);
  CreateActive(Wanted("p1", 1));
  EXPECT_EQ(*controller_->AvailablePartitions(1, Anyone()), 15u);
  EXPECT_EQ(*controller_->AvailablePartitions(2, Anyone()), 7u);
  EXPECT_EQ(*controller_->AvailablePartitions(4, Anyone()), 3u);
  EXPECT_EQ(*controller_->AvailablePartitions(8, Anyone()), 1u);
  EXPECT_EQ(*controller_->AvailablePartitions(16, Anyone()), 0u);
  EXPECT_EQ(*controller_->AvailablePartitions(1u << 31, Anyone()), 0u);
  EXPECT_EQ(Text(controller_->AvailablePartitions(3, Anyone()).status()),
            "INVALID_ARGUMENT: Size must be a power of two.");
}

TEST_F(PartitionsTest, PartitionsNeverShareAnIpu) {
  CreatePod(4);
  int created = 0;
  for (const uint32_t size : {1u, 4u, 2u, 1u, 8u, 4u, 2u, 2u, 1u})
    created += Create(absl::StrCat("p", created), size).ok();
  std::map<std::pair<std::string, uint32_t>, std::string> owners;
  for (const vipuuser::Partition& partition : controller_->ListPartitions()) {
    for (const auto& gcd : partition.gcds()) {
      for (const auto& device : gcd.devices()) {
        EXPECT_TRUE(
            owners.try_emplace({device.agent_id(), device.pcie_id()}, partition.requirements().id())
                .second);
      }
    }
  }
  EXPECT_GE(created, 5);
}

// It is kept as long as the partition is there.
TEST_F(PartitionsTest, ARequestIdIsShortText) {
  CreatePod(1);
  EXPECT_EQ(Text(Create(Wanted("p1", 1), std::string(4 << 20, 'r'))),
            "INVALID_ARGUMENT: request_id has 4194304 bytes; give at most 128.");
  EXPECT_EQ(Text(Create(Wanted("p1", 1), "two\nlines")),
            "INVALID_ARGUMENT: request_id 'two\uFFFDlines' is not one line of printable text.");
  EXPECT_TRUE(controller_->ListPartitions().empty());
  EXPECT_TRUE(Create(Wanted("p1", 1), std::string(128, 'r')).ok());
  EXPECT_TRUE(Create(Wanted("p1", 1), std::string(128, 'r')).ok()) << "a retry";
}

// What a user can make a list longer by: a partition of the greatest length that is permitted, with
// the longest reason. All of a POD65536, one for each IPU, are then less than the 256 MiB that
// the tools read.
TEST_F(PartitionsTest, APartitionInAListIsShort) {
  const std::string longest(63, 'i');
  Register(0, 1);
  CreateAgents(0, 1);
  vipuadmin::Cluster cluster = ClusterOf(longest, 0, 1);
  ASSERT_TRUE(CreateCluster(cluster).ok());
  gateway_.ConfirmAll();
  vipuuser::CreatePartitionRequest request;
  vipuuser::PartitionRequirements& wanted = *request.mutable_requirements();
  wanted = Wanted(longest, 1);
  wanted.set_allocation_id(longest);
  wanted.set_cluster_id(longest);
  wanted.set_sync_type("pod-native-default");
  wanted.set_ipu_link_routing(std::string(1000, '-') + "dnc");  // the dashes count for nothing
  wanted.mutable_index()->set_index(0);
  ASSERT_TRUE(controller_->CreatePartition(request, Anyone(std::string(128, 'u'))).ok());
  gateway_.Answer(absl::InvalidArgumentError(std::string(100000, 'x')));
  ASSERT_EQ(StateOf(longest), vipuuser::PS_ERROR);
  const std::vector<vipuuser::Partition> list = controller_->ListPartitions();
  ASSERT_EQ(list.size(), 1u);
  RecordProperty("bytes", static_cast<int>(list[0].ByteSizeLong()));
  EXPECT_LT(list[0].ByteSizeLong(), 1400u);
  EXPECT_LT(list[0].ByteSizeLong() * 65536, 256ull << 20);
}

}  // namespace
}  // namespace vpod::controller
