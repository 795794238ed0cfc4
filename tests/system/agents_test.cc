// A POD whose machines are processes of their own: jobs span them, and everything is as in one.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/models/resnet_training.h"
#include "device/base/file.h"
#include "tests/support/command.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

// Losses of a job; fails the test when it does.
std::string Losses(TestPod& pod, int instances, int replicas, int ipus = 1,
                   const std::vector<std::string>& more = {}) {
  const std::string file = pod.directory() + "/losses";
  std::filesystem::remove(file);
  std::vector<std::string> words = {"poprun",
                                    "--num-instances",
                                    std::to_string(instances),
                                    "--num-replicas",
                                    std::to_string(replicas),
                                    "--ipus-per-replica",
                                    std::to_string(ipus),
                                    "replica_job",
                                    "--runs",
                                    "7",
                                    "--ipus",
                                    std::to_string(ipus),
                                    "--losses",
                                    file};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = pod.Run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  return base::ReadFile(file);
}

// Losses of twenty updates of ResNet-18 on one replica, each IPU a stage of a pipeline; fails the
// test when the job does.
std::string ResNetLosses(TestPod& pod, int ipus, const std::string& precision) {
  const std::string file = pod.directory() + "/losses";
  std::filesystem::remove(file);
  const Outcome outcome =
      pod.Run({"poprun", "--num-instances", "1", "--num-replicas", "1", "--ipus-per-replica",
               std::to_string(ipus), "resnet_job", "--ipus", std::to_string(ipus), "--schedule",
               ipus == 1 ? "sharded" : "grouped", "--precision", precision, "--accumulation", "15",
               "--losses", file});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  return base::ReadFile(file);
}

// Bits that all replicas received in every collective; fails the test when the job does.
std::string Collectives(TestPod& pod, int instances, int replicas, int ipus) {
  const std::string file = pod.directory() + "/results";
  const Outcome outcome =
      pod.Run({"poprun", "--num-instances", std::to_string(instances), "--num-replicas",
               std::to_string(replicas), "--ipus-per-replica", std::to_string(ipus),
               "collectives_job", "--ipus", std::to_string(ipus), "--results", file});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  std::string all;
  for (int i = 0; i < instances; ++i) all += base::ReadFile(file + "." + std::to_string(i));
  return all;
}

// The way in which processes exchange, as the agents' logs tell it.
bool Logged(const TestPod& pod, const std::string& words) {
  for (const auto& entry : std::filesystem::directory_iterator(pod.home())) {
    if (entry.path().extension() == ".log" &&
        base::ReadFile(entry.path()).find(words) != std::string::npos)
      return true;
  }
  return false;
}

struct Layout {
  int instances, replicas, ipus;
};

class AgentsTest : public ::testing::TestWithParam<std::string> {
 protected:
  // Losses of the layouts with one process for all machines.
  static std::string Reference(const Layout& layout) {
    return Losses(OneProcess(), layout.instances, layout.replicas, layout.ipus);
  }
  // Losses of ResNet-18 on one IPU.
  static const std::string& OneIpu(const std::string& precision) {
    static auto* const losses = new std::map<std::string, std::string>;
    std::string& of_precision = (*losses)[precision];
    if (of_precision.empty()) of_precision = ResNetLosses(OneProcess(), 1, precision);
    return of_precision;
  }
  static TestPod& OneProcess() {
    static TestPod* pod = [] {
      auto* one = new TestPod(16);
      one->CreatePartition("p16", 16);
      ::testing::AddGlobalTestEnvironment(new Owner(one));
      return one;
    }();
    return *pod;
  }

 private:
  struct Owner : ::testing::Environment {
    explicit Owner(TestPod* pod) : pod(pod) {}
    void TearDown() override { pod.reset(); }
    std::unique_ptr<TestPod> pod;
  };
};

TEST_P(AgentsTest, JobsAreIdenticalToThoseOfOneProcess) {
  TestPod pod(16, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p16", 16);
  for (const Layout& layout :
       {Layout{4, 16, 1}, Layout{1, 16, 1}, Layout{16, 16, 1}, Layout{2, 16, 1}, Layout{1, 8, 2},
        Layout{2, 2, 8}, Layout{1, 2, 8}, Layout{1, 1, 16}}) {
    SCOPED_TRACE(std::to_string(layout.instances) + " instances, " +
                 std::to_string(layout.replicas) + " replicas of " + std::to_string(layout.ipus));
    const std::string expected = Reference(layout);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(Losses(pod, layout.instances, layout.replicas, layout.ipus), expected);
    EXPECT_EQ(pod.AttachedIpus(), 0);
  }
  EXPECT_EQ(Logged(pod, "which exchange in shared memory"), GetParam() == "shm");
  EXPECT_EQ(Logged(pod, "which exchange by messages"), GetParam() == "tcp");
}

// Stages of a replica on IPUs of two and four agents work on different micro-batches.
TEST_P(AgentsTest, PipelinesOverAgentsTrainAsOneProcessDoesWithout) {
  TestPod pod(16, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p16", 16);
  for (const Layout& layout : {Layout{1, 1, 8}, Layout{2, 2, 8}, Layout{1, 1, 16}}) {
    SCOPED_TRACE(std::to_string(layout.replicas) + " replicas of " + std::to_string(layout.ipus));
    const std::string accumulation = std::to_string(2 * layout.ipus - 1);
    const std::string expected = Losses(OneProcess(), layout.instances, layout.replicas,
                                        layout.ipus, {"--accumulation", accumulation});
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(Losses(pod, layout.instances, layout.replicas, layout.ipus,
                     {"--accumulation", accumulation, "--pipeline"}),
              expected);
  }
}

// Eight stages, four on each agent.
TEST_P(AgentsTest, ResNet18OverTwoAgentsHasTheLossesOfOneIpu) {
  TestPod pod(8, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p8", 8);
  EXPECT_NE(OneIpu("32"), OneIpu("16"));  // the job heeds --precision
  for (const char* precision : {"32", "16"}) {
    SCOPED_TRACE(precision);
    const std::string expected = OneIpu(precision);
    EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'),
              models::ResNetTraining::kUpdates * 15);
    EXPECT_EQ(ResNetLosses(pod, 8, precision), expected);
    EXPECT_EQ(pod.AttachedIpus(), 0);
  }
  EXPECT_EQ(Logged(pod, "2 processes, which exchange in shared memory"), GetParam() == "shm");
  EXPECT_EQ(Logged(pod, "2 processes, which exchange by messages"), GetParam() == "tcp");
}

TEST_P(AgentsTest, EveryCollectiveGivesTheBitsOfOneProcess) {
  TestPod pod(16, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p16", 16);
  for (const Layout& layout : {Layout{1, 16, 1}, Layout{4, 16, 1}, Layout{2, 8, 2}}) {
    SCOPED_TRACE(std::to_string(layout.instances) + " instances, " +
                 std::to_string(layout.replicas) + " replicas of " + std::to_string(layout.ipus));
    const std::string expected = Collectives(OneProcess(), 1, layout.replicas, layout.ipus);
    EXPECT_NE(expected.find("ORTHOGONAL all-to-all"), std::string::npos);
    EXPECT_EQ(Collectives(pod, layout.instances, layout.replicas, layout.ipus), expected);
  }
  EXPECT_EQ(Logged(pod, "which exchange in shared memory"), GetParam() == "shm");
  EXPECT_EQ(Logged(pod, "which exchange by messages"), GetParam() == "tcp");
}

// On IPUs of two processes, by one client that stays attached.
TEST_P(AgentsTest, ALinkTestGoesOnRoundAfterRound) {
  TestPod pod(8, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p8", 8);
  const auto test =
      pod.Start({"gc-iputraffictest", "--device0", "3", "--device1", "4", "-i", "2", "--forever"});
  const std::string passed = "errors: 0\n";
  const auto rounds = [&] {
    const std::string out = test->Out();
    int count = 0;
    for (size_t at = 0; (at = out.find(passed, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_TRUE(Within(std::chrono::seconds(60), [&] { return rounds() >= 3; })) << test->Err();
  test->Signal(SIGINT);
  EXPECT_EQ(test->Wait().code, 0);
}

// A program's own error fails the run on all agents; leases and job go on.
TEST_P(AgentsTest, AnErrorOfTheProgramFailsTheRunOnEveryAgentAndTheJobGoesOn) {
  TestPod pod(8, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p8", 8);
  // In the second the unit fails when it has met the others for the last time; in the third a
  // replica is on two agents.
  const std::pair<Layout, std::string> kCases[] = {
      {{2, 8, 1}, "label"}, {{2, 8, 1}, "late-label"}, {{1, 1, 8}, "label"}};
  for (const auto& [layout, fault] : kCases) {
    SCOPED_TRACE(fault + " with " + std::to_string(layout.ipus) + " IPUs in a replica");
    const std::string last = std::to_string(layout.instances - 1);
    const Outcome outcome =
        pod.Run({"poprun", "--num-instances", std::to_string(layout.instances), "--num-replicas",
                 std::to_string(layout.replicas), "--ipus-per-replica", std::to_string(layout.ipus),
                 "replica_job", "--ipus", std::to_string(layout.ipus), "--fault", fault,
                 "--instance", last});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string where = layout.instances == 1 ? "\n" : " (replica 4)\n";
    for (int i = 0; i < layout.instances; ++i) {
      EXPECT_NE(outcome.out.find("[1," + std::to_string(i) +
                                 "]<stdout>:run 5: softmax_cross_entropy 'loss': label 2 in row 3 "
                                 "is outside 0 to 1" +
                                 where),
                std::string::npos)
          << outcome.out;
    }
    EXPECT_NE(outcome.out.find("run 4 loss"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("run 5 loss"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("run 19 loss"), std::string::npos) << outcome.out;
    EXPECT_EQ(pod.AttachedIpus(), 0);
  }
  EXPECT_FALSE(Losses(pod, 2, 8).empty());
}

TEST_P(AgentsTest, ALostAgentIsNamedAndTheOthersGoOn) {
  TestPod pod(16, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p8", 8);
  pod.CreatePartition("q8", 8);
  auto job =
      pod.Start({"poprun", "--vipu-partition", "p8", "--num-instances", "2", "--num-replicas", "8",
                 "replica_job", "--runs", "100000", "--pause-ms", "5"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss"));
  kill(pod.AgentPid(1), SIGKILL);
  const Outcome outcome = job->Wait(kSoon);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE((outcome.out + outcome.err).find("agent"), std::string::npos)
      << outcome.out << outcome.err;
  const Outcome other = pod.Run({"poprun", "--vipu-partition", "q8", "--num-instances", "2",
                                 "--num-replicas", "8", "replica_job", "--runs", "3"});
  EXPECT_EQ(other.code, 0) << other.err;
}

TEST_P(AgentsTest, ALostInstanceIsNamedAcrossProcesses) {
  TestPod pod(16, {"--agents", "processes"}, {{"VPOD_TRANSPORT", GetParam()}});
  pod.CreatePartition("p16", 16);
  const Outcome outcome =
      pod.Run({"poprun", "--num-instances", "4", "--num-replicas", "16", "replica_job",
               "--pause-ms", "20", "--instance", "2", "--fault", "kill"});
  EXPECT_EQ(outcome.code, 137) << outcome.out << outcome.err;
  EXPECT_NE((outcome.out + outcome.err).find("instance 2 (pid "), std::string::npos)
      << outcome.out << outcome.err;
  EXPECT_EQ(pod.AttachedIpus(), 0);
  EXPECT_FALSE(Losses(pod, 4, 16).empty());
}

INSTANTIATE_TEST_SUITE_P(Transports, AgentsTest, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace vpod::testing
