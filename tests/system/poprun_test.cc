// poprun from outside: partitions it makes and removes, output, exit codes, signals, popdist
// between its instances.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

class PoprunTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { pod_ = new TestPod(16); }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }
  void TearDown() override {
    pod_->Shell(
        "for p in $(vipu-admin list partitions | tail -n +3 | cut -d '|' -f 3); do "
        "[ \"$p\" = \"${p%-}\" ] && vipu-admin remove partition $p; done");
  }

  static TestPod* pod_;
};
TestPod* PoprunTest::pod_ = nullptr;

TEST_F(PoprunTest, PopdistCollectivesWorkBetweenInstances) {
  const Outcome outcome = pod_->Run({"poprun", "--offline-mode=on", "--num-instances", "4",
                                     "--num-replicas", "8", "popdist_job"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line : {"instance 0 ok", "instance 1 ok", "instance 2 ok", "instance 3 ok"}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << outcome.out;
  }
}

TEST_F(PoprunTest, DifferingTensorLayoutsAreReportedOnEveryInstance) {
  const Outcome outcome = pod_->Run({"poprun", "--offline-mode=on", "--num-instances", "4",
                                     "--num-replicas", "4", "popdist_job", "--mismatch"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (int i = 0; i < 4; ++i) {
    EXPECT_NE(outcome.out.find("instance " + std::to_string(i) +
                               ": Tensor layouts did not match on all instances"),
              std::string::npos)
        << outcome.out;
  }
}

TEST_F(PoprunTest, DifferingCommunicatorsAreReportedOnEveryInstance) {
  const Outcome outcome = pod_->Run({"poprun", "--offline-mode=on", "--num-instances", "4",
                                     "--num-replicas", "4", "popdist_job", "--members"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (int i = 0; i < 4; ++i) {
    EXPECT_NE(outcome.out.find("instance " + std::to_string(i) +
                               ": registerCommunicator 'uneven' differs between the instances"),
              std::string::npos)
        << outcome.out;
  }
}

// A virtual environment's python3, say. Debian's mpirun is in /usr/bin, which has many programs.
TEST_F(PoprunTest, InstancesFindTheProgramsThatTheUsersShellFinds) {
  const std::string bin = pod_->directory() + "/venv";
  const Outcome outcome =
      pod_->Shell("mkdir " + bin + " && printf '#!/bin/sh\necho from the environment\n' >" + bin +
                  "/env && chmod +x " + bin + "/env && PATH=" + bin +
                  ":$PATH poprun --offline-mode=on --num-instances 2 --num-replicas 2 sh -c env");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line : {"[1,0]<stdout>:from the environment", "[1,1]<stdout>:from the env"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << outcome.out;
}

TEST_F(PoprunTest, RunsInStepAndReportsDifferentPrograms) {
  pod_->CreatePartition("p", 16);
  const std::vector<std::string> words = {"poprun", "--num-instances", "4",        "--num-replicas",
                                          "4",      "replica_job",     "--in-step"};
  const Outcome before = pod_->Run(words);
  EXPECT_EQ(before.code, 0) << before.out << before.err;
  std::vector<std::string> wrong = words;
  wrong.insert(wrong.end(), {"--instance", "2", "--fault", "other-program"});
  const Outcome outcome = pod_->Run(wrong);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  // From any instance: mpirun ends the others after the first has said it.
  EXPECT_NE(outcome.err.find("replica_job: error: run of replica_job: the instances run different "
                             "programs, this one '"),
            std::string::npos)
      << outcome.err;
}

TEST_F(PoprunTest, HalfAnEnvironmentIsAnErrorAtOnce) {
  pod_->CreatePartition("p", 16);
  const Outcome outcome = pod_->Shell("POPDIST_NUM_TOTAL_REPLICAS=4 exec replica_job");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err,
            "replica_job: error: POPDIST_NUM_TOTAL_REPLICAS is set but "
            "POPDIST_REPLICA_INDEX_OFFSET is not; start the program with poprun, or unset both\n");
}

TEST_F(PoprunTest, ABareOptionLeavesAProgramCalledTrueAlone) {
  EXPECT_EQ(pod_->Run({"poprun", "--offline-mode", "true"}).code, 0);
  EXPECT_EQ(pod_->Run({"poprun", "--offline-mode", "false"}).code, 1);
}

TEST_F(PoprunTest, RefusesASyncTypeThatDoesNotExist) {
  const Outcome outcome =
      pod_->Run({"poprun", "--vipu-partition", "made", "--sync-type", "foo", "true"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("the argument ('foo') for option '--sync-type' is invalid."),
            std::string::npos);
  EXPECT_EQ(pod_->Run({"vipu", "get", "partition", "made"}).code, 1);
}

TEST_F(PoprunTest, CreatesAPartitionWithAGcdForEachInstanceAndRemovesIt) {
  const Outcome outcome = pod_->Run({"poprun", "-vv", "--vipu-partition", "made", "--num-instances",
                                     "2", "--num-replicas", "4", "replica_job", "--runs", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(
                "Partition made does not exist, creating it with 4 IPUs, 2 GCDs, 4 replicas"),
            std::string::npos);
  EXPECT_NE(outcome.err.find("'IPUOF_VIPU_API_GCD_ID=1'"), std::string::npos);
  EXPECT_NE(outcome.err.find("Removing partition made"), std::string::npos);
  EXPECT_EQ(pod_->Run({"vipu", "get", "partition", "made"}).code, 1);
}

TEST_F(PoprunTest, NamesALostInstanceThatHadAGcd) {
  const Outcome outcome =
      pod_->Run({"poprun", "--vipu-partition", "made", "--num-instances", "4", "--num-replicas",
                 "8", "replica_job", "--fault", "kill", "--instance", "2"});
  EXPECT_EQ(outcome.code, 137);
  const size_t line = outcome.err.find("poprun: error: instance 2 (pid ");
  ASSERT_NE(line, std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(") was killed by signal 9", line), std::string::npos) << outcome.err;
}

TEST_F(PoprunTest, ASecondJobOnTheSameGcdsIsRefused) {
  ASSERT_EQ(pod_->Run({"vipu-admin", "create", "partition", "gcds", "--size", "4", "--gcds", "2",
                       "--total-num-replicas", "4"})
                .code,
            0);
  const std::vector<std::string> words = {
      "poprun", "--reset-partition=no", "--num-instances", "2",      "--num-replicas",
      "4",      "replica_job",          "--runs",          "100000", "--pause-ms",
      "10"};
  const auto job = pod_->Start(words);
  ASSERT_TRUE(job->WaitForOutput("run 3 loss"));
  const Outcome second = pod_->Run(words);
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find("poprun: error: cannot attach to GCD 0 of partition gcds: device "),
            std::string::npos)
      << second.err;
}

TEST_F(PoprunTest, APartitionThatItMadeDoesNotOutliveAKilledPoprun) {
  const auto job = pod_->Start({"poprun", "--vipu-partition", "made", "--num-replicas", "2",
                                "replica_job", "--runs", "100000", "--pause-ms", "10"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  job->Signal(SIGKILL);
  EXPECT_TRUE(Within(std::chrono::seconds(30), [&] {
    return pod_->Run({"vipu", "get", "partition", "made"}).code == 1;
  }));
}

TEST_F(PoprunTest, KeepsThePartitionWhenAskedTo) {
  EXPECT_EQ(pod_->Run({"poprun", "--vipu-partition", "kept", "--remove-partition=no",
                       "--num-replicas", "2", "replica_job", "--runs", "2"})
                .code,
            0);
  EXPECT_EQ(pod_->Run({"vipu", "get", "partition", "kept"}).code, 0);
}

TEST_F(PoprunTest, ChangesAnUnfitPartitionOnlyWhenAllowed) {
  ASSERT_EQ(pod_->Run({"vipu-admin", "create", "partition", "small", "--size", "4"}).code, 0);
  const std::vector<std::string> words = {
      "poprun",      "--vipu-partition", "small", "--num-replicas", "2", "--ipus-per-replica", "4",
      "replica_job", "--runs",           "1"};
  const Outcome refused = pod_->Run(words);
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err,
            "poprun: error: partition small has 4 IPUs, but 2 replicas x 4 IPUs need 8; allow a "
            "change with "
            "--update-partition=yes\n");
  const Outcome layout = pod_->Run({"poprun", "--vipu-partition", "small", "--num-replicas", "4",
                                    "--num-instances", "2", "hostname"});
  EXPECT_EQ(layout.err,
            "poprun: error: partition small has 1 GCD(s), 1 replica(s), 1 ILD(s), but 2 GCD(s), 4 "
            "replica(s), 1 ILD(s) "
            "are needed; allow a change with --update-partition=yes\n");
  EXPECT_EQ(pod_->Run({"poprun", "--vipu-partition", "small", "--update-partition=yes",
                       "--num-replicas", "4", "--num-instances", "2", "replica_job", "--runs", "2"})
                .code,
            0);
}

TEST_F(PoprunTest, AReconfigurablePartitionOfSeveralGcdsDoesNotFit) {
  ASSERT_EQ(pod_->Run({"vipu-admin", "create", "partition", "gcds", "--size", "4", "--gcds", "2",
                       "--reconfigurable"})
                .code,
            0);
  const std::vector<std::string> words = {
      "--num-instances", "2", "--num-replicas", "4", "replica_job", "--runs", "2"};
  std::vector<std::string> refused = {"poprun"}, allowed = {"poprun", "--update-partition=yes"};
  refused.insert(refused.end(), words.begin(), words.end());
  allowed.insert(allowed.end(), words.begin(), words.end());
  EXPECT_EQ(pod_->Run(refused).err,
            "poprun: error: partition gcds is reconfigurable and has 2 GCDs, but the instances "
            "have to share one; allow a change with --update-partition=yes\n");
  EXPECT_EQ(pod_->Run(allowed).code, 0);
}

TEST_F(PoprunTest, SaysWhichPartitionsThereAreWhenItCannotChoose) {
  EXPECT_EQ(pod_->Run({"poprun", "hostname"}).err,
            "poprun: error: no V-IPU partition is visible; give --vipu-partition, and "
            "--vipu-allocation to create it\n");
  pod_->CreatePartition("a", 4);
  pod_->CreatePartition("b", 4);
  EXPECT_EQ(
      pod_->Run({"poprun", "hostname"}).err,
      "poprun: error: 2 V-IPU partitions are visible (a, b); choose one with --vipu-partition\n");
}

TEST_F(PoprunTest, ShowsTheOutputOfOneInstance) {
  const Outcome outcome =
      pod_->Run({"poprun", "--offline-mode", "--only-output-from-instance", "2", "--num-instances",
                 "4", "--num-replicas", "4", "bash", "-c",
                 "echo out $OMPI_COMM_WORLD_RANK; echo err $OMPI_COMM_WORLD_RANK >&2"});
  EXPECT_EQ(outcome.out, "[1,2]<stdout>:out 2\n");
  EXPECT_EQ(outcome.err, "[1,2]<stderr>:err 2\n");
}

TEST_F(PoprunTest, ReturnsTheProgramsExitCode) {
  EXPECT_EQ(pod_->Run({"poprun", "--offline-mode", "bash", "-c", "exit 7"}).code, 7);
}

TEST_F(PoprunTest, EndsUnderAParentThatIgnoresItsChildren) {
  EXPECT_EQ(
      pod_->Run({"env", "--ignore-signal=CHLD", "poprun", "--offline-mode", "bash", "-c", "exit 7"})
          .code,
      7);
}

TEST_F(PoprunTest, InterruptEndsTheJobAndFreesTheDevices) {
  pod_->CreatePartition("p", 16);
  for (const auto& [number, code] : {std::make_pair(SIGINT, 130), std::make_pair(SIGTERM, 143)}) {
    const auto job = pod_->Start({"poprun", "--num-instances", "4", "--num-replicas", "16",
                                  "replica_job", "--runs", "100000", "--pause-ms", "10"});
    ASSERT_TRUE(job->WaitForOutput("run 3 loss"));
    job->Signal(number);
    const Outcome outcome = job->Wait(std::chrono::seconds(30));
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(pod_->AttachedIpus(), 0);
  }
}

TEST_F(PoprunTest, InterruptEndsAPoprunThatWaitsForAControllerThatDoesNotAnswer) {
  kill(pod_->ServerPid(), SIGSTOP);
  const auto job = pod_->Start({"poprun", "-vv", "--vipu-server-timeout", "3600", "--num-replicas",
                                "4", "--vipu-partition", "p", "replica_job"});
  ASSERT_TRUE(job->WaitForOutput("POPRUN ["));
  job->Signal(SIGINT);
  const Outcome outcome = job->Wait(kSoon);
  kill(pod_->ServerPid(), SIGCONT);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_NE(outcome.err.find("interrupted by signal 2 while it waited for an answer"),
            std::string::npos)
      << outcome.err;
}

TEST_F(PoprunTest, ASecondJobIsRefusedWhileTheFirstRuns) {
  pod_->CreatePartition("p", 16);
  const auto job = pod_->Start({"poprun", "--num-instances", "4", "--num-replicas", "16",
                                "replica_job", "--runs", "100000", "--pause-ms", "10"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss"));
  const Outcome second = pod_->Run({"poprun", "--num-replicas", "16", "replica_job"});
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find("poprun: error: cannot attach to 16 IPUs of partition p: device 30 is "
                            "in use by process "),
            std::string::npos)
      << second.err;
  EXPECT_EQ(pod_->AttachedIpus(), 16);
}

TEST_F(PoprunTest, TwoJobsShareAReconfigurablePartition) {
  pod_->CreatePartition("p", 16);
  const auto first = pod_->Start(
      {"poprun", "--num-instances", "2", "--num-replicas", "8", "replica_job", "--pause-ms", "20"});
  const auto second = pod_->Start(
      {"poprun", "--num-instances", "2", "--num-replicas", "8", "replica_job", "--pause-ms", "20"});
  EXPECT_EQ(first->Wait().code, 0);
  EXPECT_EQ(second->Wait().code, 0);
}

TEST_F(PoprunTest, RunsOnNamedHosts) {
  pod_->CreatePartition("p", 16);
  const Outcome outcome = pod_->Run({"poprun", "--host", "localhost", "--num-instances", "2",
                                     "--num-replicas", "4", "replica_job", "--runs", "2"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("instance 1 finished"), std::string::npos) << outcome.out;
}

TEST_F(PoprunTest, SaysThatMpirunWasKilled) {
  const auto job = pod_->Start({"poprun", "-v", "--offline-mode", "sleep", "60"});
  const std::string text = "Waiting for mpirun (PID ";
  ASSERT_TRUE(job->WaitForOutput(text));
  const std::string log = job->Err();
  kill(std::stoi(log.substr(log.find(text) + text.size())), SIGKILL);
  const Outcome outcome = job->Wait();
  EXPECT_EQ(outcome.code, 137);
  EXPECT_NE(outcome.err.find("poprun: error: mpirun was killed by signal 9"), std::string::npos)
      << outcome.err;
}

TEST_F(PoprunTest, DoesNotBlameInstancesEndedForAnother) {
  pod_->CreatePartition("p", 16);
  const Outcome outcome = pod_->Run({"poprun", "--num-instances", "4", "--num-replicas", "16",
                                     "fashion_mnist", "--train-images", "100"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.err.find("was lost"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace vpod::testing
