// Faults, links and their tests, on an agent of four machines in one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/arch/soc_error.h"
#include "device/program/executable.h"
#include "server/agent/agent.h"

namespace vpod::agent {
namespace {

using vipuagent::Fault;

constexpr char kKey[] = "5e1a";                      // of the partition
constexpr uint32_t kCopy = 0, kRest = 1, kLong = 2;  // programs

// On two IPUs: "copy" sends 4096 bytes from the first to the second, "rest" does nothing, "long"
// repeats for a while.
std::string TwoIpus() {
  program::v1::Executable executable;
  executable.set_ipus_per_replica(2);
  for (const char* name : {"copy", "rest", "long"}) executable.add_programs()->set_name(name);
  for (uint32_t ipu = 0; ipu < 2; ++ipu) {
    program::v1::Ipu* description = executable.add_ipus();
    description->set_arena_bytes(1 << 20);
    program::v1::Tensor* tensor = description->add_tensors();
    tensor->set_type(program::v1::FLOAT32);
    tensor->add_dims(1024);
    program::v1::Instruction* copy = description->add_functions()->add_instructions();
    copy->mutable_exchange();
    (ipu == 0 ? copy->mutable_inputs() : copy->mutable_outputs())->Add(0);
    description->add_functions();
    description->add_functions()->add_instructions()->mutable_fill();
    description->mutable_functions(2)->mutable_instructions(0)->add_outputs(0);
    program::v1::Repeat* repeat =
        description->add_functions()->add_instructions()->mutable_repeat();
    repeat->set_function(2);
    repeat->set_count(100'000'000);
    executable.mutable_programs(kCopy)->add_functions(0);
    executable.mutable_programs(kRest)->add_functions(1);
    executable.mutable_programs(kLong)->add_functions(3);
  }
  executable.add_exchanges()->add_moves()->set_to_ipu(1);
  return program::Serialize(executable);
}

std::string Host(uint32_t machine) { return absl::StrCat("127.10.0.", machine + 1); }

class FaultsTest : public testing::Test {
 protected:
  FaultsTest() {
    AgentOptions options;
    options.num_machines = 4;
    options.compute_threads = 2;
    options.memory_limit_bytes = 64 << 20;
    agent_ = *Agent::Create(options);
    Configure(1);
  }

  // One partition of the first of the 16 IPUs.
  void Configure(uint64_t generation, uint32_t num_ipus = 16) {
    vipuagent::ConfigureRequest request;
    request.set_controller_boot_id("boot");
    request.set_sequence(generation);
    request.set_complete(true);
    vipuagent::AgentPartition* partition = request.add_partitions();
    partition->set_id("p");
    partition->set_generation(generation);
    partition->set_fabric_key(kKey);
    partition->set_reconfigurable(true);
    vipuagent::Gcd* gcd = partition->add_gcds();
    for (uint32_t machine = 0; machine * 4 < num_ipus; ++machine) {
      vipuagent::Slice* slice = gcd->add_slices();
      slice->set_machine_host(Host(machine));
      slice->set_first_pcie_id(3);
      slice->set_num_ipus(std::min(4u, num_ipus - machine * 4));
    }
    generation_ = generation;
    ASSERT_TRUE(agent_->Configure(request).ok());
  }

  ipuof::v1::AttachOpen Open(uint32_t device) const {
    ipuof::v1::AttachOpen open;
    open.set_partition_id("p");
    open.set_fabric_key(kKey);
    open.set_generation(generation_);
    open.set_device_id(device);
    open.mutable_process()->set_pid(4711);
    open.mutable_process()->set_host("host");
    ipuof::v1::JobMember* job = open.mutable_job();
    job->set_job_id(absl::StrCat("job", device));
    job->set_num_instances(1);
    job->set_local_replicas(1);
    job->set_total_replicas(1);
    job->set_ipus_per_replica(2);
    return open;
  }
  // A lease with TwoIpus on it; devices 16 to 23 are the pairs.
  std::string Attach(const ipuof::v1::AttachOpen& open, LeaseEvents events = {}) {
    std::string lease;
    agent_->Attach(open, std::move(events), [&](absl::StatusOr<ipuof::v1::Attached> attached) {
      EXPECT_TRUE(attached.ok()) << attached.status();
      if (attached.ok()) lease = attached->lease_id();
    });
    return lease;
  }
  std::string Loaded(uint32_t device) {
    const std::string lease = Attach(Open(device));
    const auto loaded = agent_->Load(lease, TwoIpus());
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return lease;
  }

  // Runs a program; `meanwhile` happens once it was started.
  absl::Status Run(
      const std::string& lease, uint32_t program, const std::function<void()>& meanwhile = [] {}) {
    base::Mutex mutex;
    std::condition_variable changed;
    std::optional<absl::Status> result;
    agent_->Run(lease, program, 0, [&](absl::StatusOr<base::Cycles> cycles) {
      base::MutexLock lock(mutex);
      result = cycles.status();
      changed.notify_all();
    });
    meanwhile();
    base::MutexLock lock(mutex);
    lock.Wait(changed, [&] { return result.has_value(); });
    return *result;
  }

  absl::Status Inject(uint32_t machine, Fault fault, const std::string& link = "", uint32_t ipu = 0,
                      double rate = 0) {
    vipuagent::InjectRequest request;
    request.set_host(Host(machine));
    request.set_fault(fault);
    request.set_link(link);
    request.set_pcie_id(ipu);
    request.set_rate(rate);
    if (fault == vipuagent::IPU_ERROR) request.set_error("IPUSOFTERR");
    return agent_->Inject(request);
  }
  std::string Attribute(uint32_t routing_id, const std::string& name) {
    const auto telemetry = agent_->GetTelemetry("p");
    EXPECT_TRUE(telemetry.ok());
    return telemetry->ipus(static_cast<int>(routing_id)).attributes().at(name);
  }
  telemetry::v1::LinkTelemetry LinkAt(uint32_t machine, uint32_t ipu, const std::string& name) {
    const auto links = agent_->GetLinks("p");
    EXPECT_TRUE(links.ok());
    for (const auto& link : links->links()) {
      if (link.host() == Host(machine) && link.pcie_id() == ipu && link.name() == name) return link;
    }
    ADD_FAILURE() << name << " is not there";
    return {};
  }
  vipuagent::TestLinkReply Test(vipuagent::LinkTest test, uint32_t machine, const std::string& link,
                                const std::string& expected_peer) {
    vipuagent::TestLinkRequest request;
    request.set_test(test);
    request.set_host(Host(machine));
    request.set_link(link);
    request.set_expected_peer(expected_peer);
    const auto reply = agent_->TestLink(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : vipuagent::TestLinkReply();
  }

  uint64_t generation_ = 1;
  std::unique_ptr<Agent> agent_;
};

TEST_F(FaultsTest, HeartbeatsForgetNoFaultThatComesBetweenThem) {
  std::atomic<bool> stop = false;
  std::thread heartbeats([&] {
    while (!stop) agent_->Unwell();
  });
  size_t known = 1;
  for (int round = 0; round < 50000 && known == 1; ++round) {
    EXPECT_TRUE(Inject(0, vipuagent::LINK_DOWN, "IPU2.NLC_W_1B").ok());
    known = agent_->Unwell().size();
    EXPECT_EQ(known, 1u) << "round " << round;
    EXPECT_TRUE(Inject(0, vipuagent::FAULT_NONE).ok());
  }
  stop = true;
  heartbeats.join();
}

TEST_F(FaultsTest, RunsCountTheirBytesOnTheLinks) {
  const std::string lease = Loaded(16);  // IPUs 0 and 1: a rung of the first machine
  ASSERT_TRUE(Run(lease, kRest).ok());
  EXPECT_EQ(LinkAt(0, 3, "NLC_E_0A").tx_bytes(), 0u);
  ASSERT_TRUE(Run(lease, kCopy).ok());
  ASSERT_TRUE(Run(lease, kCopy).ok());
  const auto sender = LinkAt(0, 3, "NLC_E_0A");
  EXPECT_EQ(sender.tx_bytes(), 2u * 4096 / 4);
  EXPECT_EQ(sender.rx_bytes(), 0u);
  EXPECT_EQ(sender.kind(), "IPU-Link");
  EXPECT_EQ(sender.state(), "up");
  EXPECT_EQ(sender.lanes(), 8u);
  EXPECT_EQ(sender.peer_host(), Host(0));
  EXPECT_EQ(sender.peer_pcie_id(), 2u);
  EXPECT_EQ(sender.peer_name(), "NLC_W_0A");
  EXPECT_EQ(LinkAt(0, 2, "NLC_W_0A").rx_bytes(), 2u * 4096 / 4);
  EXPECT_EQ(LinkAt(0, 3, "NLC_E_2A").tx_bytes(), 0u);
}

TEST_F(FaultsTest, LinkDownFailsItsUsersAndNobodyElse) {
  const std::string user = Loaded(16), other = Loaded(17);
  ASSERT_TRUE(
      Inject(0, vipuagent::LINK_DOWN, "IPU2.NLC_W_1B").ok());  // far end of what it sends on
  const absl::Status failed = Run(user, kCopy);
  EXPECT_EQ(failed.message(),
            "[Recovery action: PARTITION_RESET] IPU-Link IPU2.NLC_W_1B of machine 127.10.0.1 is "
            "down");
  EXPECT_TRUE(Run(other, kCopy).ok());
  EXPECT_EQ(LinkAt(0, 2, "NLC_W_1B").state(), "down");
  EXPECT_EQ(LinkAt(0, 3, "NLC_E_1B").state(), "down");
  EXPECT_EQ(LinkAt(0, 3, "NLC_E_1B").lanes(), 0u);
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].host(), Host(0));
  EXPECT_EQ(unwell[0].failed_links(0), "IPU2.NLC_W_1B is down");
  // A new generation of the partition has its links trained again.
  Configure(2);
  EXPECT_TRUE(agent_->Unwell().empty());
  EXPECT_TRUE(Run(Loaded(16), kCopy).ok());
}

TEST_F(FaultsTest, LinksOfAMachineAreTrainedAgainWhenAPartitionHasAllItsIpus) {
  for (const char* link : {"GW_E", "SYNC_N_0"}) {
    ASSERT_TRUE(Inject(3, vipuagent::LINK_DOWN, link).ok());
    ASSERT_EQ(agent_->Unwell().size(), 1u) << link;
    Configure(generation_ + 1);
    EXPECT_TRUE(agent_->Unwell().empty()) << link;
  }
  // The partition has only half of the last machine.
  Configure(generation_ + 1, /*num_ipus=*/14);
  ASSERT_TRUE(Inject(2, vipuagent::LINK_DOWN, "GW_E").ok());
  ASSERT_TRUE(Inject(3, vipuagent::LINK_DOWN, "GW_E").ok());
  Configure(generation_ + 1, /*num_ipus=*/14);
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].host(), Host(3));
}

TEST_F(FaultsTest, LinkErrorsRiseWithTraffic) {
  const std::string lease = Loaded(16);
  ASSERT_TRUE(Inject(0, vipuagent::LINK_ERRORS, "IPU3.NLC_E_0A", 0, 1e6).ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Run(lease, kCopy).ok());
  const auto link = LinkAt(0, 3, "NLC_E_0A");
  EXPECT_EQ(link.correctable_errors(), 5u);  // of 5 KiB at one error in a thousand bytes
  EXPECT_EQ(link.state(), "degraded");
  EXPECT_EQ(Attribute(0, "link correctable error count"), "5");
  EXPECT_EQ(Attribute(1, "link correctable error count"), "0");
  EXPECT_TRUE(agent_->Unwell().empty());
}

TEST_F(FaultsTest, IpuErrorEndsTheRunningJobAndRefusesLoadsUntilReset) {
  std::optional<std::string> event;
  base::Mutex mutex;
  LeaseEvents events;
  events.on_event = [&](const ipuof::v1::AttachEvent& each) {
    base::MutexLock lock(mutex);
    if (each.has_job_failed()) event = each.job_failed().cause();
  };
  const std::string lease = Attach(Open(16), events);
  ASSERT_TRUE(agent_->Load(lease, TwoIpus()).ok());
  const std::string other = Loaded(17);
  const std::string text =
      "[Recovery action: IPU_RESET] CIUERRVR.IPUSOFTERR error on IPU 1 (machine 127.10.0.1, IPU# "
      "2)";
  const absl::Status failed =
      Run(lease, kLong, [&] { EXPECT_TRUE(Inject(0, vipuagent::IPU_ERROR, "", 2).ok()); });
  EXPECT_EQ(failed.message(), text);
  {
    base::MutexLock lock(mutex);
    EXPECT_EQ(event, text);
  }
  EXPECT_EQ(Attribute(1, "ipu error state"), "IPUSOFTERR");
  EXPECT_EQ(Attribute(0, "ipu error state"), "no errors");
  EXPECT_TRUE(Run(other, kCopy).ok());
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].failed_ipus(0), 2u);
  agent_->Release(lease, false);

  const std::string again = Attach(Open(16));
  EXPECT_EQ(agent_->Load(again, TwoIpus()).status().message(), text);
  EXPECT_FALSE(agent_->ResetDevice("p", kKey, 0, 16, false).ok());  // somebody holds it
  agent_->Release(again, false);
  ASSERT_TRUE(agent_->ResetDevice("p", kKey, 0, 1, false).ok());
  EXPECT_TRUE(Run(Loaded(16), kCopy).ok());
  EXPECT_TRUE(agent_->Unwell().empty());
}

TEST_F(FaultsTest, ParityErrorNeedsAParityInit) {
  ASSERT_TRUE(Inject(0, vipuagent::MEMORY_PARITY, "", 3).ok());
  const std::string lease = Attach(Open(16));
  EXPECT_EQ(agent_->Load(lease, TwoIpus()).status().message(),
            "Device 0 needs a parity init. Cannot load binary. Please run 'gc-reset -p -d 0'.");
  agent_->Release(lease, false);
  ASSERT_TRUE(agent_->ResetDevice("p", kKey, 0, 0, false).ok());
  const std::string again = Attach(Open(16));
  EXPECT_FALSE(agent_->Load(again, TwoIpus()).ok());
  agent_->Release(again, false);
  // The controller hears of it, and when it is over.
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);
  EXPECT_EQ(unwell[0].parity_ipus_size(), 1);
  EXPECT_EQ(unwell[0].parity_ipus(0), 3u);
  EXPECT_EQ(unwell[0].failed_ipus_size(), 0);
  ASSERT_TRUE(agent_->ResetDevice("p", kKey, 0, 0, true).ok());
  EXPECT_TRUE(agent_->Unwell().empty());
  EXPECT_TRUE(Run(Loaded(16), kCopy).ok());
}

TEST_F(FaultsTest, HotIpusGoOnSlowly) {
  const std::string lease = Loaded(16);
  ASSERT_TRUE(Inject(0, vipuagent::OVER_TEMPERATURE, "", 3).ok());
  EXPECT_TRUE(Run(lease, kCopy).ok());
  EXPECT_EQ(Attribute(0, "clock"), "665MHz");
  ASSERT_TRUE(Inject(0, vipuagent::FAULT_NONE).ok());
  EXPECT_EQ(Attribute(0, "clock"), "1330MHz");
}

TEST_F(FaultsTest, SimulatedErrorComesOnceAtItsRun) {
  ipuof::v1::AttachOpen open = Open(16);
  open.mutable_simulated_error()->add_errors("IPUSOFTERR");
  open.mutable_simulated_error()->set_trigger_count(2);
  std::string lease = Attach(open);
  ASSERT_TRUE(agent_->Load(lease, TwoIpus()).ok());
  EXPECT_TRUE(Run(lease, kRest).ok());
  EXPECT_TRUE(absl::StrContains(Run(lease, kRest).message(), "CIUERRVR.IPUSOFTERR error on IPU 0"));
  EXPECT_EQ(Attribute(0, "ipu error state"), "IPUSOFTERR");
  EXPECT_TRUE(agent_->Unwell().empty());  // the IPU itself is well
  agent_->Release(lease, false);
  ASSERT_TRUE(agent_->ResetDevice("p", kKey, 0, 16, false).ok());
  // The same process does not get it again …
  lease = Attach(open);
  ASSERT_TRUE(agent_->Load(lease, TwoIpus()).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Run(lease, kRest).ok());
  agent_->Release(lease, false);
  // … another does, and again after a reset if it asks for that.
  open.mutable_process()->set_pid(4712);
  open.mutable_simulated_error()->set_rearm_on_reset(true);
  for (int round = 0; round < 2; ++round) {
    lease = Attach(open);
    ASSERT_TRUE(agent_->Load(lease, TwoIpus()).ok());
    EXPECT_TRUE(Run(lease, kRest).ok());
    EXPECT_FALSE(Run(lease, kRest).ok());
    agent_->Release(lease, false);
    ASSERT_TRUE(agent_->ResetDevice("p", kKey, 0, 16, false).ok());
  }
}

TEST_F(FaultsTest, SimulatedErrorEndsWithThePartition) {
  ipuof::v1::AttachOpen open = Open(16);
  open.mutable_simulated_error()->add_errors("IPUSOFTERR");
  const std::string lease = Attach(open);
  ASSERT_TRUE(agent_->Load(lease, TwoIpus()).ok());
  EXPECT_FALSE(Run(lease, kRest).ok());
  agent_->Release(lease, false);
  ASSERT_TRUE(Inject(0, vipuagent::IPU_ERROR, "", 2).ok());
  vipuagent::ConfigureRequest none;
  none.set_controller_boot_id("boot");
  none.set_sequence(2);
  none.set_complete(true);
  ASSERT_TRUE(agent_->Configure(none).ok());
  Configure(3);
  EXPECT_EQ(Attribute(0, "ipu error state"), "no errors");
  EXPECT_EQ(agent_->Unwell().size(), 1u);  // the injected one does not
}

TEST_F(FaultsTest, APartitionThatMovesAwayHealsNothing) {
  ASSERT_TRUE(Inject(3, vipuagent::IPU_ERROR, "", 2).ok());
  ASSERT_TRUE(Inject(0, vipuagent::IPU_ERROR, "", 2).ok());
  Configure(2, 12);
  const auto unwell = agent_->Unwell();
  ASSERT_EQ(unwell.size(), 1u);  // those that it keeps are reset
  EXPECT_EQ(unwell[0].host(), Host(3));
}

TEST_F(FaultsTest, MachineResetEndsItsLeasesAndClearsEverything) {
  std::optional<absl::Status> revoked;
  LeaseEvents events;
  events.on_revoked = [&](const absl::Status& cause) { revoked = cause; };
  const std::string lease = Attach(Open(16), events), other = Loaded(18);
  ASSERT_TRUE(Inject(0, vipuagent::IPU_ERROR, "", 2).ok());
  ASSERT_TRUE(Inject(0, vipuagent::LINK_DOWN, "GW_E").ok());
  ASSERT_TRUE(agent_->ResetMachine(Host(0)).ok());
  ASSERT_TRUE(revoked.has_value());
  EXPECT_EQ(revoked->message(), "machine 127.10.0.1 was reset");
  EXPECT_TRUE(agent_->Unwell().empty());
  EXPECT_TRUE(Run(Loaded(16), kCopy).ok());
  EXPECT_TRUE(Run(other, kCopy).ok());
  EXPECT_TRUE(absl::IsNotFound(agent_->ResetMachine("10.0.0.1")));
}

TEST_F(FaultsTest, WrongRequestsNameTheField) {
  EXPECT_TRUE(absl::IsNotFound(Inject(9, vipuagent::LINK_DOWN, "GW_E")));
  EXPECT_TRUE(absl::IsNotFound(Inject(0, vipuagent::LINK_DOWN, "NLC_E_0A")));
  EXPECT_EQ(Inject(0, vipuagent::LINK_ERRORS, "GW_E", 0, -1).message(),
            "rate is -1, must be a number above 0 of errors per GB");
  EXPECT_EQ(Inject(0, vipuagent::CABLE_SWAPPED, "IPU3.NLC_E_0A").message(),
            "IPU3.NLC_E_0A is a connection inside the machine, not a cable");
  EXPECT_EQ(Inject(0, vipuagent::OVER_TEMPERATURE, "", 4).message(),
            "IPU 4 does not exist; a machine has 0 to 3");
  EXPECT_EQ(Inject(0, vipuagent::AGENT_HANG).message(),
            "seconds is 0, must be above 0 and at most 3600");
  vipuagent::InjectRequest error;
  error.set_host(Host(0));
  error.set_fault(vipuagent::IPU_ERROR);
  error.set_error("not a name");
  EXPECT_EQ(agent_->Inject(error).message(), arch::CheckSocError("error", "not a name").message());
}

TEST_F(FaultsTest, LinkTestsTellWhatIsWrong) {
  using vipuagent::CABLING, vipuagent::TRAINING, vipuagent::TRAFFIC, vipuagent::SYNC;
  const std::string link = "IPU1.NLC_W_0A", peer = "127.10.0.2 IPU3.NLC_W_1A";
  for (const auto test : {CABLING, TRAINING, TRAFFIC}) {
    const auto reply = Test(test, 0, link, peer);
    EXPECT_TRUE(reply.passed()) << reply.reason();
    EXPECT_EQ(reply.bytes_moved(), test == TRAFFIC ? 4096u : test == TRAINING ? 32u : 0u);
    EXPECT_EQ(reply.modelled_seconds() > 0, test != CABLING);
  }
  // The pattern, and the token of the training.
  EXPECT_EQ(LinkAt(0, 1, "NLC_W_0A").tx_bytes(), 4096u + 32);
  EXPECT_EQ(LinkAt(0, 1, "NLC_W_0A").rx_bytes(), 0u);
  EXPECT_EQ(LinkAt(1, 3, "NLC_W_1A").rx_bytes(), 4096u + 32);
  EXPECT_EQ(LinkAt(1, 3, "NLC_W_1A").tx_bytes(), 0u);

  ASSERT_TRUE(Inject(1, vipuagent::CABLE_SWAPPED, "IPU3.NLC_W_1A").ok());  // the far end's plug
  EXPECT_EQ(Test(CABLING, 0, link, peer).reason(),
            "leads to 127.10.0.2 IPU3.NLC_W_1B instead of 127.10.0.2 IPU3.NLC_W_1A");
  ASSERT_TRUE(Inject(1, vipuagent::LINK_DOWN, "IPU3.NLC_W_1A").ok());
  EXPECT_EQ(Test(CABLING, 0, link, peer).reason(), "no signal, 127.10.0.2 IPU3.NLC_W_1A is down");
  ASSERT_TRUE(Inject(1, vipuagent::LINK_ERRORS, "IPU3.NLC_W_1A", 0, 10).ok());
  EXPECT_TRUE(Test(CABLING, 0, link, peer).passed());
  EXPECT_TRUE(Test(TRAFFIC, 0, link, peer).passed());
  EXPECT_EQ(Test(TRAINING, 0, link, peer).reason(), "trained with 4 of 8 lanes");
  ASSERT_TRUE(Inject(1, vipuagent::FAULT_NONE, "IPU3.NLC_W_1A").ok());
  EXPECT_TRUE(Test(TRAINING, 0, link, peer).passed());

  ASSERT_TRUE(Inject(0, vipuagent::CABLE_SWAPPED, link).ok());  // our own plug
  EXPECT_EQ(Test(TRAINING, 0, link, peer).reason(),
            "leads to 127.10.0.2 IPU3.NLC_W_1B instead of 127.10.0.2 IPU3.NLC_W_1A");
  ASSERT_TRUE(Inject(0, vipuagent::LINK_DOWN, "SYNC_N_1").ok());
  EXPECT_EQ(Test(SYNC, 0, "SYNC_N_1", "127.10.0.2 SYNC_S_1").reason(),
            "no signal, the link is down");
  EXPECT_EQ(Test(CABLING, 0, "GW_E", "10.9.9.9 GW_W").reason(),
            "no answer from 10.9.9.9 GW_W: it is on no agent that is known");
}

// At either end, or at both.
TEST_F(FaultsTest, LinksThatCorruptAreFoundByWhatTheyCarry) {
  const std::string link = "IPU1.NLC_W_0A", peer = "127.10.0.2 IPU3.NLC_W_1A";
  for (const bool near : {true, false, true}) {
    ASSERT_TRUE(Inject(near ? 0 : 1, vipuagent::LINK_CORRUPTS, near ? link : "IPU3.NLC_W_1A").ok());
    EXPECT_TRUE(Test(vipuagent::CABLING, 0, link, peer).passed());
    for (const auto test : {vipuagent::TRAINING, vipuagent::TRAFFIC}) {
      EXPECT_EQ(Test(test, 0, link, peer).reason(),
                "data arrived changed at 127.10.0.2 IPU3.NLC_W_1A");
    }
    if (near) {
      EXPECT_TRUE(Inject(1, vipuagent::LINK_CORRUPTS, "IPU3.NLC_W_1A").ok());
    }
  }
  EXPECT_EQ(LinkAt(0, 1, "NLC_W_0A").state(), "corrupting");
  EXPECT_EQ(LinkAt(1, 3, "NLC_W_1A").state(), "corrupting");
  EXPECT_GT(LinkAt(0, 1, "NLC_W_0A").uncorrectable_errors(), 0u);
  ASSERT_TRUE(Inject(0, vipuagent::LINK_CORRUPTS, "SYNC_N_1").ok());
  EXPECT_EQ(Test(vipuagent::SYNC, 0, "SYNC_N_1", "127.10.0.2 SYNC_S_1").reason(),
            "data arrived changed at 127.10.0.2 SYNC_S_1");
  EXPECT_EQ(Test(vipuagent::SYNC, 0, "SYNC_N_0", "127.10.0.2 SYNC_S_0").reason(), "");
}

TEST_F(FaultsTest, LinksThatCorruptFailTheirUsers) {
  const std::string user = Loaded(16);
  ASSERT_TRUE(Inject(0, vipuagent::LINK_CORRUPTS, "IPU3.NLC_E_0A").ok());
  EXPECT_EQ(Run(user, kCopy).message(),
            "[Recovery action: PARTITION_RESET] IPU-Link IPU3.NLC_E_0A of machine 127.10.0.1 "
            "corrupts data");
  EXPECT_EQ(agent_->Unwell()[0].failed_links(0), "IPU3.NLC_E_0A corrupts data");
}

TEST(HangGateTest, HoldsCallsUntilItsTime) {
  HangGate gate;
  int calls = 0;
  gate.WhenOpen([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  const auto now = HangGate::Clock::now();
  gate.Close(now + std::chrono::seconds(5));
  gate.WhenOpen([&] { ++calls; });
  gate.Tick(now + std::chrono::seconds(4));
  EXPECT_EQ(calls, 1);
  gate.Tick(now + std::chrono::seconds(5));
  EXPECT_EQ(calls, 2);
  gate.Close(now + std::chrono::seconds(50));
  gate.WhenOpen([&] { ++calls; });
  gate.OpenForEver();
  EXPECT_EQ(calls, 3);
  gate.Close(now + std::chrono::hours(1));
  EXPECT_FALSE(gate.closed());
}

}  // namespace
}  // namespace vpod::agent
