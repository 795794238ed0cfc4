// Jobs that go wrong: what their users see, and what is left behind.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

class JobsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(16);
    pod_->CreatePartition("p16", 16);
  }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }

  static std::vector<std::string> Poprun(const std::vector<std::string>& job) {
    std::vector<std::string> words = {"poprun", "--num-instances", "4", "--num-replicas",
                                      "16",     "replica_job"};
    words.insert(words.end(), job.begin(), job.end());
    return words;
  }
  // After anything that goes wrong: nothing is attached, and the next job runs on the same
  // partition without a reset.
  static void ExpectUsable() {
    EXPECT_EQ(pod_->AttachedIpus(), 0);
    const Outcome next = pod_->Run(Poprun({"--runs", "2"}));
    EXPECT_EQ(next.code, 0) << next.out << next.err;
    EXPECT_NE(next.out.find("instance 3 finished"), std::string::npos);
  }

  static TestPod* pod_;
};
TestPod* JobsTest::pod_ = nullptr;

TEST_F(JobsTest, AJobRunsToItsEnd) {
  const Outcome outcome = pod_->Run(Poprun({}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("[1,0]<stdout>:run 19 loss"), std::string::npos) << outcome.out;
  ExpectUsable();
}

TEST_F(JobsTest, KilledInstanceIsNamedByTheOthersAndByPoprun) {
  const Outcome outcome = pod_->Run(Poprun({"--fault", "kill", "--instance", "2"}), kSoon);
  EXPECT_EQ(outcome.code, 137);
  // Each survivor says it, and poprun does.
  for (const char* tag : {"[1,0]<stderr>:", "[1,1]<stderr>:", "[1,3]<stderr>:"}) {
    EXPECT_NE(outcome.err.find(std::string(tag) + "error: instance 2 (pid "), std::string::npos)
        << tag << "\n"
        << outcome.err;
  }
  EXPECT_NE(outcome.err.find("poprun: error: instance 2 (pid "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(") was killed by signal 9"), std::string::npos) << outcome.err;
  ExpectUsable();
}

TEST_F(JobsTest, StoppedInstanceIsNamedAndMayGoOn) {
  const auto job = pod_->Start(Poprun({"--fault", "stop", "--instance", "1", "--runs", "30"}));
  ASSERT_TRUE(job->WaitForOutput("fault stop in pid "));
  ASSERT_TRUE(job->WaitForOutput("waiting for 1 of 4 instances: 1", kSoon)) << job->Err();
  const std::string out = job->Out();
  const std::string text = "fault stop in pid ";
  const int pid = std::stoi(out.substr(out.find(text) + text.size()));
  // poprun says it too, whatever the others wait for.
  const std::string name = "Instance 1 (pid " + std::to_string(pid) + " on ";
  ASSERT_TRUE(job->WaitForOutput(" POPRUN [W] " + name, kSoon)) << job->Err();
  kill(pid, SIGCONT);
  const Outcome outcome = job->Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("instance 1 finished"), std::string::npos);
  EXPECT_NE(outcome.err.find(") is stopped (SIGSTOP)"), std::string::npos) << outcome.err;
  ExpectUsable();
}

TEST_F(JobsTest, ExceptionInOneInstanceEndsTheJob) {
  const Outcome outcome = pod_->Run(Poprun({"--fault", "throw", "--instance", "0"}));
  EXPECT_EQ(outcome.code, 134) << outcome.err;
  EXPECT_NE(outcome.err.find("an exception of the application"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("instance 0 (pid "), std::string::npos) << outcome.err;
  ExpectUsable();
}

TEST_F(JobsTest, SilentExitOfOneInstanceEndsTheJob) {
  const Outcome outcome = pod_->Run(Poprun({"--fault", "exit", "--instance", "3"}));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_NE(outcome.err.find("error: instance 3 (pid "), std::string::npos) << outcome.err;
  ExpectUsable();
}

// The instance has done what it wanted to, and the others have not. The first of them that ends
// because of it has mpirun end the rest, which may not have come to the run yet.
TEST_F(JobsTest, AnInstanceThatLeavesEarlyIsNamedByTheOthers) {
  const Outcome outcome =
      pod_->Run(Poprun({"--fault", "leave", "--instance", "2", "--at-run", "3"}), kSoon);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find("run 2 loss"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("run 3 loss"), std::string::npos) << outcome.out;
  const std::string error = "replica_job: error: ", cause = error + "instance 2 (pid ";
  EXPECT_NE(outcome.err.find(cause), std::string::npos) << outcome.err;
  for (size_t at = 0; (at = outcome.err.find(error, at)) != std::string::npos; ++at) {
    EXPECT_EQ(outcome.err.compare(at, cause.size(), cause), 0) << outcome.err;
  }
  EXPECT_NE(outcome.err.find(") left the job"), std::string::npos) << outcome.err;
  ExpectUsable();
}

TEST_F(JobsTest, AChildThatOutlivesItsInstanceHoldsNoDevice) {
  const Outcome outcome = pod_->Run(Poprun({"--fault", "fork", "--instance", "1"}));
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  EXPECT_NE(outcome.err.find("error: instance 1 (pid "), std::string::npos) << outcome.err;
  ExpectUsable();
}

// A program's own error fails the run on all instances; lease and job go on.
TEST_F(JobsTest, ABadLabelFailsTheRunOnEveryInstanceAndTheJobGoesOn) {
  const Outcome outcome = pod_->Run(Poprun({"--fault", "label", "--instance", "2"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* tag : {"[1,0]<stdout>:", "[1,1]<stdout>:", "[1,2]<stdout>:", "[1,3]<stdout>:"}) {
    EXPECT_NE(outcome.out.find(std::string(tag) +
                               "run 5: softmax_cross_entropy 'loss': label 2 in row 3 is outside "
                               "0 to 1 (replica 8)\n"),
              std::string::npos)
        << tag << "\n"
        << outcome.out;
  }
  EXPECT_NE(outcome.out.find("[1,0]<stdout>:run 4 loss"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("[1,0]<stdout>:run 5 loss"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("[1,0]<stdout>:run 19 loss"), std::string::npos) << outcome.out;
  ExpectUsable();
}

TEST_F(JobsTest, DifferentProgramsAreNamedOnEveryInstance) {
  const Outcome outcome = pod_->Run(Poprun({"--fault", "program", "--instance", "2"}));
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("the instances run different programs: instance 2 loaded "),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find(", instances 0, 1, 3 loaded "), std::string::npos) << outcome.err;
  ExpectUsable();
}

TEST_F(JobsTest, MissingInstanceIsNamedAndGivenUp) {
  std::vector<std::string> words = Poprun({"--fault", "absent", "--instance", "2"});
  words.insert(words.begin() + 1, {"--vipu-server-timeout", "7"});
  const Outcome outcome = pod_->Run(words);
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("waiting for 1 of 4 instances: 2"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("instance 2 of 4 did not join within 7 s"), std::string::npos)
      << outcome.err;
  ExpectUsable();
}

TEST_F(JobsTest, WrongReplicaOffsetIsNamed) {
  const Outcome outcome = pod_->Run(Poprun({"--fault", "offset", "--instance", "3"}));
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("they overlap"), std::string::npos) << outcome.err;
  ExpectUsable();
}

TEST_F(JobsTest, TwentyKillsOfTwentyAreNamed) {
  for (int round = 0; round < 20; ++round) {
    const std::string instance = std::to_string(round % 4);
    const Outcome outcome = pod_->Run(
        Poprun({"--fault", "kill", "--instance", instance, "--at-run", std::to_string(round)}));
    ASSERT_EQ(outcome.code, 137) << "round " << round << "\n" << outcome.err;
    ASSERT_NE(outcome.err.find("poprun: error: instance " + instance + " (pid "), std::string::npos)
        << "round " << round << "\n"
        << outcome.err;
    ASSERT_EQ(pod_->AttachedIpus(), 0) << "round " << round;
  }
  ExpectUsable();
}

TEST(ProgramErrorTest, FailedRunsOfOneJobAreNothingToAnother) {
  TestPod pod(8);
  pod.CreatePartition("a", 4);
  pod.CreatePartition("b", 4);
  const auto poprun = [](const std::string& partition, const std::vector<std::string>& job) {
    std::vector<std::string> words = {"poprun", "--vipu-partition", partition, "--num-instances",
                                      "2",      "--num-replicas",   "4",       "replica_job"};
    words.insert(words.end(), job.begin(), job.end());
    return words;
  };
  const auto other = pod.Start(poprun("b", {"--runs", "100", "--pause-ms", "20"}));
  ASSERT_TRUE(other->WaitForOutput("run 0 loss")) << other->Err();
  const Outcome bad = pod.Run(poprun("a", {"--fault", "label", "--instance", "1"}));
  EXPECT_EQ(bad.code, 0) << bad.err;
  EXPECT_NE(bad.out.find("outside 0 to 1 (replica 2)"), std::string::npos) << bad.out;
  const Outcome good = other->Wait();
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(good.err.find("softmax"), std::string::npos) << good.err;
  EXPECT_NE(good.out.find("run 99 loss"), std::string::npos) << good.out;
}

TEST(AutoResetTest, ClientsFollowEachOtherOnAPartitionThatIsTidiedUpAfterEach) {
  TestPod pod(4);
  const Outcome created = pod.Run({"vipu-admin", "create", "partition", "p", "--size", "1"});
  ASSERT_EQ(created.code, 0) << created.err;
  // Somebody's copy of the configuration stays good.
  const std::string run =
      "IPUOF_CONFIG_PATH=\"$VPOD_HOME\"/copy.conf replica_job --runs 2 >/dev/null || exit 1; ";
  const Outcome outcome = pod.Shell(
      "cp \"$IPUOF_CONFIG_DIR\"/p.conf \"$VPOD_HOME\"/copy.conf || exit 1; " + run + run + run +
      "until vipu-admin list events | grep -q 'reset after its last client'; do sleep 0.1; done; " +
      run + "vipu get partition p | grep -q 'ACTIVE'");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
}

}  // namespace
}  // namespace vpod::testing
