// poprun over several hosts. Most hosts are names for this machine behind a launch agent that
// ignores them; those of NamespacesTest are network namespaces, which share nothing but the kernel.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "device/base/file.h"
#include "tests/support/hosts.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Each instance says where it is and what it was told.
const Words kWhere = {"sh", "-c",
                      "echo \"instance $((POPDIST_REPLICA_INDEX_OFFSET / "
                      "POPDIST_NUM_LOCAL_REPLICAS)) on ${VPOD_TEST_HOST:-here}, "
                      "$POPDIST_LOCAL_INSTANCE_INDEX there, rank $OMPI_COMM_WORLD_RANK\""};

class HostsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { pod_ = new TestPod(16); }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }
  HostsTest() {
    pod_->environment()["POPRUN_LAUNCH_AGENT"] = "local-launch-agent";
    for (const char* name : {"SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOBID", "SLURM_JOB_ID",
                             "SLURM_TASKS_PER_NODE"})
      pod_->environment()[name] = "";
  }

  // Runs kWhere offline; every instance must be where `hosts` says, dealt in order.
  void ExpectPlan(const Words& words, const Words& hosts, int instances) {
    SCOPED_TRACE(::testing::PrintToString(words));
    const std::string count = std::to_string(instances);
    const Outcome outcome = pod_->Run(
        Words{"poprun", "--offline-mode=on", "--num-instances", count, "--num-replicas", count} +
        words + kWhere);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const int per_host = instances / static_cast<int>(hosts.size());
    for (int i = 0; i < instances; ++i) {
      const std::string number = std::to_string(i);
      EXPECT_TRUE(Contains(outcome.out, "[1," + number + "]<stdout>:instance " + number + " on " +
                                            hosts[i / per_host] + ", " +
                                            std::to_string(i % per_host) + " there, rank " +
                                            number + "\n"))
          << outcome.out;
    }
  }

  static TestPod* pod_;
};
TestPod* HostsTest::pod_ = nullptr;

TEST_F(HostsTest, InstancesLandAsPlanned) {
  ExpectPlan({"--host", "127.0.0.2,127.0.0.3"}, {"127.0.0.2", "127.0.0.3"}, 4);
  ExpectPlan({"--host", "h[01-04]"}, {"h01", "h02", "h03", "h04"}, 8);
  ExpectPlan({"--host", "b,a"}, {"b", "a"}, 2);
}

// mpirun alone would put this machine first.
TEST_F(HostsTest, ThisMachineIsOneOfTheHosts) {
  ExpectPlan({"--host", "localhost,h2"}, {"here", "h2"}, 4);
  ExpectPlan({"--host", "h2,localhost"}, {"h2", "here"}, 4);
  ExpectPlan({"--host", "h3,127.0.0.1,h1"}, {"h3", "here", "h1"}, 6);
}

TEST_F(HostsTest, HostsComeFromAFile) {
  const std::string path = pod_->directory() + "/hosts";
  std::ofstream(path) << "# rack 1\nh2\n\nh1  # the other\n";
  ExpectPlan({"--hostfile", path}, {"h2", "h1"}, 4);
}

// mpirun believes that it is inside a Slurm job, and must not use srun.
TEST_F(HostsTest, HostsComeFromSlurm) {
  auto& environment = pod_->environment();
  environment["SLURM_JOB_NODELIST"] = environment["SLURM_NODELIST"] = "gc-[02-03]";
  environment["SLURM_JOBID"] = environment["SLURM_JOB_ID"] = "7";
  environment["SLURM_TASKS_PER_NODE"] = "2(x2)";
  ExpectPlan({}, {"gc-02", "gc-03"}, 4);
}

TEST_F(HostsTest, FewerInstancesUseTheFirstHosts) {
  const Outcome outcome = pod_->Run(Words{"poprun", "--offline-mode=on", "--host=h[1-4]",
                                          "--num-instances=2", "--num-replicas=2"} +
                                    kWhere);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Contains(outcome.err, "[W] 2 instance(s) on 4 hosts; using h1, h2 only\n"));
  EXPECT_TRUE(Contains(outcome.out, "instance 1 on h2")) << outcome.out;
}

TEST_F(HostsTest, ImportedConfigurationLaunchesTheSame) {
  const std::string path = pod_->directory() + "/poprun.json";
  EXPECT_EQ(pod_->Run({"poprun", "--export-config", path, "--offline-mode=on", "--host=h[1-2]",
                       "--num-instances=2", "--num-replicas=2", "true"})
                .code,
            0);
  ExpectPlan({"--import-config", path}, {"h1", "h2"}, 2);
}

TEST_F(HostsTest, PopdistSpeaksBetweenHosts) {
  const Outcome outcome = pod_->Run({"poprun", "--offline-mode=on", "--host=h[1-2]",
                                     "--num-instances", "4", "--num-replicas", "8", "popdist_job"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(Contains(outcome.out, "instance " + std::to_string(i) + " ok")) << outcome.out;
  }
}

// A child device of the parent each, or a GCD each: the losses are those of one host.
TEST_F(HostsTest, JobsOnHostsComputeWhatTheyComputeHere) {
  const auto losses = [&](const std::string& name, const Words& words) {
    const std::string path = pod_->directory() + "/" + name;
    const Outcome outcome = pod_->Run(
        Words{"poprun", "--num-instances", "4", "--num-replicas", "8", "--vipu-partition", name} +
        words + Words{"replica_job", "--runs", "5", "--losses", path});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return base::ReadFile(path);
  };
  const std::string here = losses("here", {});
  EXPECT_FALSE(here.empty());
  EXPECT_EQ(losses("gcds", {"--host=127.0.0.[2-3]"}), here);
  pod_->CreatePartition("reconfigurable", 16);
  EXPECT_EQ(losses("reconfigurable", {"--host=127.0.0.[2-3]"}), here);
  pod_->Run({"vipu-admin", "remove", "partition", "reconfigurable"});
}

TEST_F(HostsTest, InstancesActAsTheUserOfTheConfigurationFile) {
  const std::string path = pod_->directory() + "/vipu.hcl";
  std::ofstream(path) << "api-host=\"127.0.0.1\"\napi-port=\"" << pod_->port()
                      << "\"\napi-user-id=\"ada\"\napi-access-key=\"secret\"\n";
  const auto job = [&](const Words& options) {
    return pod_->Run(Words{"env", "-u", "VIPU_CLI_API_HOST", "VIPU_CLI_CONFIG=" + path} + options +
                     Words{"sh", "-c",
                           "echo \"$VIPU_CLI_API_USER_ID, key ${VIPU_CLI_API_ACCESS_KEY-none}, "
                           "file ${VIPU_CLI_CONFIG-none}\""});
  };
  const Words poprun = {"poprun", "-vv", "--vipu-partition=mine"};
  const Outcome here = job(poprun);
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_TRUE(Contains(here.out, "[1,0]<stdout>:ada, key secret, file none\n")) << here.out;
  EXPECT_FALSE(Contains(here.err, "secret")) << here.err;
  // The key travels to no host; that of the file's name is where it is read there.
  const Outcome there = job(poprun + Words{"--host=127.0.0.2"});
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_TRUE(Contains(there.out, "[1,0]<stdout>:ada, key none, file " + path + "\n")) << there.out;
  EXPECT_FALSE(Contains(there.err, "secret")) << there.err;
  EXPECT_FALSE(Contains(there.err, "is not passed on")) << there.err;
  const Outcome warned =
      job(Words{"VIPU_CLI_API_ACCESS_KEY=secret"} + poprun + Words{"--host=127.0.0.2"});
  EXPECT_TRUE(Contains(warned.out, "[1,0]<stdout>:ada, key none, file " + path + "\n"))
      << warned.out;
  EXPECT_TRUE(Contains(warned.err,
                       "[W] VIPU_CLI_API_ACCESS_KEY is not passed on to hosts; instances read the "
                       "access key from ~/.vipu.hcl, or the file that VIPU_CLI_CONFIG names, on "
                       "their host\n"))
      << warned.err;
}

// A GCD for each instance, a domain for each half of them.
TEST(IldsTest, InstancesAreSpreadOverHostsAndDomains) {
  TestPod pod(128);
  pod.environment()["POPRUN_LAUNCH_AGENT"] = "local-launch-agent";
  const Outcome outcome =
      pod.Run({"poprun", "--print-topology", "--vipu-partition=pod128", "--host=127.0.0.[2-3]",
               "--num-ilds=2", "--num-instances=4", "--num-replicas=8", "--ipus-per-replica=16",
               "sh", "-c", "echo GCD $IPUOF_VIPU_API_GCD_ID on $VPOD_TEST_HOST"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Contains(outcome.out, R"( ===========================================
|              poprun topology              |
|===========================================|
| hosts     |   127.0.0.2   |   127.0.0.3   |
|-----------|-------------------------------|
| ILDs      |       0       |       1       |
|-----------|-------------------------------|
| instances |   0   |   1   |   2   |   3   |
|-----------|-------------------------------|
| replicas  | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
 -------------------------------------------
)")) << outcome.out;
  for (int i = 0; i < 4; ++i) {
    const std::string number = std::to_string(i);
    EXPECT_TRUE(Contains(outcome.out, "[1," + number + "]<stdout>:GCD " + number + " on 127.0.0." +
                                          std::to_string(2 + i / 2) + "\n"))
        << outcome.out;
  }
  const Outcome refused = pod.Run(
      {"poprun", "--vipu-partition=pod128", "--num-replicas=8", "--ipus-per-replica=16", "true"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(Contains(refused.err, "A partition over 2 ILDs needs at least 2 GCDs"))
      << refused.err;
}

TEST_F(HostsTest, AServerThatOtherHostsCannotReachIsRefused) {
  const Outcome outcome = pod_->Run({"poprun", "--host=203.0.113.7", "replica_job"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err,
            "poprun: error: the V-IPU server is at 127.0.0.1:" + std::to_string(pod_->port()) +
                ", which host 203.0.113.7 cannot reach; give --vipu-server-host an "
                "address of the network\n");
}

TEST_F(HostsTest, AHostThatCannotBeReachedFailsTheJob) {
  const Outcome outcome =
      pod_->Run({"poprun", "--offline-mode=on", "--launch-agent=false", "--host=h[1-2]",
                 "--num-instances=2", "--num-replicas=2", "true"});
  EXPECT_GT(outcome.code, 0);
  EXPECT_FALSE(outcome.err.empty());
}

TEST_F(HostsTest, AnInterruptEndsTheInstancesOnAllHosts) {
  const auto job = pod_->Start({"poprun", "--offline-mode=on", "--host=h[1-2]", "--num-instances=2",
                                "--num-replicas=2", "sh", "-c", "echo pid $$.; exec sleep 600"});
  for (const std::string start : {"[1,0]<stdout>:pid ", "[1,1]<stdout>:pid "})
    ASSERT_TRUE(job->WaitForOutput(start));
  job->Signal(SIGTERM);
  const Outcome outcome = job->Wait(std::chrono::seconds(30));
  EXPECT_EQ(outcome.code, 143) << outcome.err;
  for (size_t at = outcome.out.find("pid "); at != std::string::npos;
       at = outcome.out.find("pid ", at + 1)) {
    std::ifstream file("/proc/" + std::to_string(std::stoi(outcome.out.substr(at + 4))) +
                       "/cmdline");
    std::string program;
    std::getline(file, program, '\0');
    EXPECT_NE(program, "sleep") << outcome.out;
  }
}

TEST_F(HostsTest, OfflineProgramsFindNoIpus) {
  pod_->CreatePartition("lone", 4);
  EXPECT_EQ(pod_->Run({"gc-info", "-l"}).code, 0);  // by the partition's file
  for (const Words& hosts : {Words{}, Words{"--host=h1"}}) {
    const Outcome outcome =
        pod_->Run(Words{"poprun", "--offline-mode=on"} + hosts + Words{"gc-info", "-l"});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(Contains(outcome.err, "no IPUs: started by poprun --offline-mode")) << outcome.err;
  }
  pod_->Run({"vipu-admin", "remove", "partition", "lone"});
}

TEST_F(HostsTest, SeveralInstancesOnAHostAreBoundToItsNumaNodes) {
  const Words words = {
      "poprun", "-v", "--offline-mode=on", "--host=h1", "--num-instances=2", "--num-replicas=2"};
  const Outcome bound = pod_->Run(words + Words{"true"});
  EXPECT_EQ(bound.code, 0) << bound.err;
  EXPECT_TRUE(Contains(bound.err, "'poprun_numa_wrapper' 'true'")) << bound.err;
  const Outcome free = pod_->Run(words + Words{"--process-placement=disabled", "true"});
  EXPECT_EQ(free.code, 0) << free.err;
  EXPECT_FALSE(Contains(free.err, "poprun_numa_wrapper")) << free.err;
}

// Four hosts behind a bridge, and this test's poprun on another.
class NamespacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.error().empty()) GTEST_SKIP() << hosts_.error();
  }
  Outcome Poprun(const Words& words) {
    return hosts_.Login(Words{"poprun", "--offline-mode=on", "--launch-agent",
                              Program("tests/support/netns/launch-agent")} +
                        words);
  }

  TestHosts hosts_{4};
};

TEST_F(NamespacesTest, InstancesLandAsPlannedAndSpeakOverTheNetwork) {
  const Outcome where =
      Poprun({"--host=h[1-4]", "--num-instances=8", "--num-replicas=8", "sh", "-c",
              "echo $(hostname) $(ip -oneline -4 address show eth0 | awk '{print $4}')"});
  EXPECT_EQ(where.code, 0) << where.err;
  for (int i = 0; i < 8; ++i) {
    const std::string host = "h" + std::to_string(i / 2 + 1);
    EXPECT_TRUE(Contains(where.out, "[1," + std::to_string(i) + "]<stdout>:" + host + " " +
                                        TestHosts::Address(host) + "/24\n"))
        << where.out;
  }
  for (const char* hosts : {"--host=h[1-4]", "--host=10.77.0.[3-6]", "--host=h2,login"}) {
    const Outcome outcome = Poprun({hosts, "--host-subnet=10.77.0.0/24", "--num-instances=4",
                                    "--num-replicas=4", "popdist_job"});
    EXPECT_EQ(outcome.code, 0) << hosts << outcome.err;
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(Contains(outcome.out, "instance " + std::to_string(i) + " ok")) << outcome.out;
    }
  }
}

TEST_F(NamespacesTest, AnUnknownHostIsNamed) {
  const Outcome outcome = Poprun({"--host=h9", "true"});
  EXPECT_GT(outcome.code, 0);
  EXPECT_TRUE(Contains(outcome.err, "no network namespace has the name or address 'h9'"))
      << outcome.err;
}

}  // namespace
}  // namespace vpod::testing
