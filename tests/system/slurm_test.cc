// Jobs of a real Slurm get IPUs from the POD through the scripts of deploy/slurm, and give them
// back.
#include "tests/support/slurm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace vpod::testing {
namespace {

constexpr std::chrono::seconds kSlurmTakes(60);  // at most

// Ids and users of all partitions, a line each.
std::string Partitions(TestPod& pod) {
  return pod.Shell("vipu-admin list partitions | tail -n +3 | awk '/ACTIVE/ {print $5, $3}'").out;
}

TEST(WhyNoSlurm, NamesAMissingCgroupFileSystem) {
  if (const std::string reason = WhyNoSlurm(); !reason.empty()) GTEST_SKIP() << reason;
  for (const char* directory : {"/proc", "/none"}) {
    EXPECT_EQ(WhyNoSlurm(directory),
              std::string(directory) + " has no cgroup file system, which slurmd needs");
  }
}

// Way 1: three hosts with 2 IPUs each before a POD4.
class SlurmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = WhyNoSlurm(); !reason.empty()) GTEST_SKIP() << reason;
    pod_ = std::make_unique<TestPod>(4);
    site_ = std::make_unique<SlurmSite>(*pod_, "slurm.conf", 3, "", "OverSubscribe=EXCLUSIVE");
  }
  bool AllGivenBack() {
    return Within(kSlurmTakes, [&] { return Partitions(*pod_).empty(); });
  }

  std::unique_ptr<TestPod> pod_;
  std::unique_ptr<SlurmSite> site_;
};

TEST_F(SlurmTest, AJobTrainsOnItsPartitionAndGivesItBack) {
  const std::string job = site_->Submit(
      {"--nodes=1"},
      "vipu-admin list partitions | awk '/ACTIVE/ {print $5, $3}'; gc-info --ipu-count\n"
      "poprun --num-instances 2 --num-replicas 2 replica_job --runs 2");
  ASSERT_TRUE(site_->Reaches(job, "COMPLETED")) << site_->Output(job);
  const std::string output = site_->Output(job);
  EXPECT_EQ(output.rfind(site_->PartitionOf(job) + " root\n2\n", 0), 0u) << output;
  EXPECT_NE(output.find("run 1 loss"), std::string::npos) << output;
  EXPECT_TRUE(AllGivenBack()) << Partitions(*pod_);
}

TEST_F(SlurmTest, TheNumberOfHostsDecidesTheSize) {
  const std::string job = site_->Submit(
      {"--nodes=2"},
      "srun --ntasks-per-node=1 bash -c 'gc-info --ipu-count; echo $IPUOF_VIPU_API_PARTITION_ID'");
  ASSERT_TRUE(site_->Reaches(job, "COMPLETED")) << site_->Output(job);
  std::string output = site_->Output(job);
  EXPECT_EQ(std::count(output.begin(), output.end(), '4'), 2) << output;
  const std::string line = site_->PartitionOf(job) + "\n";
  const size_t first = output.find(line);
  ASSERT_NE(first, std::string::npos) << output;
  EXPECT_NE(output.find(line, first + 1), std::string::npos) << output;
  EXPECT_TRUE(AllGivenBack()) << Partitions(*pod_);
}

TEST_F(SlurmTest, AJobWithoutFreeIpusIsRequeuedAndRunsWhenThereAreSome) {
  pod_->CreatePartition("others", 4);
  const std::string job = site_->Submit({"--nodes=1"}, "gc-info --ipu-count");
  ASSERT_TRUE(Within(kSlurmTakes, [&] { return !site_->Field(job, "AdminComment").empty(); }));
  EXPECT_EQ(
      site_->Field(job, "AdminComment")
          .rfind("vipu: create partition (" + site_->PartitionOf(job) + "): failed. No 2 free IPUs",
                 0),
      0u)
      << site_->Field(job, "AdminComment");
  ASSERT_TRUE(site_->Reaches(job, "PENDING"));
  EXPECT_EQ(site_->Output(job), "");
  EXPECT_EQ(pod_->Run({"vipu", "remove", "partition", "others"}).code, 0);
  // Slurm tries again after two minutes of its own; unless told to once the job is in its queue.
  ASSERT_TRUE(Within(kSlurmTakes, [&] {
    site_->Run({"scontrol", "update", "JobId=" + job, "StartTime=now"});
    return site_->Field(job, "JobState") == "COMPLETED";
  }));
  EXPECT_EQ(site_->Output(job), "2\n");
  EXPECT_EQ(site_->Field(job, "AdminComment"), "");
  EXPECT_TRUE(AllGivenBack()) << Partitions(*pod_);
}

TEST_F(SlurmTest, ANumberOfHostsThatCannotBeServedIsHeld) {
  const std::string job = site_->Submit({"--nodes=3"}, "true");
  ASSERT_TRUE(Within(kSlurmTakes, [&] {
    return site_->Field(job, "Reason") == "job_requeued_in_held_state";
  })) << site_->Run({"scontrol", "show", "job", job}).out;
  EXPECT_EQ(
      site_->Field(job, "AdminComment"),
      "vipu: 3 hosts with 2 IPUs each are not a power of two; ask for another number of hosts");
  EXPECT_EQ(Partitions(*pod_), "");
}

TEST_F(SlurmTest, AnInteractiveJobWithoutFreeIpusIsCancelled) {
  pod_->CreatePartition("others", 4);
  const Outcome outcome = site_->Run({"srun", "--nodes=1", "gc-info", "--ipu-count"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
  // Whichever message of the controller's reaches srun first.
  EXPECT_TRUE(outcome.err.find("PrologSlurmctld failed") != std::string::npos ||
              outcome.err.find("has been revoked") != std::string::npos)
      << outcome.err;
  EXPECT_EQ(Partitions(*pod_), "others root\n");
}

TEST_F(SlurmTest, ACancelledJobGivesBackItsIpusOnly) {
  pod_->CreatePartition("others", 2);
  const std::string job =
      site_->Submit({"--nodes=1"}, "exec replica_job --runs 1000000 --pause-ms 5");
  ASSERT_TRUE(Within(kSlurmTakes, [&] {
    return site_->Output(job).find("run 0 loss") != std::string::npos;
  })) << site_->Output(job);
  EXPECT_EQ(site_->Run({"scancel", job}).code, 0);
  ASSERT_TRUE(site_->Reaches(job, "CANCELLED"));
  EXPECT_TRUE(Within(kSlurmTakes, [&] { return Partitions(*pod_) == "others root\n"; }))
      << Partitions(*pod_);
}

TEST_F(SlurmTest, ScriptsMayRunAnyNumberOfTimes) {
  for (int i = 0; i < 2; ++i) {
    const Outcome prolog = site_->RunScript("prolog", "77", "alice", 1);
    EXPECT_EQ(prolog.code, 0) << prolog.err;
    EXPECT_EQ(Partitions(*pod_), "slurm_test_77 alice\n");
  }
  for (int i = 0; i < 2; ++i) {
    const Outcome epilog = site_->RunScript("epilog", "77", "alice", 1);
    EXPECT_EQ(epilog.code, 0) << epilog.err;
    EXPECT_EQ(Partitions(*pod_), "");
  }
  // An epilog that did not reach the controller has not given anything back.
  EXPECT_EQ(site_->RunScript("prolog", "77", "alice", 1).code, 0);
  ASSERT_EQ(pod_->Run({"vpod", "down"}).code, 0);
  EXPECT_EQ(site_->RunScript("epilog", "77", "alice", 1).code, 1);
  EXPECT_EQ(site_->RunScript("prolog", "77", "alice", 1).code, 1);
}

// The number of a job says nothing about who made a partition.
TEST_F(SlurmTest, APartitionThatSomebodyElseMadeStays) {
  pod_->CreatePartition("slurm_77", 1);
  pod_->CreatePartition("slurm_test_77", 1);
  const std::string both = Partitions(*pod_);
  EXPECT_EQ(site_->RunScript("prolog", "77", "root", 1).code, 1);
  EXPECT_EQ(Partitions(*pod_), both);
  EXPECT_EQ(site_->RunScript("epilog", "77", "root", 1).code, 0);
  EXPECT_EQ(site_->RunScript("remove-orphans", "78", "root", 1).code, 0);
  EXPECT_EQ(Partitions(*pod_), both);
}

// Two clusters of Slurm share a controller. Their jobs have the same numbers, and every third
// epilog does not run.
TEST(SlurmClustersTest, JobsOfTwoClustersAndPartitionsMadeByHandKeepTheirIpus) {
  if (const std::string reason = WhyNoSlurm(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr int kJobs = 100;
  TestPod pod(32);
  for (const char* name : {"slurm_7", "slurm_900"}) pod.CreatePartition(name, 1);
  const std::string by_hand = Partitions(pod);
  SlurmSite alpha(pod, "slurm.conf", 3, "", "OverSubscribe=EXCLUSIVE", "alpha");
  SlurmSite beta(pod, "slurm.conf", 3, "", "OverSubscribe=EXCLUSIVE", "beta");
  std::map<SlurmSite*, std::vector<std::string>> jobs;
  for (SlurmSite* site : {&alpha, &beta}) {
    site->WriteScript("epilog", "[ $((SLURM_JOB_ID % 3)) != 0 ] || exit 1");
    for (int i = 0; i < kJobs; ++i) {
      jobs[site].push_back(site->Submit({"--nodes=1"},
                                        "gc-info --ipu-count; sleep 0.3; gc-info --ipu-count; echo "
                                        "$IPUOF_VIPU_API_PARTITION_ID"));
    }
  }
  for (const auto& [site, ids] : jobs) {
    for (const std::string& job : ids) {
      ASSERT_TRUE(Within(std::chrono::minutes(10), [&] {
        const std::string state = site->Field(job, "JobState");
        return state == "COMPLETED" || state == "FAILED";
      })) << site->Run({"squeue"}).out;
      EXPECT_EQ(site->Output(job), "2\n2\n" + site->PartitionOf(job) + "\n");
    }
    EXPECT_TRUE(Within(kSlurmTakes, [&] {
      EXPECT_EQ(site->RunScript("remove-orphans", "0", "root", 1).code, 0);
      return Partitions(pod).find(site->PartitionOf("")) == std::string::npos;
    })) << Partitions(pod);
  }
  EXPECT_EQ(Partitions(pod), by_hand);
}

// Way 2: one host with two partitions of 2 IPUs, made beforehand.
TEST(SlurmGresTest, JobsGetStaticPartitionsOfTheirOwn) {
  if (const std::string reason = WhyNoSlurm(); !reason.empty()) GTEST_SKIP() << reason;
  TestPod pod(4);
  pod.CreatePartition("vipu2_0", 2);
  pod.CreatePartition("vipu2_1", 2);
  SlurmSite site(pod, "slurm-gres.conf", 1, "Gres=vipu:2:2");
  // Both hold their partition until the other has one, too.
  const std::string meet = pod.directory() + "/meet-";
  const std::string script = "echo $IPUOF_VIPU_API_PARTITION_ID; gc-info --ipu-count; touch " +
                             meet + "$IPUOF_VIPU_API_PARTITION_ID; until [ -e " + meet +
                             "vipu2_0 -a -e " + meet +
                             "vipu2_1 ]; do sleep 0.1; done; replica_job --runs 1";
  const std::vector<std::string> options = {"--gres=vipu:2:1", "--ntasks=1"};
  const std::string one = site.Submit(options, script), two = site.Submit(options, script);
  ASSERT_TRUE(site.Reaches(one, "COMPLETED")) << site.Output(one);
  ASSERT_TRUE(site.Reaches(two, "COMPLETED")) << site.Output(two);
  std::vector<std::string> outputs = {site.Output(one), site.Output(two)};
  std::sort(outputs.begin(), outputs.end());
  EXPECT_EQ(outputs[0].rfind("vipu2_0\n2\n", 0), 0u) << outputs[0];
  EXPECT_EQ(outputs[1].rfind("vipu2_1\n2\n", 0), 0u) << outputs[1];
  EXPECT_NE(outputs[1].find("run 0 loss"), std::string::npos) << outputs[1];

  const std::string without =
      site.Submit({"--ntasks=1"}, "echo \"[$IPUOF_VIPU_API_PARTITION_ID]\"");
  ASSERT_TRUE(site.Reaches(without, "COMPLETED"));
  EXPECT_EQ(site.Output(without), "[]\n");
  EXPECT_EQ(Partitions(pod), "vipu2_0 root\nvipu2_1 root\n");
}

}  // namespace
}  // namespace vpod::testing
