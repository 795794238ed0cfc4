// Life of partitions between controller and agents.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "device/base/text.h"
#include "server/controller/controller.h"
#include "server/controller/controller_fixture.h"

namespace vpod::controller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
class ReconcileTest : public ControllerTest {
 protected:
  // The controller is stopped for an hour; p1 is in `state` until its agent has been silent for
  // its time since.
  void ExpectTimeAgainAfterAPause(vipuuser::PartitionState state) {
    now_ += seconds(3600);
    controller_->Tick();
    Advance(seconds(5));
    EXPECT_EQ(StateOf("p1"), state);
    Advance(milliseconds(1));
    EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  }
};

TEST_F(ReconcileTest, PendingBecomesActiveWhenTheAgentConfirms) {
  CreatePod(1);
  vipuuser::PartitionRequirements wanted = Wanted("p1", 4);
  wanted.set_num_gcds(2);
  wanted.set_shared(true);
  ASSERT_TRUE(Create(wanted).ok());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  EXPECT_EQ(StatusOf("p1").provisioning_state(), vipuuser::PRS_BUSY);
  ASSERT_EQ(gateway_.calls.size(), 1u);
  const FakeGateway::Call call = gateway_.Answer();
  EXPECT_EQ(call.endpoint, "process-1");
  ASSERT_EQ(call.request.partitions_size(), 1);
  const vipuagent::AgentPartition& sent = call.request.partitions(0);
  EXPECT_EQ(sent.id(), "p1");
  EXPECT_EQ(sent.generation(), StatusOf("p1").generation());
  EXPECT_EQ(sent.owner(), "alice");
  EXPECT_TRUE(sent.shared());
  EXPECT_EQ(sent.ild_routing(), "SWNC");
  EXPECT_EQ(sent.target_options().at("instanceSize"), "2");
  ASSERT_EQ(sent.gcds_size(), 2);
  ASSERT_EQ(sent.gcds(1).slices_size(), 1);
  const vipuagent::Slice& slice = sent.gcds(1).slices(0);
  EXPECT_EQ(slice.machine_host(), "10.1.2.1");
  EXPECT_EQ(slice.endpoint(), "process-1");
  EXPECT_EQ(slice.first_pcie_id(), 1u);
  EXPECT_EQ(slice.num_ipus(), 2u);
  ASSERT_EQ(sent.peers_size(), 1);
  EXPECT_EQ(sent.peers(0).boot_id(), "boot-1");
  EXPECT_FALSE(sent.fabric_key().empty());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StatusOf("p1").provisioning_state(), vipuuser::PRS_IDLE);
  EXPECT_EQ(StatusOf("p1").error(), 0u);
}

TEST_F(ReconcileTest, AllProcessesOfAPartitionMustConfirm) {
  CreatePodOfTwoProcesses();
  ASSERT_TRUE(Create("p1", 8).ok());
  ASSERT_EQ(gateway_.calls.size(), 2u);
  const FakeGateway::Call first = gateway_.Answer();
  // Slices on the other process too: the two must find each other.
  EXPECT_EQ(first.request.partitions(0).gcds(0).slices_size(), 2);
  EXPECT_EQ(first.request.partitions(0).peers(1).endpoint(), "process-2");
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  gateway_.Answer();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, APartitionWaitsForMachinesThatHaveNotRegistered) {
  Register(0, 1, "process-1");
  CreateAgents(0, 2);
  ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, 2)).ok());
  gateway_.ConfirmAll();
  ASSERT_TRUE(Create("p1", 8).ok());
  while (!gateway_.calls.empty()) EXPECT_EQ(gateway_.Answer().request.partitions_size(), 0);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  Register(1, 1, "process-2");
  ASSERT_EQ(gateway_.calls.size(), 2u);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, OneConfigurationIsUnderWayAndTheSequenceRises) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 1).ok());
  ASSERT_TRUE(Create("p2", 1).ok());
  ASSERT_EQ(gateway_.calls.size(), 1u);
  const FakeGateway::Call first = gateway_.Answer();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_PENDING);
  ASSERT_EQ(gateway_.calls.size(), 1u);
  const FakeGateway::Call second = gateway_.Answer();
  EXPECT_FALSE(second.request.complete());
  EXPECT_EQ(second.request.base_sequence(), first.request.sequence());
  ASSERT_EQ(second.request.partitions_size(), 1);  // the other is known
  EXPECT_EQ(second.request.partitions(0).id(), "p2");
  EXPECT_GT(second.request.sequence(), first.request.sequence());
  EXPECT_EQ(second.request.controller_boot_id(), first.request.controller_boot_id());
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, UnansweredConfigurationIsSentAgain) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 1).ok());
  gateway_.Answer(absl::UnavailableError("connection reset"));
  EXPECT_TRUE(gateway_.calls.empty());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  controller_->Tick();
  gateway_.Answer();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, RefusedConfigurationIsAnError) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 1).ok());
  gateway_.Answer(absl::InvalidArgumentError("no such machine"));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EXPECT_EQ(StatusOf("p1").message(), "no such machine");
  EXPECT_EQ(StatusOf("p1").error(), static_cast<uint32_t>(absl::StatusCode::kAborted));
  EXPECT_EQ(Text(controller_->GetPartitionConfig("p1", 0).status()),
            "FAILED_PRECONDITION: Partition p1 is not ACTIVE (state ERROR).");
}

// An agent's words travel as bytes, and become text that everybody can read.
TEST_F(ReconcileTest, WhateverAnAgentSaysBecomesText) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 4).ok());
  gateway_.Answer(absl::InvalidArgumentError("cut \xc3 and\ntwo lines " + std::string(5000, 'x')));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  const std::string message = StatusOf("p1").message();
  EXPECT_EQ(message.substr(0, 24), "cut \uFFFD and\uFFFDtwo lines ");
  EXPECT_LE(message.size(), kMostReasonBytes + 3);
  EXPECT_TRUE(base::IsTextLine(message));
  for (const std::string& text : EventsOf("partition p1")) {
    EXPECT_TRUE(base::IsTextLine(text)) << text;
    EXPECT_LE(text.size(), EventLog::kMostTextBytes + 3);
  }
}

TEST_F(ReconcileTest, RestartedControllerFindsTheRefusedPartitionWithoutEndingOthers) {
  CreatePod(1);
  for (const char* id : {"p1", "p2", "p3"}) CreateActive(Wanted(id, 1));
  const uint64_t generation = StatusOf("p3").generation();
  Start();
  Register(0, 1);
  EXPECT_EQ(gateway_.Answer(absl::InvalidArgumentError("p2 is no good")).request.kept_size(), 0);
  const FakeGateway::Call complete = gateway_.Answer();
  EXPECT_TRUE(complete.request.complete());
  EXPECT_EQ(complete.request.partitions_size(), 1);
  ASSERT_EQ(complete.request.kept_size(), 2);
  EXPECT_EQ(complete.request.kept(1).id(), "p3");
  EXPECT_EQ(complete.request.kept(1).config_generation(), generation);
  const FakeGateway::Call refused = gateway_.Answer(absl::InvalidArgumentError("p2 is no good"));
  for (const auto& removed : refused.request.removed())
    EXPECT_TRUE(removed.id() != "p3" || removed.generation() < generation);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_ERROR);
  EXPECT_EQ(StateOf("p3"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, PartitionsThatWaitAreInNobodysWay) {
  CreatePod(1);
  for (const char* id : {"p1", "p2"}) CreateActive(Wanted(id, 1));
  ASSERT_TRUE(Reset("p1").ok());  // under way
  ASSERT_TRUE(Reset("p1").ok());
  ASSERT_TRUE(Reset("p2").ok());
  gateway_.Answer();
  gateway_.Answer(absl::InvalidArgumentError("one of them is no good"));
  const FakeGateway::Call single = gateway_.Answer();
  EXPECT_EQ(single.request.partitions(0).id(), "p1");
  ASSERT_EQ(single.request.removed_size(), 1);  // may lie where p1 goes now
  EXPECT_EQ(single.request.removed(0).id(), "p2");
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, ResetRaisesTheGenerationAndNeedsItsConfirmation) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  const uint64_t generation = StatusOf("p1").generation();
  ASSERT_TRUE(Reset("p1").ok());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  EXPECT_EQ(StatusOf("p1").generation(), generation + 1);
  // A second reset while the first is under way: the first confirmation does not count.
  ASSERT_TRUE(Reset("p1").ok());
  EXPECT_EQ(gateway_.Answer().request.partitions(0).generation(), generation + 1);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  EXPECT_EQ(gateway_.Answer().request.partitions(0).generation(), generation + 2);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, RemovedPartitionIsTakenFromTheAgent) {
  CreatePod(1);
  CreateActive(Wanted("p1", 2));
  CreateActive(Wanted("p2", 2));
  ASSERT_TRUE(Remove("p1").ok());
  const FakeGateway::Call call = gateway_.Answer();
  EXPECT_EQ(call.request.partitions_size(), 0);
  ASSERT_EQ(call.request.removed_size(), 1);
  EXPECT_EQ(call.request.removed(0).id(), "p1");
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, ARemovalIsSentUntilItIsConfirmedAlsoByTheNextController) {
  CreatePodOfTwoProcesses();
  CreateActive(Wanted("p1", 8));
  const uint64_t generation = StatusOf("p1").generation();
  ASSERT_TRUE(Remove("p1").ok());
  ASSERT_EQ(gateway_.calls.size(), 2u);
  gateway_.Answer();                                           // one of the two
  gateway_.Answer(absl::UnavailableError("connection lost"));  // the other has not heard it
  Start();
  EXPECT_EQ(store_->Load("removal")->size(), 1u);
  Register(0, 1, "process-1");
  // Once more: who has confirmed is not written for each. That does no harm.
  EXPECT_EQ(gateway_.Answer().request.removed_size(), 1);
  controller_->Tick();
  EXPECT_EQ(store_->Load("removal")->size(), 1u);
  Register(1, 1, "process-2");
  const FakeGateway::Call call = gateway_.Answer();
  ASSERT_EQ(call.request.removed_size(), 1);
  EXPECT_EQ(call.request.removed(0).id(), "p1");
  EXPECT_EQ(call.request.removed(0).generation(), generation);
  controller_->Tick();
  EXPECT_TRUE(store_->Load("removal")->empty());
  EXPECT_TRUE(gateway_.calls.empty());
}

TEST_F(ReconcileTest, ARemovalThatAnAgentCannotConfirmGoesWithTheAgent) {
  CreatePodOfTwoProcesses();
  CreateActive(Wanted("p1", 8));
  ASSERT_TRUE(Remove("p1").ok());
  gateway_.Answer();
  ASSERT_TRUE(controller_->RemoveCluster("c1", "root").ok());
  ASSERT_TRUE(controller_->RemoveAgent("ag1", "root").ok());
  controller_->Tick();
  EXPECT_TRUE(store_->Load("removal")->empty());
}

TEST_F(ReconcileTest, ARemovedPartitionThatIsCreatedAgainIsNotTheOldOne) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  const uint64_t before = StatusOf("p1").generation();
  ASSERT_TRUE(Remove("p1").ok());
  ASSERT_TRUE(Create("p1", 4).ok());
  gateway_.Answer();  // of the removal
  const FakeGateway::Call call = gateway_.Answer();
  EXPECT_EQ(call.request.removed_size(), 0);
  EXPECT_GT(call.request.partitions(0).config_generation(), before);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, UpdateTellsTheProcessThatThePartitionLeaves) {
  CreatePodOfTwoProcesses();
  CreateActive(Wanted("p1", 4));
  vipuuser::PartitionRequirements wanted = Wanted("p1", 4);
  wanted.mutable_index()->set_index(1);
  ASSERT_TRUE(Update(wanted).ok());
  std::map<std::string, int> partitions;
  while (!gateway_.calls.empty()) {
    const FakeGateway::Call call = gateway_.Answer();
    partitions[call.endpoint] = call.request.partitions_size();
  }
  EXPECT_EQ(partitions, (std::map<std::string, int>{{"process-1", 0}, {"process-2", 1}}));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, SilentAgentIsAnErrorAndItsReturnAnEndToIt) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  Advance(milliseconds(5000));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  Advance(milliseconds(1));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0 does not answer.");
  const absl::Status reset = controller_->ResetPartition("p1", "root");
  EXPECT_EQ(reset, absl::FailedPreconditionError(
                       "Partition p1 cannot be reset: Agent ag0 does not answer."));
  Register(0, 1);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StatusOf("p1").message(), "");
}

TEST_F(ReconcileTest, EventsThatCannotBeWrittenCanBeRead) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto on_full_disk = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {1, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  Advance(milliseconds(6000));
  const auto read = controller_->ListEvents({});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, on_full_disk);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_NE(read->back().text.find("Agent ag0 does not answer."), std::string::npos);
  const auto written = controller_->ListEvents({});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->size(), read->size());
}

TEST_F(ReconcileTest, OtherPartitionsDoNotNoticeASilentAgent) {
  CreatePodOfTwoProcesses();
  CreateActive(Wanted("p1", 4));
  CreateActive(Wanted("p2", 4));
  Advance(seconds(4));
  Register(0, 1, "process-1");
  Advance(seconds(2));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StateOf("p2"), vipuuser::PS_ERROR);
}

// A relocatable partition would move, and one without auto-reset stay in ERROR.
TEST_F(ReconcileTest, APauseOfTheControllerIsNotTheDeathOfItsAgents) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  ExpectTimeAgainAfterAPause(vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, WithoutAutoResetTheErrorStaysUntilAReset) {
  CreatePod(1);
  vipuuser::CreatePartitionRequest request;
  *request.mutable_requirements() = Wanted("p1", 4);
  request.set_disable_auto_reset(true);
  ASSERT_TRUE(controller_->CreatePartition(request, Anyone()).ok());
  gateway_.ConfirmAll();
  Advance(seconds(6));
  Register(0, 1);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  ASSERT_TRUE(Reset("p1").ok());
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, NewProcessIsToldEverythingAgain) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  Register(0, 1);  // the same process: nothing to say
  EXPECT_TRUE(gateway_.calls.empty());
  Register(0, 1, "process-1", "boot-2");
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  ASSERT_EQ(gateway_.calls.size(), 1u);
  EXPECT_EQ(gateway_.Answer().request.partitions_size(), 1);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, TheOthersMustKnowTheNewProcessToo) {
  CreatePodOfTwoProcesses();
  CreateActive(Wanted("p1", 8));
  Register(0, 1, "process-1", "boot-2");
  ASSERT_EQ(gateway_.calls.size(), 2u);
  const FakeGateway::Call first = gateway_.Answer();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  // The request under way to the second knows nothing of a third life of the first.
  Register(0, 1, "process-1", "boot-3");
  gateway_.Answer();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, ConfirmationOfAnEarlierProcessDoesNotCount) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 4).ok());
  Register(0, 1, "process-1", "boot-2");  // while the configuration is under way
  gateway_.Answer();                      // by the process that has ended since
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  gateway_.Answer();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, MachineThatMovesToAnotherProcessIsConfiguredThere) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  Advance(seconds(6));  // the former is silent
  gateway_.Answer(absl::DeadlineExceededError("silence"));
  Register(0, 1, "process-9", "boot-9");
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  const FakeGateway::Call now = gateway_.Answer();
  EXPECT_EQ(now.endpoint, "process-9");
  EXPECT_EQ(now.request.partitions(0).id(), "p1");
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(controller_->GetPartitionConfig("p1", 0)->devices(0).endpoint(), "process-9");
}

TEST_F(ReconcileTest, ProvisioningCanBeMadeToTakeTime) {
  options_.provisioning_delay = seconds(2);
  Start();
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 4).ok());
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  Advance(std::chrono::milliseconds(1999));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, PendingForTooLongIsAnErrorUntilTheAgentConfirms) {
  CreateAgents(0, 1);  // never registered
  ASSERT_TRUE(CreateCluster(ClusterOf("c1", 0, 1)).ok());
  ASSERT_TRUE(Create("p1", 4).ok());
  EXPECT_TRUE(gateway_.calls.empty());
  Advance(seconds(300));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);
  Advance(seconds(1));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EXPECT_EQ(StatusOf("p1").message(), "Not configured within 300 s: agent ag0 has not registered.");
  Register(0, 1);
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StatusOf("p1").message(), "");
}

TEST_F(ReconcileTest, AgentThatDoesNotComeBackAfterARestartIsNamed) {
  CreatePodOfTwoProcesses();
  CreateActive(Wanted("p1", 8));
  Start();
  Advance(seconds(3));
  Register(0, 1, "process-1");
  Advance(seconds(2));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);  // it may come yet
  EXPECT_TRUE(Reset("p1").ok());
  Advance(milliseconds(1));
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ERROR);
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag1 does not answer.");
  EXPECT_EQ(Text(Reset("p1")),
            "FAILED_PRECONDITION: Partition p1 cannot be reset: Agent ag1 does not answer.");
  Register(1, 1, "process-2");
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(StatusOf("p1").message(), "");
}

TEST_F(ReconcileTest, AgentsHaveTheirTimeAgainAfterAPauseOfTheRestartedController) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  Start();
  ExpectTimeAgainAfterAPause(vipuuser::PS_PENDING);
}

TEST_F(ReconcileTest, RelocatablePartitionLeavesAnAgentThatDoesNotComeBack) {
  CreatePodOfTwoProcesses();
  vipuuser::CreatePartitionRequest request;
  *request.mutable_requirements() = Wanted("p1", 4);
  request.set_relocatable(true);
  ASSERT_TRUE(controller_->CreatePartition(request, Anyone()).ok());
  ASSERT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag0");
  Start();
  Advance(seconds(3));
  Register(1, 1, "process-2");
  Advance(seconds(3));
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
  EXPECT_EQ(Get("p1").gcds(0).devices(0).agent_id(), "ag1");
  EXPECT_EQ(Text(Create("p2", 4)),  // nobody else goes there either
            "RESOURCE_EXHAUSTED: No 4 free IPUs in allocation c1 (0 free, largest free block 0, 4 "
            "out of service).");
  Register(0, 1, "process-1");
  EXPECT_TRUE(Create("p2", 4).ok());
}

TEST_F(ReconcileTest, PendingPartitionDoesNotWaitForAnAgentThatFallsSilent) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 4).ok());
  Advance(seconds(6));
  EXPECT_EQ(StatusOf("p1").message(), "Agent ag0 does not answer.");
  Register(0, 1);
  gateway_.ConfirmAll();
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_ACTIVE);
}

TEST_F(ReconcileTest, RestartOnTheSameStoreKeepsEverything) {
  CreatePod(2, /*ilds=*/2, "torus", "looped");
  vipuuser::PartitionRequirements wanted = Wanted("p1", 8);
  wanted.set_num_replicas(4);
  wanted.set_gw_link_routing("ring");
  CreateActive(wanted);
  const vipuuser::Partition before = Get("p1");
  const auto clusters = controller_->ListClusters();
  Start();
  EXPECT_EQ(controller_->ListAgents().size(), 2u);
  ASSERT_EQ(controller_->ListClusters().size(), 1u);
  EXPECT_EQ(controller_->ListClusters()[0].DebugString(), clusters[0].DebugString());
  EXPECT_EQ(StateOf("p1"), vipuuser::PS_PENDING);  // until its agents confirm
  EXPECT_EQ(Text(Create("p2", 4)),
            "RESOURCE_EXHAUSTED: No 4 free IPUs in allocation c1 (0 free, largest free block 0).");
  Register(0, 2);
  gateway_.ConfirmAll();
  EXPECT_EQ(Get("p1").DebugString(), before.DebugString());
}

TEST_F(ReconcileTest, APartitionHasTheLoopOnlyWhenItIsLedRoundIt) {
  CreatePod(4, /*ilds=*/4, "", "looped");
  const auto topology = [this](uint32_t size, const std::string& gw_routing) {
    vipuuser::PartitionRequirements wanted = Wanted("p", size);
    wanted.set_gw_link_routing(gw_routing);
    EXPECT_TRUE(Create(wanted).ok());
    const std::string told = gateway_.Answer().request.partitions(0).cluster_topology();
    EXPECT_TRUE(Remove("p").ok());
    gateway_.ConfirmAll();
    return told;
  };
  EXPECT_EQ(topology(8, ""), "mesh");  // two racks of four: the cables to the others are not its
  EXPECT_EQ(topology(16, ""), "mesh");
  EXPECT_EQ(topology(16, "ring"), "looped");
}

TEST_F(ReconcileTest, RemovalsSurviveARestart) {
  CreatePod(1);
  CreateActive(Wanted("p1", 4));
  ASSERT_TRUE(Remove("p1").ok());
  ASSERT_TRUE(controller_->RemoveCluster("c1", "root").ok());
  ASSERT_TRUE(controller_->RemoveAgent("ag0", "root").ok());
  Start();
  EXPECT_TRUE(controller_->ListAgents().empty());
  EXPECT_TRUE(controller_->ListClusters().empty());
  EXPECT_TRUE(controller_->ListPartitions().empty());
}

TEST_F(ReconcileTest, RestartedControllerStartsANewSequence) {
  CreatePod(1);
  ASSERT_TRUE(Create("p1", 1).ok());
  const std::string boot_id = gateway_.Answer().request.controller_boot_id();
  Start();
  Register(0, 1);
  EXPECT_NE(gateway_.Answer().request.controller_boot_id(), boot_id);
}

}  // namespace
}  // namespace vpod::controller
