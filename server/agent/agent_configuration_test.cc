// An agent takes from controllers: partitions, their generations and keys, epochs, removals.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "server/agent/admission.h"
#include "server/agent/agent.h"
#include "server/agent/agent_test_util.h"
#include "server/agent/declared.h"

namespace vpod::agent {
namespace {

TEST_F(AgentTest, RemovedAndResetPartitionsEndTheirLeases) {
  for (const bool present : {true, false}) {
    Configure(1);
    Awaited<int> revoked;
    LeaseEvents events;
    events.on_revoked = [&](const absl::Status& cause) { revoked.Callback()(cause); };
    const std::string lease = MustAttach(Open(0), events);
    Configure(2, present);
    EXPECT_EQ(revoked.Get().status().message(),
              present ? "partition p was reset or changed" : "partition p was removed");
    EXPECT_EQ(agent_->Load(lease, SumExecutable()).status().code(), absl::StatusCode::kNotFound);
  }
}

// The controller has lost its store: jobs go on, and nobody else gets their IPUs.
TEST_F(AgentTest, JobsOfPartitionsThatTheControllerDoesNotKnowGoOn) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  ASSERT_TRUE(agent_->Configure(FromAnotherController(/*with_q=*/true)).ok());
  EXPECT_TRUE(Run(lease, 0).ok());
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].host(), "127.10.0.1");
  ASSERT_EQ(unwell[0].unclaimed_size(), 1);
  EXPECT_EQ(unwell[0].unclaimed(0).partition_id(), "p");
  EXPECT_EQ(unwell[0].unclaimed(0).config_generation(), 1u);
  EXPECT_EQ(unwell[0].unclaimed(0).holder(), "pid 4711 on host (train of )");
  EXPECT_EQ(unwell[0].failed_ipus_size(), 0);
  ipuof::v1::AttachOpen open = Open(0);
  open.set_partition_id("q");
  open.set_generation(100);
  Awaited<ipuof::v1::Attached> other;
  agent_->Attach(open, {}, other.Callback());
  EXPECT_EQ(other.Get().status().code(), absl::StatusCode::kResourceExhausted);
  agent_->Release(lease, false);
  EXPECT_TRUE(agent_->Unwell().empty());
  Awaited<ipuof::v1::Attached> now;
  agent_->Attach(open, {}, now.Callback());
  EXPECT_TRUE(now.Get().ok()) << now.Get().status();
}

TEST_F(AgentTest, UnclaimedIpusBecomeFreeWithARemovalAResetOrTheirPartition) {
  vipuagent::ResetMachineReply reply;
  for (const char* how : {"removed", "machine", "known again"}) {
    Configure(1);
    const std::string lease = MustAttach(Open(0));
    ASSERT_TRUE(agent_->Configure(FromAnotherController()).ok());
    ASSERT_EQ(agent_->Unwell().size(), 1u);
    if (how[0] == 'r') {
      Configure(1, /*present=*/false);
    } else if (how[0] == 'm') {
      ASSERT_TRUE(agent_->ResetMachine("127.10.0.1").ok());
    } else {
      Configure(1);
    }
    EXPECT_TRUE(agent_->Unwell().empty()) << how;
    EXPECT_EQ(agent_->HasLease(lease), how[0] == 'k') << how;
    agent_->Release(lease, false);
  }
}

// Another process has taken its machines over.
TEST_F(AgentTest, AnAgentWithoutItsMachinesEndsNoJob) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  agent_->Disown();
  EXPECT_TRUE(Run(lease, 0).ok());
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].unclaimed_size(), 1);
  EXPECT_EQ(Attach(Open(1)).status().code(), absl::StatusCode::kNotFound);
  // They are its own again.
  Configure(1);
  EXPECT_TRUE(agent_->Unwell().empty());
  EXPECT_TRUE(Run(lease, 0).ok());
}

// A store of yesterday has the partition as it was before a reset.
TEST_F(AgentTest, AnOlderGenerationEndsNoJob) {
  Configure(5);
  ipuof::v1::AttachOpen open = Open(0);
  open.set_generation(5);
  const std::string lease = MustAttach(open);
  Configure(3);
  EXPECT_TRUE(agent_->HasLease(lease));
  EXPECT_EQ(agent_->Unwell().size(), 1u);
  Configure(3, /*present=*/false);
  EXPECT_TRUE(agent_->HasLease(lease)) << "that is another one's removal";
  Configure(6);
  EXPECT_FALSE(agent_->HasLease(lease)) << "a reset";
}

// Two users share a partition. The right of one ends: the leases of that user end, and those of
// which nobody knows the user; the other's goes on, although the key is a new one.
TEST_F(AgentTest, LeasesOfAUserEndWithTheUsersRight) {
  const auto open = [](uint32_t device, const std::string& key) {
    ipuof::v1::AttachOpen open = Open(device);
    open.set_fabric_key(key);
    return open;
  };
  const auto change = [&](uint64_t generation, const std::string& secret) {
    vipuagent::ConfigureRequest request;
    request.set_controller_boot_id("boot");
    request.set_sequence(++sequence_);
    request.set_complete(true);
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id("p");
    partition->set_generation(generation);
    partition->set_config_generation(1);
    partition->set_fabric_key(secret);
    partition->set_reconfigurable(true);
    (*partition->mutable_ended_before())["alice"] = 2;
    vipuagent::Gcd* gcd = partition->add_gcds();
    for (uint32_t machine = 0; machine < 4; ++machine)
      *gcd->add_slices() = WholeMachine(absl::StrCat("127.10.0.", 1 + machine));
    EXPECT_TRUE(agent_->Configure(request).ok());
  };
  std::string reason, reason_of_nobody;
  LeaseEvents events, events_of_nobody;
  events.on_revoked = [&](const absl::Status& status) { reason = std::string(status.message()); };
  events_of_nobody.on_revoked = [&](const absl::Status& status) {
    reason_of_nobody = std::string(status.message());
  };
  const std::string alice = MustAttach(open(0, FabricKeyFor(kKey, "alice")), events);
  const std::string bob = MustAttach(open(1, FabricKeyFor(kKey, "bob")));
  const std::string nobody = MustAttach(open(2, kKey), events_of_nobody);
  change(2, "new secret");
  EXPECT_FALSE(agent_->HasLease(alice));
  EXPECT_EQ(reason, "the right of user alice to partition p was taken away");
  EXPECT_FALSE(agent_->HasLease(nobody));
  EXPECT_EQ(reason_of_nobody, "a user's right to partition p was taken away");
  EXPECT_TRUE(agent_->HasLease(bob));
  EXPECT_TRUE(absl::IsUnauthenticated(Attach(open(0, FabricKeyFor(kKey, "alice"))).status()));
  // With a new right and key she takes leases that stay, also when the same is said again.
  const std::string again = MustAttach(open(0, FabricKeyFor("new secret", "alice")));
  change(3, "new secret");
  EXPECT_TRUE(agent_->HasLease(again));
  EXPECT_TRUE(agent_->HasLease(bob));
}

// The log names the user of a refused attach only if the process showed that user's key.
TEST_F(AgentTest, AnAttachTellsWhoseKeyWasShownBeforeItIsRefused) {
  MustAttach(Open(0));
  std::vector<std::string> users;
  LeaseEvents events;
  events.on_admitted = [&](const std::string& user) { users.push_back(user); };
  ipuof::v1::AttachOpen open = Open(0);
  open.mutable_process()->set_user("alice");
  open.set_fabric_key("not the key");
  EXPECT_TRUE(absl::IsUnauthenticated(Attach(open, events).status()));
  EXPECT_TRUE(users.empty());
  open.set_fabric_key(FabricKeyFor(kKey, "mallory"));
  EXPECT_TRUE(absl::IsResourceExhausted(Attach(open, events).status()));
  EXPECT_EQ(users, std::vector<std::string>{"mallory"});
}

TEST(LogTextTest, TellsAProvedNameFromAClaimedOne) {
  ipuof::v1::ProcessInfo process;
  process.set_user("root");
  process.set_pid(4711);
  process.set_host("node7");
  process.set_executable("train\" user=\"root");
  EXPECT_EQ(LogText(process, "alice"),
            "user=\"alice\" pid=4711 host=\"node7\" program=\"train' user='root\"");
  EXPECT_EQ(LogText(process, ""),
            "claimed_user=\"root\" pid=4711 host=\"node7\" program=\"train' user='root\"");
}

TEST_F(AgentTest, AControllerOfALowerEpochIsRefused) {
  vipuagent::ConfigureRequest request = FromAnotherController();
  request.set_controller_epoch(7);
  request.set_controller_store("store");
  ASSERT_TRUE(agent_->Configure(request).ok());
  request.set_controller_boot_id("a copy of its store");
  EXPECT_EQ(agent_->Configure(request).code(), absl::StatusCode::kAlreadyExists);
  request.set_controller_epoch(6);
  EXPECT_EQ(agent_->Configure(request).message(),
            "a controller of epoch 7 has configured the agent at ; this one has epoch 6");
  request.set_controller_epoch(8);
  request.set_controller_proof("proof");
  EXPECT_TRUE(agent_->Configure(request).ok());
  EXPECT_EQ(agent_->DescribeController().epoch(), 8u);
  EXPECT_EQ(agent_->DescribeController().boot_id(), "a copy of its store");
  EXPECT_EQ(agent_->DescribeController().proof(), "proof");
  vipuagent::RegisterRequest state;
  agent_->DescribeState(state);
  EXPECT_EQ(state.controller_epoch(), 8u);
  EXPECT_EQ(state.controller_boot_id(), "a copy of its store");
  EXPECT_EQ(state.controller_store(), "store");
  EXPECT_EQ(state.controller_proof(), "proof");
  // Epochs of different stores say nothing about each other.
  request.set_controller_boot_id("that of a new store");
  request.set_controller_store("new");
  request.set_controller_epoch(1);
  EXPECT_TRUE(agent_->Configure(request).ok());
}

TEST_F(AgentTest, APartitionIsTidiedUpWhenItsLastClientHasGone) {
  using Detached = std::vector<std::pair<std::string, uint64_t>>;
  Configure(2, true, 1);  // clients hold configurations of generation 1
  const std::string first = MustAttach(Open(0)), second = MustAttach(Open(1));
  agent_->Release(first, false);
  EXPECT_EQ(agent_->Detached(), Detached());
  agent_->Release(second, false);
  EXPECT_EQ(agent_->Detached(), (Detached{{"p", 2}}));
  EXPECT_EQ(agent_->Detached(), (Detached{{"p", 2}}));  // until something is done about it
  vipuagent::InjectRequest fault;
  fault.set_host("127.10.0.1");
  fault.set_fault(vipuagent::IPU_ERROR);
  fault.set_error("IPUSOFTERR");
  ASSERT_TRUE(agent_->Inject(fault).ok());
  // A client that came before the reset keeps its lease, and the IPUs are left alone.
  const std::string early = MustAttach(Open(8));
  EXPECT_EQ(agent_->Detached(), Detached());
  Configure(3, true, 1);
  EXPECT_EQ(agent_->Unwell().size(), 1u);
  agent_->Release(early, false);
  EXPECT_EQ(agent_->Detached(), (Detached{{"p", 3}}));
  Configure(4, true, 1);
  EXPECT_TRUE(agent_->Unwell().empty());
  EXPECT_EQ(agent_->Detached(), Detached());
}

TEST_F(AgentTest, SameGenerationLeavesLeasesAlone) {
  const std::string lease = MustAttach(Open(0));
  Configure(1);
  EXPECT_TRUE(agent_->Load(lease, SumExecutable()).ok());
}

TEST_F(AgentTest, ConfigurationNamingForeignMachinesIsRefusedAndChangesNothing) {
  vipuagent::ConfigureRequest request;
  request.set_controller_boot_id("boot");
  request.set_sequence(++sequence_);
  vipuagent::AgentPartition* partition = request.add_partitions();
  partition->set_id("q");
  *partition->add_gcds()->add_slices() = WholeMachine("10.0.0.1");
  EXPECT_EQ(agent_->Configure(request).code(), absl::StatusCode::kInvalidArgument);
  MustAttach(Open(0));
  request.clear_partitions();
  request.set_sequence(0);
  EXPECT_EQ(agent_->Configure(request).code(), absl::StatusCode::kAborted);
}

TEST_F(AgentTest, AConfigurationForAnotherProcessIsRefused) {
  const std::string lease = MustAttach(Open(0));
  vipuagent::ConfigureRequest request;
  request.set_controller_boot_id("another");
  request.set_complete(true);
  request.set_agent_boot_id("former");
  EXPECT_TRUE(absl::IsFailedPrecondition(agent_->Configure(request)));
  EXPECT_EQ(Attached(), 1);
  request.set_agent_boot_id(agent_->boot_id());
  EXPECT_TRUE(agent_->Configure(request).ok());
}

TEST_F(AgentTest, CompleteConfigurationKeepsWhatItLeavesToALaterOne) {
  const std::string lease = MustAttach(Open(0));
  vipuagent::ConfigureRequest request;
  request.set_controller_boot_id("another");
  request.set_complete(true);
  vipuagent::KeptPartition* kept = request.add_kept();
  kept->set_id("p");
  kept->set_config_generation(1);
  ASSERT_TRUE(agent_->Configure(request).ok());
  EXPECT_EQ(Attached(), 1);
  kept->set_config_generation(2);  // the agent has another
  ASSERT_TRUE(agent_->Configure(request).ok());
  EXPECT_TRUE(absl::IsNotFound(Attach(Open(0)).status()));
}

TEST_F(AgentTest, AnIpuIsInOnePartitionOnly) {
  vipuagent::ConfigureRequest request;
  request.set_complete(true);
  for (const char* id : {"q", "r"}) {
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id(id);
    *partition->add_gcds()->add_slices() = WholeMachine("127.10.0.1");
  }
  EXPECT_EQ(agent_->Configure(request).message(),
            "partition r: IPU 3 of machine 127.10.0.1 is in two partitions");
}

TEST_F(AgentTest, NewPartitionWaitsForKernelsOfTheOldOne) {
  const std::string lease = MustAttach(Open(0));
  ASSERT_TRUE(agent_->Load(lease, SumExecutable()).ok());
  Awaited<base::Cycles> run;
  agent_->Run(lease, 2, 0, run.Callback());
  Configure(2);  // revokes the lease while its run is active
  ipuof::v1::AttachOpen open = Open(0);
  open.set_generation(2);
  MustAttach(open);
  EXPECT_FALSE(run.Get().ok());
  EXPECT_EQ(Attached(), 1);
}

// A new key with the configuration's old generation: leases go on, and the old key opens nothing.
TEST_F(AgentTest, ANewKeyEndsNoLease) {
  Configure(1, true, 1);
  const std::string held = MustAttach(Open(0));
  Configure(2, true, 1, "6b2f");
  EXPECT_TRUE(agent_->HasLease(held));
  EXPECT_TRUE(
      absl::StartsWith(Attach(Open(1)).status().message(), "wrong fabric key for partition p"));
  ipuof::v1::AttachOpen fresh = Open(1);
  fresh.set_fabric_key("6b2f");
  MustAttach(fresh);
}

// It is not the reset after the last client: errors of idle IPUs stay.
TEST_F(AgentTest, ANewKeyClearsNoErrors) {
  Configure(1, true, 1);
  vipuagent::InjectRequest fault;
  fault.set_host("127.10.0.1");
  fault.set_fault(vipuagent::IPU_ERROR);
  fault.set_pcie_id(3);
  fault.set_error("IPUSOFTERR");
  ASSERT_TRUE(agent_->Inject(fault).ok());
  ASSERT_EQ(agent_->Unwell().size(), 1u);
  Configure(2, true, 1, "6b2f");
  EXPECT_EQ(agent_->Unwell().size(), 1u);
  Configure(3, true, 1, "6b2f");  // as after the last client
  EXPECT_TRUE(agent_->Unwell().empty());
}

}  // namespace
}  // namespace vpod::agent
