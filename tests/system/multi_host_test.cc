// A POD over real network separation: a controller, four hosts with an IPU-Machine each, and users
// on a sixth host, all of them network namespaces on a bridge.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "tests/support/hosts.h"

namespace vpod::testing {
namespace {

using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class MultiHostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    hosts_ = std::make_unique<TestHosts>(4);
    if (!hosts_->error().empty()) GTEST_SKIP() << hosts_->error();
  }
  void CreatePartition(const Words& options) {
    const Outcome created = hosts_->Login(Words{"vipu-admin", "create", "partition"} + options);
    ASSERT_EQ(created.code, 0) << created.err;
  }
  std::unique_ptr<TestHosts> hosts_;
};

TEST_F(MultiHostTest, JobsAreIdenticalToThoseOfALocalPod) {
  TestPod local(16);
  local.CreatePartition("p16", 16);
  CreatePartition({"p16", "--size", "16", "--reconfigurable"});
  struct Layout {
    int instances, replicas, ipus;
  };
  for (const Layout& layout :
       {Layout{4, 16, 1}, Layout{8, 16, 1}, Layout{2, 16, 1}, Layout{4, 8, 2}, Layout{2, 2, 8}}) {
    SCOPED_TRACE(std::to_string(layout.instances) + " instances, " +
                 std::to_string(layout.replicas) + " replicas of " + std::to_string(layout.ipus));
    const auto job = [&](const std::string& file) {
      return Words{"replica_job", "--runs", "5", "--ipus", std::to_string(layout.ipus),
                   "--losses",    file};
    };
    const std::string there = hosts_->pod().directory() + "/losses";
    const std::string here = local.directory() + "/losses";
    const Outcome apart =
        hosts_->Login(hosts_->Poprun(layout.instances, layout.replicas, layout.ipus) + job(there));
    ASSERT_EQ(apart.code, 0) << apart.err;
    const Outcome together = local.Run(
        Words{"poprun", "--num-instances", std::to_string(layout.instances), "--num-replicas",
              std::to_string(layout.replicas), "--ipus-per-replica", std::to_string(layout.ipus)} +
        job(here));
    ASSERT_EQ(together.code, 0) << together.err;
    EXPECT_FALSE(Contents(here).empty());
    EXPECT_EQ(Contents(there), Contents(here));
  }
  // Not by shared memory, by accident.
  for (int machine = 1; machine <= 4; ++machine) {
    EXPECT_NE(hosts_->AgentLog(machine).find("4 processes, which exchange by messages"),
              std::string::npos);
    EXPECT_EQ(hosts_->AgentLog(machine).find("shared memory"), std::string::npos);
  }
}

TEST_F(MultiHostTest, TrainingIsIdenticalToALocalPod) {
  TestPod local(16);
  local.CreatePartition("p16", 16);
  CreatePartition({"p16", "--size", "16", "--reconfigurable"});
  const auto job = [](const std::string& file) {
    return Words{
        "fashion_mnist", "--epochs", "1", "--train-images", "10000", "--device-iterations", "13",
        "--loss-file",   file};
  };
  const std::string there = hosts_->pod().directory() + "/losses";
  const std::string here = local.directory() + "/losses";
  const Outcome apart = hosts_->Login(hosts_->Poprun(4, 16) + job(there));
  ASSERT_EQ(apart.code, 0) << apart.err;
  const Outcome together =
      local.Run(Words{"poprun", "--num-instances", "4", "--num-replicas", "16"} + job(here));
  ASSERT_EQ(together.code, 0) << together.err;
  EXPECT_FALSE(Contents(here).empty());
  EXPECT_EQ(Contents(there), Contents(here));
}

TEST_F(MultiHostTest, MonitorsSeeAllHosts) {
  CreatePartition({"p16", "--size", "16", "--reconfigurable"});
  auto job = hosts_->StartOn(
      "login", hosts_->Poprun(4, 16) + Words{"replica_job", "--runs", "100000", "--pause-ms", "5"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  const Outcome monitor = hosts_->Login({"gc-monitor"});
  EXPECT_EQ(monitor.code, 0) << monitor.err;
  for (int machine = 1; machine <= 4; ++machine) {
    EXPECT_NE(monitor.out.find(TestHosts::Address("h" + std::to_string(machine))),
              std::string::npos)
        << monitor.out;
  }
  job->Signal(SIGTERM);
  job->Wait();
}

TEST_F(MultiHostTest, AHostThatIsCutOffFailsItsJobByNameAndComesBack) {
  CreatePartition({"p8", "--size", "8", "--reconfigurable"});
  CreatePartition({"q8", "--size", "8", "--reconfigurable"});
  auto job =
      hosts_->StartOn("login", hosts_->Poprun(2, 8) + Words{"--vipu-partition", "p8", "replica_job",
                                                            "--runs", "100000", "--pause-ms", "5"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  hosts_->Cut("h2");
  EXPECT_TRUE(job->WaitForOutput("poprun: error: IPUs of the job were lost")) << job->Err();
  EXPECT_NE(job->Err().find("agent at 10.77.0.4:8080"), std::string::npos) << job->Err();
  EXPECT_TRUE(hosts_->AwaitState("p8", "ERROR"));
  const Outcome other =
      hosts_->Login(hosts_->Poprun(2, 8, 1, "h3,h4") +
                    Words{"--vipu-partition", "q8", "replica_job", "--runs", "3"});
  EXPECT_EQ(other.code, 0) << other.err;
  hosts_->Mend("h2");
  // What mpirun had started there holds the job's output open until it hears that mpirun is gone.
  EXPECT_GT(job->Wait(std::chrono::seconds(60)).code, 0);
  EXPECT_TRUE(hosts_->AwaitState("p8", "ACTIVE"));
  const Outcome again =
      hosts_->Login(hosts_->Poprun(2, 8, 1, "h1,h2") +
                    Words{"--vipu-partition", "p8", "replica_job", "--runs", "3"});
  EXPECT_EQ(again.code, 0) << again.err;
}

}  // namespace
}  // namespace vpod::testing
