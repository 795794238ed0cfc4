// Fault table: faults that `vipu-admin inject` brings about, as tools and a running job see them,
// until they are cleared.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

using vipuuser::PS_ACTIVE;
using vipuuser::PS_ERROR;

// Joins two IPUs of a machine of "mine"; its job cannot do without.
constexpr char kLink[] = "IPU3.NLC_E_0A";

// A process for each machine: one that hangs is not the others' matter.
class FaultInjectionTest : public FaultTable {
 protected:
  FaultInjectionTest() : FaultTable({"--agents", "processes"}) {}
  void SetUp() override {
    FaultTable::SetUp();
    const auto partition = client_->GetPartition("mine");
    ASSERT_TRUE(partition.ok()) << partition.status();
    agent_ = partition->gcds(0).devices(6).agent_id();
    job_ = JobOnMine();
  }

  // On the agent of IPU 6 of "mine", which is IPU 1 of its machine.
  void Inject(const std::vector<std::string>& words) {
    std::vector<std::string> command = {"vipu-admin", "inject", "agent", agent_};
    command.insert(command.end(), words.begin(), words.end());
    const Outcome injected = pod_.Run(command);
    ASSERT_EQ(injected.code, 0) << injected.err;
  }
  // A tool's output for "mine".
  Outcome Show(const std::vector<std::string>& words) {
    std::vector<std::string> command = {"env", "IPUOF_VIPU_API_PARTITION_ID=mine"};
    command.insert(command.end(), words.begin(), words.end());
    return pod_.Run(command, kSoon);
  }
  // How many IPUs of "mine" have this value in gc-inventory.
  int Count(const std::string& name, const std::string& value) {
    const Outcome shown = Show({"gc-inventory", "-j"});
    const auto json = nlohmann::json::parse(shown.out, nullptr, false);
    if (!json.is_object()) return -1;
    int count = 0;
    // Devices of several IPUs come after them.
    for (size_t ipu = 0; ipu < 8; ++ipu) count += json["devices"][ipu].value(name, "") == value;
    return count;
  }
  // The job ends, and says why; nobody else notices.
  void ExpectJobFails(const std::string& reason) {
    const Outcome outcome = job_->Wait(kSoon);
    EXPECT_GT(outcome.code, 0) << "the job did not end";
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    ExpectOtherGoesOn();
  }
  void ExpectJobGoesOn() {
    const auto runs = [&] {
      const std::string out = job_->Out();
      return std::count(out.begin(), out.end(), '\n');
    };
    const auto before = runs();
    EXPECT_TRUE(Within(kSoon, [&] { return runs() > before + 10; })) << job_->Err();
  }
  void EndJob() {
    job_->Signal(SIGINT);
    EXPECT_GT(job_->Wait(kSoon).code, 0);
  }
  // After a reset nothing is left of the fault.
  void ExpectResetClears() {
    const Outcome reset = pod_.Run({"vipu-admin", "reset", "agent", agent_});
    EXPECT_EQ(reset.code, 0) << reset.err;
    ExpectSound();
  }
  void ExpectSound() {
    EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
    EXPECT_EQ(Count("ipu error state", "no errors"), 8);
    EXPECT_EQ(Count("clock", "1330MHz"), 8);
    const Outcome links = Show({"gc-links"});
    EXPECT_NE(links.out.find("overall_result: passed"), std::string::npos) << links.out;
    ExpectMineWorks();
  }

  void ExpectAHangIsSurvived(const std::string& notice) {
    Inject({"--fault", "agent-hang", "--seconds", "15"});
    EXPECT_TRUE(Within(kSoon, [&] { return AgentStatus(agent_) == "Down"; }));
    EXPECT_TRUE(Becomes("mine", PS_ERROR, "Agent " + agent_ + " does not answer."));
    EXPECT_TRUE(job_->WaitForOutput(notice, kSoon)) << job_->Err();
    ExpectOtherGoesOn();
    EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
    ExpectJobGoesOn();
    EndJob();
    ExpectMineWorks();
  }

  std::string agent_;
  std::unique_ptr<Command> job_;
};

TEST_F(FaultInjectionTest, ALinkThatIsDownFailsItsJobByName) {
  Inject({"--fault", "link-down", "--link", kLink});
  ExpectJobFails("[Recovery action: PARTITION_RESET] IPU-Link " + std::string(kLink));
  EXPECT_TRUE(Becomes("mine", PS_ERROR, "link " + std::string(kLink) + " is down"));
  EXPECT_NE(Show({"gc-links"}).out.find("overall_result: failed"), std::string::npos);
  const Outcome test = pod_.Run({"vipu-admin", "test", "cluster", "c16", "--force"});
  EXPECT_EQ(test.code, 1);
  EXPECT_NE(test.out.find(std::string(kLink) + " is down"), std::string::npos) << test.out;
  ExpectResetClears();
}

TEST_F(FaultInjectionTest, ALinkThatCorrectsErrorsIsSeenAndCarriesOn) {
  Inject({"--fault", "link-errors", "--link", kLink, "--rate", "1e9"});
  ExpectJobGoesOn();
  EXPECT_LT(Count("link correctable error count", "0"), 8);
  const Outcome links = Show({"gc-links"});
  EXPECT_NE(links.out.find("failed (degraded"), std::string::npos) << links.out;
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  EXPECT_EQ(job_->Err(), "");
  EndJob();
  ExpectResetClears();
}

TEST_F(FaultInjectionTest, AnIpuErrorFailsItsJobByName) {
  Inject({"--fault", "ipu-error", "--ipu", "1", "--error", "IPUSOFTERR"});
  ExpectJobFails("[Recovery action: IPU_RESET] CIUERRVR.IPUSOFTERR error on IPU 6");
  EXPECT_TRUE(Becomes("mine", PS_ERROR, "Agent " + agent_ + ": IPU 1 failed."));
  EXPECT_EQ(Count("ipu error state", "IPUSOFTERR"), 1);
  EXPECT_NE(Show({"gc-monitor"}).out.find("Partition: mine [error] has 8"), std::string::npos);
  EXPECT_NE(Show({"gc-monitor", "-j"}).out.find(R"("Partition active": "false")"),
            std::string::npos);
  ExpectOneLine(Show({"gc-info", "-l"}), {"not ACTIVE: mine", "IPU 1 failed"});
  const Outcome refused =
      pod_.Run({"poprun", "--vipu-partition", "mine", "--num-replicas", "8", "replica_job"}, kSoon);
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("partition mine is in state PS_ERROR"), std::string::npos)
      << refused.err;
  // The tool for single IPUs works on partitions that are ACTIVE.
  const Outcome single = pod_.Run({"env", "IPUOF_VIPU_API_HOST=127.0.0.1",
                                   "IPUOF_VIPU_API_PORT=" + std::to_string(pod_.port()),
                                   "IPUOF_VIPU_API_PARTITION_ID=mine", "gc-reset", "-d", "6"});
  ExpectOneLine(single, {"not ACTIVE", "mine"});
  const Outcome reset = pod_.Run({"vipu-admin", "reset", "partition", "mine"});
  EXPECT_EQ(reset.code, 0) << reset.err;
  ExpectSound();
}

TEST_F(FaultInjectionTest, AHotIpuIsThrottledAndCarriesOn) {
  Inject({"--fault", "over-temperature", "--ipu", "1"});
  ExpectJobGoesOn();
  EXPECT_EQ(Count("clock", "665MHz"), 1);
  EXPECT_TRUE(Becomes("mine", PS_ACTIVE));
  EXPECT_EQ(job_->Err(), "");
  EndJob();
  ExpectResetClears();
}

TEST_F(FaultInjectionTest, AParityErrorFailsItsJobUntilTheMemoryIsInitialised) {
  const std::string reason =
      "Device 6 needs a parity init. Cannot load binary. Please run 'gc-reset -p -d 6'.";
  Inject({"--fault", "memory-parity", "--ipu", "1"});
  ExpectJobFails(reason);
  EXPECT_EQ(Count("ipu error state", "memory parity error"), 1);
  const Outcome refused = pod_.Run(
      {"poprun", "--vipu-partition", "mine", "--num-replicas", "8", "replica_job", "--runs", "1"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find(reason), std::string::npos) << refused.err;
  // Whoever looks at the partition sees it, and a reset that does not help says what does.
  const auto shown = [&] { return Show({"vipu", "get", "partition", "mine"}).out; };
  const std::string advice = agent_ + ": IPU 1 needs a parity init: 'gc-reset -p'";
  EXPECT_TRUE(Within(kSoon, [&] { return shown().find(advice) != std::string::npos; })) << shown();
  for (const char* device : {"6", "14"}) {
    const Outcome reset = Show({"gc-reset", "-d", device});
    EXPECT_EQ(reset.code, 0) << reset.err;
    EXPECT_EQ(reset.err, std::string("gc-reset: warning: device ") + device +
                             " still needs a parity init before programs load; run 'gc-reset -p "
                             "-d " +
                             device + "'\n");
  }
  EXPECT_EQ(Show({"gc-reset", "-d", "0"}).err, "");
  const Outcome initialised = Show({"gc-reset", "-p", "-d", "6"});
  EXPECT_EQ(initialised.code, 0) << initialised.err;
  EXPECT_EQ(initialised.err, "");
  EXPECT_EQ(Count("ipu error state", "no errors"), 8);
  EXPECT_TRUE(Within(kSoon, [&] { return shown().find("parity") == std::string::npos; }));
  ExpectMineWorks();
}

TEST_F(FaultInjectionTest, AnAgentThatHangsIsNamedAndItsJobGoesOnAfterwards) {
  ExpectAHangIsSurvived("waiting for 1 of 2 instances: 1");
}

// The agent that keeps the job's record, and hears nothing of the others meanwhile.
TEST_F(FaultInjectionTest, TheCoordinatorOfAJobThatHangsBlamesNobodyAndTheJobGoesOnAfterwards) {
  agent_ = client_->GetPartition("mine")->gcds(0).devices(0).agent_id();
  ExpectAHangIsSurvived("waiting for 1 of 2 instances: 0");
}

}  // namespace
}  // namespace vpod::testing
