// Heartbeats that tell of IPUs, links and clients, and what follows for partitions: errors,
// relocation, resets.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/text.h"
#include "server/controller/controller.h"
#include "server/controller/controller_fixture.h"
#include "server/controller/registry_fixture.h"

namespace vpod::controller {
namespace {

using std::chrono::seconds;

TEST_F(RegistryTest, FailedIpuConcernsItsPartitionOnly) {
  CreatePod(1);
  CreateActive(Wanted("p1", 1));  // IPU 3
  CreateActive(Wanted("p2", 1));  // IPU 2
  Heartbeat({3});
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0: IPU 3 failed.");
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), "IPU 3 failed.");
  EXPECT_EQ(controller_->GetAgent("ag0")->failed_ipus(), 1u);
  EXPECT_EQ(controller_->GetAgent("ag0")->failed_free_ipus(), 0u);
  Heartbeat();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(controller_->GetAgent("ag0")->error(), "");
}

// Such a partition stays ACTIVE, but loads no programs.
TEST_F(RegistryTest, AParityErrorIsAnEventThatNamesPartitionAndIpus) {
  CreatePod(2);
  CreateActive(Wanted("p1", 2));  // IPUs 3 and 2 of ag0
  const auto heartbeat = [&](const std::vector<uint32_t>& ipus) {
    vipuagent::HeartbeatRequest request;
    request.set_endpoint("process-1");
    request.set_boot_id("boot-1");
    vipuagent::MachineHealth* health = request.add_unwell();
    health->set_host(Host(0));
    for (const uint32_t ipu : ipus) health->add_parity_ipus(ipu);
    controller_->Heartbeat(request);
  };
  const size_t before = EventsOf("partition p1").size();
  const auto events = [&](const std::string& object, size_t skipped) {
    std::vector<std::string> texts = EventsOf(object);
    texts.erase(texts.begin(), texts.begin() + static_cast<ptrdiff_t>(skipped));
    return texts;
  };
  const std::string one =
      "Agent ag0: IPU 3 needs a parity init: 'gc-reset -p', or 'reset partition'.";
  heartbeat({3});
  heartbeat({3});
  EXPECT_EQ(events("partition p1", before), std::vector<std::string>{one});
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StatusOf("p1").message(), one);
  heartbeat({2, 3});
  EXPECT_EQ(events("partition p1", before + 1),
            std::vector<std::string>{
                "Agent ag0: IPU 2 needs a parity init: 'gc-reset -p', or 'reset partition'."});
  EXPECT_EQ(StatusOf("p1").message(),
            "Agent ag0: IPUs 2 3 need a parity init: 'gc-reset -p', or 'reset partition'.");
  // An IPU without a partition is told of in the name of its agent.
  const size_t of_agent = EventsOf("agent ag0").size();
  heartbeat({0});
  EXPECT_EQ(events("partition p1", before + 2),
            std::vector<std::string>{"Agent ag0: IPUs 2 3: no parity init is needed any more."});
  EXPECT_EQ(events("agent ag0", of_agent),
            std::vector<std::string>{"IPU 0 needs a parity init: 'reset agent ag0'."});
}

TEST_F(RegistryTest, AnInjectedFaultOfAnIpuNamesItAndItsPartition) {
  CreatePod(1);
  CreateActive(Wanted("p1", 1));  // IPU 3
  vipuadmin::InjectRequest request;
  request.set_agent_id("ag0");
  const auto inject = [&](vipuagent::Fault fault, uint32_t ipu, const std::string& error) {
    request.mutable_fault()->set_fault(fault);
    request.mutable_fault()->set_pcie_id(ipu);
    request.mutable_fault()->set_error(error);
    EXPECT_TRUE(controller_->Inject(request, "root").ok());
    return EventsOf("agent ag0").back();
  };
  EXPECT_EQ(inject(vipuagent::MEMORY_PARITY, 3, ""),
            "injected MEMORY_PARITY on IPU 3 of partition p1");
  EXPECT_EQ(inject(vipuagent::IPU_ERROR, 0, "IPUSOFTERR"),
            "injected IPU_ERROR IPUSOFTERR on IPU 0");
  EXPECT_EQ(inject(vipuagent::AGENT_HANG, 3, ""), "injected AGENT_HANG");
}

// What is wrong is told once, however often an agent names it, and in a text of limited length.
TEST_F(RegistryTest, AHeartbeatThatRepeatsItselfIsToldShortly) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  Heartbeat(std::vector<uint32_t>(1000, 3),
            std::vector<std::string>(1000, "IPU3.NLC_E_0A is down"));
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0: IPU 3 failed, link IPU3.NLC_E_0A is down.");
  vipuagent::HeartbeatRequest request;
  request.set_endpoint("process-1");
  request.set_boot_id("boot-1");
  for (int i = 0; i < 100; ++i) {
    vipuagent::MachineHealth* health = request.add_unwell();
    health->set_host(Host(0));
    for (uint32_t ipu = 0; ipu < 4; ++ipu) {
      vipuagent::Holding* holding = health->add_unclaimed();
      holding->set_pcie_id(ipu);
      holding->set_partition_id(std::string(100000, 'p'));
      holding->set_holder(absl::StrCat(i, ipu, std::string(100000, 'h')));
    }
  }
  controller_->Heartbeat(request);
  EXPECT_LE(controller_->GetAgent("ag0")->error().size(), kMostTroubleBytes + 3);
  EXPECT_LE(StatusOf("p1").message().size(), kMostReasonBytes + 3);
  for (const std::string& text : EventsOf("agent ag0"))
    EXPECT_LE(text.size(), EventLog::kMostTextBytes + 3);
  EXPECT_LE(EventsOf("agent ag0").size(), 4u) << "a hundred times the same machine";
}

// A partition that is named often is reset once.
TEST_F(RegistryTest, APartitionIsResetOnceForEachHeartbeat) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  const size_t before = EventsOf("partition p1").size();
  Heartbeat({}, {}, std::vector<std::string>(1000, "p1"));
  EXPECT_EQ(EventsOf("partition p1").size(), before + 1);
}

// A reason that is cut inside a character could be read by nobody, nor any list that contains it.
TEST_F(RegistryTest, AReasonIsCutBetweenCharacters) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  std::string umlauts = "x";
  while (umlauts.size() < 600) umlauts += "ö";
  for (const std::string& reason : {umlauts, umlauts.substr(1), std::string("two\nlines")}) {
    ASSERT_TRUE(Reset("p1").ok());
    vipuagent::ConfigureReply reply;
    vipuagent::ReleasingIpu* releasing = reply.add_releasing();
    releasing->set_host(Host(0));
    releasing->set_pcie_id(3);
    releasing->set_reason(reason);
    gateway_.Answer(absl::OkStatus(), reply);
    EXPECT_EQ(StateOf("p1"), vipuuser::PS_RELEASING);
    EXPECT_TRUE(base::IsTextLine(StatusOf("p1").message())) << StatusOf("p1").message();
    EXPECT_TRUE(base::IsTextLine(controller_->GetAgent("ag0")->ipus(3).releasing()));
    for (const std::string& text : EventsOf("partition p1"))
      EXPECT_TRUE(base::IsTextLine(text)) << text;
  }
}

TEST_F(RegistryTest, FailedLinksConcernWhatTheyJoin) {
  CreatePod(2, /*ilds=*/2);
  CreateActive(Wanted("p1", 1));
  Heartbeat({}, {"GW_E is down"});  // p1 lies in one ILD
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  Heartbeat({}, {"IPU3.NLC_E_0A corrupts data"});
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0: link IPU3.NLC_E_0A corrupts data.");
  Heartbeat();
  Heartbeat({}, {"IPU3.NLC_E_0A is down"});
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0: link IPU3.NLC_E_0A is down.");
  Heartbeat();
  ASSERT_TRUE(Remove("p1").ok());
  CreateActive(Wanted("p2", 8));
  Heartbeat({}, {"GW_E is down"});
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_ERROR);
}

// Though one process holds the machines of both.
TEST_F(RegistryTest, FailedGatewayConcernsPartitionsOnItsMachineOnly) {
  CreatePod(4, /*ilds=*/4, "", "looped");
  CreateActive(Wanted("a", 8));
  CreateActive(Wanted("b", 8));
  Heartbeat({}, {"GW_E is down"});  // of ag0
  EXPECT_EQ(StatusOf("a").message(), "Agent ag0: link GW_E is down.");
  EXPECT_EQ(StateOf("b"), vipuuser::PS_ACTIVE);
  ASSERT_TRUE(Reset("b").ok());
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("b"), vipuuser::PS_ACTIVE);
  ASSERT_TRUE(Remove("b").ok());
  CreateActive(Wanted("c", 8));
}

TEST_F(RegistryTest, FailedIpusAreNotPlacedUpon) {
  CreatePod(1);
  Heartbeat({3, 2});
  EXPECT_EQ(Text(Create("p", 4)),
            "RESOURCE_EXHAUSTED: No 4 free IPUs in allocation c1 (2 free, largest free block 2, 2 "
            "out of service).");
  CreateActive(Wanted("p", 2));
  EXPECT_EQ(Get("p").gcds(0).devices(0).pcie_id(), 1u);
}

TEST_F(RegistryTest, ResetThatCuresIsSeenWithTheNextHeartbeat) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  Heartbeat({0});
  ASSERT_TRUE(Reset("p1").ok());
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);  // not known to be well yet
  Heartbeat();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  Heartbeat({0});
  ASSERT_TRUE(Reset("p1").ok());
  gateway_.ConfirmAll();
  Heartbeat({0});  // it did not cure
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
}

TEST_F(RegistryTest, RelocatablePartitionMovesToIpusThatAreWell) {
  CreatePod(2);
  CreateRelocatable("p1", 4);
  const uint64_t generation = StatusOf("p1").generation();
  Heartbeat({1});
  controller_->Tick();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag1");
  EXPECT_GT(StatusOf("p1").generation(), generation);
  Start();  // it stays there
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag1");
}

TEST_F(RegistryTest, RelocatablePartitionThatIsWellAgainStaysInErrorWithoutAutoReset) {
  CreatePod(1);
  vipuuser::CreatePartitionRequest request;
  *request.mutable_requirements() = Wanted("p1", 4);
  request.set_relocatable(true);
  request.set_disable_auto_reset(true);
  ASSERT_TRUE(controller_->CreatePartition(request, Anyone()).ok());
  gateway_.ConfirmAll();
  Heartbeat({1});
  controller_->Tick();  // there is nowhere to go
  Heartbeat({});
  controller_->Tick();
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
}

TEST_F(RegistryTest, RelocatablePartitionMovesToDomainsWhoseGatewaysAreWell) {
  CreatePod(4, /*ilds=*/4, "", "looped");
  CreateRelocatable("p1", 8);
  Heartbeat({}, {"GW_E is down"});
  controller_->Tick();
  gateway_.ConfirmAll();
  Heartbeat({}, {"GW_E is down"});
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_NE(Get("p1").gcds(0).devices(0).agent_id(), "ag0");
  CreateActive(Wanted("p2", 4));  // what lies in one domain needs no GW-Links
  EXPECT_EQ(Get("p2").gcds(0).devices(0).agent_id(), "ag0");
}

TEST_F(RegistryTest, PartitionWithoutABetterPlaceStaysWhereItIs) {
  CreatePod(2, /*ilds=*/2, "", "looped");
  CreateRelocatable("p1", 8);
  Heartbeat({}, {"GW_E is down"});
  const uint64_t generation = StatusOf("p1").generation();
  const size_t events = EventsOf("partition p1").size();
  for (int i = 0; i < 5; ++i) {
    controller_->Tick();
    Heartbeat({}, {"GW_E is down"});
  }
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EXPECT_EQ(StatusOf("p1").generation(), generation);
  EXPECT_EQ(EventsOf("partition p1").size(), events);
  // Nor does an update help, and it says why.
  EXPECT_EQ(Text(Update(Wanted("p1", 8))),
            "RESOURCE_EXHAUSTED: No 8 free IPUs in allocation c1 (8 free, largest free block 4, 4 "
            "with GW-Links down).");
  Heartbeat();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(RegistryTest, RelocationWaitsForRoom) {
  CreatePod(2);
  CreateRelocatable("p1", 4);
  CreateActive(Wanted("p2", 4));
  Heartbeat({1});
  controller_->Tick();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0: IPU 1 failed.");
  ASSERT_TRUE(Remove("p2").ok());
  controller_->Tick();
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(EventsOf("partition p1").back(), "PENDING -> ACTIVE");
}

TEST_F(RegistryTest, RelocationGoesToRoomThatIsAdded) {
  Register(0, 2);
  CreateAgents(0, 2);
  ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, 1)).ok());
  gateway_.ConfirmAll();
  CreateRelocatable("p1", 2);
  Heartbeat({1, 2});
  controller_->Tick();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  vipuadmin::UpdateClusterRequest larger;
  larger.set_id("c1");
  for (const char* agent : {"ag0", "ag1"}) larger.add_agent_ids(agent);
  ASSERT_TRUE(controller_->UpdateCluster(larger, "root").ok());
  controller_->Tick();
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag1");
}

TEST_F(RegistryTest, RelocatablePartitionLeavesALostAgent) {
  CreatePodOfTwoProcesses();
  CreateRelocatable("p1", 4);
  CreateActive(Wanted("p2", 1));
  ASSERT_TRUE(Remove("p2").ok());
  gateway_.ConfirmAll();
  Advance(seconds(3));
  Register(1, 1, "process-2");
  Advance(seconds(3));
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag1");
}

TEST_F(RegistryTest, LastClientsEndTidiesAPartitionUp) {
  CreatePod(1);
  CreateActive(Wanted("p1", 2));
  vipuuser::PartitionRequirements wanted = Wanted("p2", 1);
  wanted.set_reconfigurable(true);
  CreateActive(wanted);
  const vipuuser::PartitionConfig config = *controller_->GetPartitionConfig("p1", 0);
  const uint64_t first = StatusOf("p1").generation(), second = StatusOf("p2").generation();
  vipuagent::HeartbeatRequest request;
  request.set_endpoint("process-1");
  request.set_boot_id("boot-1");
  for (const char* id : {"p1", "p2", "gone"}) request.add_detached_partitions(id);
  for (const uint64_t generation : {first, second, second})
    request.add_detached_generations(generation);
  controller_->Heartbeat(request);
  const uint64_t tidy = StatusOf("p1").generation();
  EXPECT_GT(tidy, first);
  EXPECT_EQ(StatusOf("p2").generation(), second);  // reconfigurable ones are not reset
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);   // meanwhile, too
  const FakeGateway::Call call = gateway_.Answer();
  ASSERT_EQ(call.request.partitions_size(), 1);
  EXPECT_EQ(call.request.partitions(0).generation(), tidy);
  EXPECT_EQ(call.request.partitions(0).config_generation(), first);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(EventsOf("partition p1").back(), "reset after its last client");
  controller_->Heartbeat(request);  // late: it may have new clients
  EXPECT_EQ(StatusOf("p1").generation(), tidy);
  const auto is_as_before = [&] {
    const vipuuser::PartitionConfig now = *controller_->GetPartitionConfig("p1", 0);
    return now.fabric_key() == config.fabric_key() &&
           now.attributes().at("Partition generation") ==
               config.attributes().at("Partition generation");
  };
  EXPECT_TRUE(is_as_before());  // what clients hold stays good
  Start();
  Register(0, 1);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_TRUE(is_as_before());
  ASSERT_TRUE(Reset("p1").ok());
  gateway_.ConfirmAll();
  EXPECT_FALSE(is_as_before());
}

TEST_F(RegistryTest, AutoResetCanBeTurnedOff) {
  CreatePod(1);
  vipuuser::CreatePartitionRequest create;
  *create.mutable_requirements() = Wanted("p1", 2);
  create.set_disable_auto_reset(true);
  ASSERT_TRUE(controller_->CreatePartition(create, Anyone()).ok());
  gateway_.ConfirmAll();
  const uint64_t generation = StatusOf("p1").generation();
  Heartbeat({}, {}, {"p1"});
  EXPECT_EQ(StatusOf("p1").generation(), generation);
}

TEST_F(RegistryTest, UpdateKeepsWhatItDoesNotName) {
  CreatePod(2);
  vipuuser::CreatePartitionRequest create;
  *create.mutable_requirements() = Wanted("p1", 4);
  create.mutable_requirements()->set_reconfigurable(true);
  create.mutable_requirements()->set_shared(true);
  create.set_disable_auto_reset(true);
  ASSERT_TRUE(controller_->CreatePartition(create, Anyone()).ok());
  vipuuser::UpdatePartitionRequest update;
  update.mutable_requirements()->set_id("p1");
  update.mutable_requirements()->set_num_gcds(2);
  ASSERT_TRUE(controller_->UpdatePartition(update, Anyone()).ok());
  const vipuuser::PartitionRequirements r = Get("p1").requirements();
  EXPECT_EQ(r.size(), 4u);
  EXPECT_EQ(r.num_gcds(), 2u);
  EXPECT_TRUE(r.reconfigurable());
  EXPECT_TRUE(r.shared());
  gateway_.ConfirmAll();
  Advance(seconds(6));
  Heartbeat();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);  // auto-reset is off still
  update.set_disable_auto_reset(false);
  update.mutable_requirements()->set_reconfigurable(false);
  ASSERT_TRUE(controller_->UpdatePartition(update, Anyone()).ok());
  EXPECT_FALSE(Get("p1").requirements().reconfigurable());
}

}  // namespace
}  // namespace vpod::controller
