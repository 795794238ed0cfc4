// Tests of an agent's listeners: its end-point and its metrics, and one port more only while a job
// sends tensors to other hosts in clear.
#include "tests/support/listeners.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <regex>

#include "device/base/file.h"
#include "tests/support/hosts.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Ports = std::set<std::string>;

// The ports that an agent's log names.
Ports OwnPorts(const std::string& log) {
  std::smatch found;
  if (!std::regex_search(log, found, std::regex(" at \\S+:(\\d+), metrics at \\S+:(\\d+),")))
    return {};
  return {"tcp " + found[1].str(), "tcp " + found[2].str()};
}

Ports Further(pid_t pid, const Ports& own) {
  Ports further;
  for (const std::string& port : SocketsOf(pid).listening) {
    if (!own.contains(port)) further.insert(port);
  }
  return further;
}

class ListenersTest : public ::testing::Test {
 protected:
  static std::string AgentLog(const TestPod& pod, int agent) {
    return base::ReadFile(pod.home() + "/vipu-agent" +
                          (agent == 0 ? "" : "." + std::to_string(agent)) + ".log");
  }
  static Ports OwnPortsOf(const TestPod& pod, int agent) { return OwnPorts(AgentLog(pod, agent)); }
  static Ports FurtherOf(const TestPod& pod, int agent) {
    return Further(pod.AgentPid(agent), OwnPortsOf(pod, agent));
  }
  // A job of two instances over both agents, which goes on until it is stopped.
  static std::unique_ptr<Command> StartJob(TestPod& pod) {
    auto job = pod.Start({"poprun", "--num-instances", "2", "--num-replicas", "8", "replica_job",
                          "--runs", "1000000", "--pause-ms", "5"});
    EXPECT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
    return job;
  }
  static void Stop(Command& job) {
    job.Signal(SIGTERM);
    job.Wait();
  }
};

TEST_F(ListenersTest, AnAgentHasItsOwnOnly) {
  TestPod pod(4);
  ASSERT_EQ(OwnPortsOf(pod, 0).size(), 2u) << AgentLog(pod, 0);
  EXPECT_EQ(SocketsOf(pod.AgentPid()).listening, OwnPortsOf(pod, 0));
  pod.CreatePartition("p4", 4);
  EXPECT_EQ(FurtherOf(pod, 0), Ports());
}

TEST_F(ListenersTest, AJobOfOneHostOpensNone) {
  TestPod pod(8, {"--agents", "processes"});
  pod.CreatePartition("p8", 8);
  const auto job = StartJob(pod);
  for (int agent = 0; agent < 2; ++agent) EXPECT_EQ(FurtherOf(pod, agent), Ports()) << agent;
  Stop(*job);
}

TEST_F(ListenersTest, AJobThatIsForcedToTcpHasAPortWhileItRuns) {
  TestPod pod(8, {"--agents", "processes"}, {{"VPOD_TRANSPORT", "tcp"}});
  pod.CreatePartition("p8", 8);
  for (int round = 0; round < 2; ++round) {
    const auto job = StartJob(pod);
    for (int agent = 0; agent < 2; ++agent) EXPECT_EQ(FurtherOf(pod, agent).size(), 1u) << agent;
    Stop(*job);
    EXPECT_TRUE(Within(kSoon, [&] { return FurtherOf(pod, 0).empty(); }));
    EXPECT_TRUE(Within(kSoon, [&] { return FurtherOf(pod, 1).empty(); }));
  }
}

// Also when it ends in another way than it should.
TEST_F(ListenersTest, AJobThatIsKilledLeavesNoPort) {
  TestPod pod(8, {"--agents", "processes"}, {{"VPOD_TRANSPORT", "tcp"}});
  pod.CreatePartition("p8", 8);
  const auto job = StartJob(pod);
  job->Signal(SIGKILL);
  EXPECT_TRUE(Within(kSoon, [&] { return pod.AttachedIpus() == 0; }));
  for (int agent = 0; agent < 2; ++agent)
    EXPECT_TRUE(Within(kSoon, [&] { return FurtherOf(pod, agent).empty(); })) << agent;
}

// The data of link tests take the agents' own end-points.
TEST_F(ListenersTest, ATestOfTheClusterOpensNone) {
  TestPod pod(8, {"--agents", "processes"});
  const auto test = pod.Start({"vipu-admin", "test", "cluster", "c8"});
  const auto ended = [&] {
    siginfo_t state{};
    waitid(P_PID, static_cast<id_t>(test->pid()), &state, WEXITED | WNOHANG | WNOWAIT);
    return state.si_pid != 0;
  };
  do {
    for (int agent = 0; agent < 2; ++agent) EXPECT_EQ(FurtherOf(pod, agent), Ports());
  } while (!ended() && !HasFailure());
  const Outcome outcome = test->Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
}

TEST_F(ListenersTest, OverHostsThePortIsThereWhileAJobNeedsIt) {
  TestHosts hosts(2);
  if (!hosts.error().empty()) GTEST_SKIP() << hosts.error();
  const auto further = [&](int machine) {
    return Further(hosts.AgentPid(machine), OwnPorts(hosts.AgentLog(machine)));
  };
  const auto none = [&] { return further(1).empty() && further(2).empty(); };
  EXPECT_TRUE(none());
  const Outcome created =
      hosts.Login({"vipu-admin", "create", "partition", "p8", "--size", "8", "--reconfigurable"});
  ASSERT_EQ(created.code, 0) << created.err;
  EXPECT_TRUE(none());
  const auto job = hosts.StartOn(
      "login", hosts.Poprun(2, 8) + Words{"replica_job", "--runs", "1000000", "--pause-ms", "5"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  for (int machine = 1; machine <= 2; ++machine) EXPECT_EQ(further(machine).size(), 1u) << machine;
  job->Signal(SIGTERM);
  job->Wait();
  EXPECT_TRUE(Within(kSoon, none));
}

}  // namespace
}  // namespace vpod::testing
