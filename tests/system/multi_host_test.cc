// A POD over real network separation: a controller, four hosts with an IPU-Machine each, and users
// on a sixth host, all of them network namespaces on a bridge.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <regex>
#include <thread>
#include <tuple>

#include "client/models/resnet_training.h"
#include "device/base/file.h"
#include "tests/support/hosts.h"

namespace vpod::testing {
namespace {

// Results of collectives_job are "replica 0: 4711 cycles", then its bits, and so on.
std::string WithoutCycles(const std::string& results) {
  return std::regex_replace(results, std::regex(": \\d+ cycles"), "");
}
uint64_t Cycles(const std::string& results) {
  return std::strtoull(results.c_str() + results.find(": ") + 2, nullptr, 10);
}

class MultiHostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    hosts_ = std::make_unique<TestHosts>(kMachines);
    if (!hosts_->error().empty()) GTEST_SKIP() << hosts_->error();
  }
  void CreatePartition(const Words& options) {
    const Outcome created = hosts_->Login(Words{"vipu-admin", "create", "partition"} + options);
    ASSERT_EQ(created.code, 0) << created.err;
  }
  // A job over all hosts, or the first ones, used TCP, not by accident shared memory.
  void ExpectMessages(int machines = kMachines) {
    const std::string way = std::to_string(machines) + " processes, which exchange by messages";
    for (int machine = 1; machine <= machines; ++machine) {
      const std::string log = hosts_->AgentLog(machine);
      EXPECT_NE(log.find(way), std::string::npos);
      EXPECT_EQ(log.find("shared memory"), std::string::npos);
    }
  }
  // Bits that all replicas receive in every collective, of a job that `poprun` starts from login.
  std::string Collectives(const Words& poprun, int instances, int ipus) {
    const std::string file = hosts_->pod().directory() + "/results";
    const Outcome outcome = hosts_->Login(poprun + CollectivesJob(ipus, file));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::string results;
    for (int i = 0; i < instances; ++i) results += base::ReadFile(file + "." + std::to_string(i));
    EXPECT_NE(results.find("ALL SUM all-reduce"), std::string::npos);
    return results;
  }
  static std::string LocalCollectives(TestPod& local, int replicas, int ipus) {
    const std::string file = local.directory() + "/results";
    const Outcome outcome =
        local.Run(Words{"poprun", "--num-instances", "1", "--num-replicas",
                        std::to_string(replicas), "--ipus-per-replica", std::to_string(ipus)} +
                  CollectivesJob(ipus, file));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return base::ReadFile(file + ".0");
  }
  static Words CollectivesJob(int ipus, const std::string& results) {
    return {"collectives_job", "--ipus", std::to_string(ipus), "--results", results};
  }
  static constexpr int kMachines = 4;
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
    EXPECT_FALSE(base::ReadFile(here).empty());
    EXPECT_EQ(base::ReadFile(there), base::ReadFile(here));
  }
  ExpectMessages();
}

// Stages of a replica on IPUs of several hosts.
TEST_F(MultiHostTest, PipelinesOverHostsTrainAsALocalPodDoesWithout) {
  TestPod local(16);
  local.CreatePartition("p16", 16);
  CreatePartition({"p16", "--size", "16", "--reconfigurable"});
  for (int ipus : {8, 16}) {
    SCOPED_TRACE(ipus);
    const auto job = [&](const std::string& file) {
      return Words{"replica_job",
                   "--runs",
                   "5",
                   "--ipus",
                   std::to_string(ipus),
                   "--accumulation",
                   std::to_string(2 * ipus - 1),
                   "--losses",
                   file};
    };
    const std::string there = hosts_->pod().directory() + "/losses";
    const std::string here = local.directory() + "/losses";
    const Outcome apart =
        hosts_->Login(hosts_->Poprun(1, 1, ipus) + job(there) + Words{"--pipeline"});
    ASSERT_EQ(apart.code, 0) << apart.err;
    const Outcome together = local.Run(Words{"poprun", "--num-instances", "1", "--num-replicas",
                                             "1", "--ipus-per-replica", std::to_string(ipus)} +
                                       job(here));
    ASSERT_EQ(together.code, 0) << together.err;
    EXPECT_FALSE(base::ReadFile(here).empty());
    EXPECT_EQ(base::ReadFile(there), base::ReadFile(here));
  }
  ExpectMessages();
}

// Eight stages of a replica, four on each host.
TEST_F(MultiHostTest, ResNet18OverTwoHostsHasTheLossesOfOneIpu) {
  TestPod local(4);
  local.CreatePartition("p1", 1);
  CreatePartition({"p8", "--size", "8", "--reconfigurable"});
  for (const char* precision : {"32", "16"}) {
    SCOPED_TRACE(precision);
    const auto job = [&](const char* ipus, const char* schedule, const std::string& file) {
      return Words{"resnet_job", "--ipus",         ipus, "--schedule", schedule, "--precision",
                   precision,    "--accumulation", "15", "--losses",   file};
    };
    const std::string there = hosts_->pod().directory() + "/losses" + precision;
    const std::string here = local.directory() + "/losses" + precision;
    const Outcome apart = hosts_->Login(hosts_->Poprun(1, 1, 8) + job("8", "grouped", there));
    ASSERT_EQ(apart.code, 0) << apart.err;
    const Outcome together = local.Run(
        Words{"poprun", "--num-instances", "1", "--num-replicas", "1"} + job("1", "sharded", here));
    ASSERT_EQ(together.code, 0) << together.err;
    const std::string expected = base::ReadFile(here);
    EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'),
              models::ResNetTraining::kUpdates * 15);
    EXPECT_EQ(base::ReadFile(there), expected);
  }
  ExpectMessages(2);
}

TEST_F(MultiHostTest, CollectivesGiveTheBitsOfALocalPod) {
  TestPod local(16);
  local.CreatePartition("p16", 16);
  CreatePartition({"p16", "--size", "16", "--reconfigurable"});
  for (const auto& [instances, replicas, ipus] :
       {std::tuple(4, 16, 1), std::tuple(2, 8, 2), std::tuple(2, 2, 8)}) {
    SCOPED_TRACE(std::to_string(instances) + " instances, " + std::to_string(replicas) +
                 " replicas of " + std::to_string(ipus));
    EXPECT_EQ(Collectives(hosts_->Poprun(instances, replicas, ipus), instances, ipus),
              LocalCollectives(local, replicas, ipus));
  }
  ExpectMessages();
}

TEST_F(MultiHostTest, TrafficTestsPassOverHosts) {
  const Outcome tested = hosts_->Login({"vipu-admin", "test", "cluster", "hosts"});
  EXPECT_EQ(tested.code, 0) << tested.out << tested.err;
  EXPECT_NE(tested.out.find("All cables found where expected"), std::string::npos) << tested.out;
  CreatePartition({"p16", "--size", "16", "--reconfigurable"});
  const Outcome links = hosts_->Login({"gc-links"});
  EXPECT_EQ(links.code, 0) << links.err;
  EXPECT_NE(links.out.find("overall_result: passed"), std::string::npos) << links.out;
  const Outcome all = hosts_->Login({"gc-iputraffictest", "--all-links", "-i", "2"});
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_NE(all.out.find("errors: 0\n"), std::string::npos) << all.out;
  for (const char* device : {"0", "7", "8", "13"}) {
    const Outcome host =
        hosts_->Login({"gc-hosttraffictest", "-d", device, "--iterations", "1000"});
    EXPECT_EQ(host.code, 0) << device << ": " << host.err;
  }
  ExpectMessages();
}

TEST_F(MultiHostTest, ALinkThatIsDownBetweenHostsIsNamed) {
  const Outcome injected = hosts_->Login(
      {"vipu-admin", "inject", "agent", "ag3", "--fault", "link-down", "--link", "IPU1.NLC_W_0A"});
  ASSERT_EQ(injected.code, 0) << injected.err;
  const Outcome tested = hosts_->Login({"vipu-admin", "test", "cluster", "hosts"});
  EXPECT_EQ(tested.code, 1) << tested.out << tested.err;
  EXPECT_NE(tested.out.find("Cabling: ag3 IPU1.NLC_W_0A: "), std::string::npos) << tested.out;
  EXPECT_NE(tested.out.find("Traffic: ag3 IPU1.NLC_W_0A: "), std::string::npos) << tested.out;
}

// Two racks of two hosts, a process for each GCD.
TEST_F(MultiHostTest, GwLinksCarryDataBetweenRacks) {
  for (const Words& words : {Words{"remove", "cluster", "hosts"},
                             Words{"create", "cluster", "racks", "--agents", "ag1,ag2,ag3,ag4",
                                   "--num-ipulinkdomains", "2", "--cluster-topology", "looped"},
                             Words{"create", "partition", "p16", "--size", "16", "--num-gcds", "2",
                                   "--gw-routing", "ring"}}) {
    const Outcome done = hosts_->Login(Words{"vipu-admin"} + words);
    ASSERT_EQ(done.code, 0) << done.err;
  }
  const auto test = [&](const std::string& gcd) {
    return hosts_->StartOn("login", {"env", "IPUOF_VIPU_API_GCD_ID=" + gcd, "gc-gwlinkstraffictest",
                                     "--iterations", "3"});
  };
  const auto first = test("0"), second = test("1");
  for (const auto& each : {first.get(), second.get()}) {
    const Outcome outcome = each->Wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(": passed ("), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("failed"), std::string::npos) << outcome.out;
  }
  // Collectives on two levels, within the racks and between them, which takes longer.
  TestPod local(16);
  local.CreatePartition("p16", 16);
  const std::string racks = Collectives(
      hosts_->Poprun(2, 16, 1, "h1,h3") + Words{"--num-ilds", "2", "--update-partition=yes"}, 2, 1);
  const std::string one = LocalCollectives(local, 16, 1);
  EXPECT_EQ(WithoutCycles(racks), WithoutCycles(one));
  EXPECT_GT(Cycles(racks), Cycles(one));
  ExpectMessages();
  const Outcome tested = hosts_->Login({"vipu-admin", "test", "cluster", "racks", "--force"});
  EXPECT_EQ(tested.code, 0) << tested.out << tested.err;
  EXPECT_NE(tested.out.find("All GW-Links carry data"), std::string::npos) << tested.out;
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
  EXPECT_FALSE(base::ReadFile(here).empty());
  EXPECT_EQ(base::ReadFile(there), base::ReadFile(here));
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
  EXPECT_TRUE(job->WaitForOutput("poprun: error: IPUs of the job were lost", kSoon)) << job->Err();
  EXPECT_NE(job->Err().find("agent ag2 at 10.77.0.4:8080"), std::string::npos) << job->Err();
  EXPECT_TRUE(hosts_->AwaitState("p8", "ERROR"));
  const Outcome other =
      hosts_->Login(hosts_->Poprun(2, 8, 1, "h3,h4") +
                    Words{"--vipu-partition", "q8", "replica_job", "--runs", "3"});
  EXPECT_EQ(other.code, 0) << other.err;
  hosts_->Mend("h2");
  // mpirun's processes there hold the job's output open until they hear that mpirun is gone.
  EXPECT_GT(job->Wait(kSoon).code, 0);
  EXPECT_TRUE(hosts_->AwaitState("p8", "ACTIVE"));
  const Outcome again =
      hosts_->Login(hosts_->Poprun(2, 8, 1, "h1,h2") +
                    Words{"--vipu-partition", "p8", "replica_job", "--runs", "3"});
  EXPECT_EQ(again.code, 0) << again.err;
}

// What mpirun's and its daemons' processes write, send and start, up to the instances, contains
// neither the user's access key nor the partition's fabric key.
TEST(SecureHostsTest, NoKeyTravelsToTheHostsOfAJob) {
  if (access("/usr/bin/strace", X_OK) != 0) GTEST_SKIP() << "there is no /usr/bin/strace";
  TestHosts hosts(2, TestHosts::Security::kSecure);
  if (!hosts.error().empty()) GTEST_SKIP() << hosts.error();
  const Outcome created =
      hosts.Login({"vipu-admin", "create", "partition", "p8", "--size", "8", "--reconfigurable"});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string ipuof = hosts.Login({"bash", "-c", "cat $IPUOF_CONFIG_DIR/*.conf"}).out;
  std::smatch fabric_key;
  ASSERT_TRUE(std::regex_search(ipuof, fabric_key, std::regex("\"fabric_key\": *\"([^\"]+)")))
      << ipuof;
  // Open MPI would compress long messages.
  hosts.pod().environment()["OMPI_MCA_compress_base_limit"] = "1000000000";
  const std::string trace = hosts.pod().directory() + "/trace";
  const Outcome job = hosts.Login(
      Words{"strace", "-f", "-v", "-s", "1000000", "-o", trace, "-e",
            "trace=execve,write,writev,sendto,sendmsg,sendmmsg"} +
      hosts.Poprun(2, 2) +
      Words{"sh", "-c", "vipu list partitions | grep -c ACTIVE && exec replica_job --runs 2"});
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_NE(job.out.find("[1,1]<stdout>:1\n"), std::string::npos) << job.out;
  const std::string traced = base::ReadFile(trace);
  EXPECT_NE(traced.find("VIPU_CLI_API_USER_ID=root"), std::string::npos);  // it is the right trace
  EXPECT_EQ(traced.find(hosts.access_key()), std::string::npos);
  EXPECT_EQ(traced.find(fabric_key[1].str()), std::string::npos);
}

// mpirun's daemons notice, without an agent that does.
TEST_F(MultiHostTest, AHostThatIsCutOffEndsAJobWithoutIpus) {
  auto job = hosts_->StartOn(
      "login", hosts_->Poprun(2, 2, 1, "h1,h2") +
                   Words{"--offline-mode=on", "sh", "-c", "echo here; exec sleep 600"});
  for (const char* line : {"[1,0]<stdout>:here", "[1,1]<stdout>:here"})
    ASSERT_TRUE(job->WaitForOutput(line)) << job->Err();
  hosts_->Cut("h2");
  EXPECT_TRUE(job->WaitForOutput("lost communication with a remote daemon", kSoon)) << job->Err();
  EXPECT_GT(job->Wait(kSoon).code, 0);
  hosts_->Mend("h2");
}

// Answers are on their way to it all the time: only the connection that is kept idle tells.
TEST_F(MultiHostTest, AClientWhoseHostIsCutOffLosesItsIpus) {
  CreatePartition({"p1", "--size", "1"});
  const Words program = {"env", "IPUOF_VIPU_API_PARTITION_ID=p1", "replica_job"};
  auto job = hosts_->StartOn("login", program + Words{"--runs", "100000", "--pause-ms", "1"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  Outcome other = hosts_->RunOn("h3", program + Words{"--runs", "1"});
  EXPECT_NE(other.code, 0);
  EXPECT_NE(other.err.find("is in use by process"), std::string::npos) << other.err;

  hosts_->Cut("login");
  EXPECT_TRUE(Within(kSoon, [&] {
    other = hosts_->RunOn("h3", program + Words{"--runs", "1"});
    return other.code == 0;
  })) << other.err;
  EXPECT_GT(job->Wait().code, 0);
  EXPECT_NE(job->Err().find("device lost"), std::string::npos) << job->Err();
  hosts_->Mend("login");
}

TEST_F(MultiHostTest, AChildThatOutlivesAClientOnAnotherHostHoldsNoIpus) {
  CreatePartition({"p1", "--size", "1"});
  const Words program = {"env", "IPUOF_VIPU_API_PARTITION_ID=p1", "replica_job"};
  const Outcome job = hosts_->RunOn("login", program + Words{"--fault", "fork", "--instance", "0"});
  EXPECT_EQ(job.code, 137) << job.err;
  Outcome other;
  // The child lives for 30 s.
  EXPECT_TRUE(Within(std::chrono::seconds(10), [&] {
    other = hosts_->RunOn("h3", program + Words{"--runs", "1"});
    return other.code == 0;
  })) << other.err;
}

// Its kernel answers for it.
TEST_F(MultiHostTest, AStoppedClientOnAnotherHostKeepsItsIpus) {
  CreatePartition({"p1", "--size", "1"});
  const Words program = {"env", "IPUOF_VIPU_API_PARTITION_ID=p1", "replica_job"};
  auto job = hosts_->StartOn("login", program + Words{"--runs", "2000", "--pause-ms", "1"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  job->Signal(SIGSTOP);
  std::this_thread::sleep_for(
      std::chrono::seconds(6));  // twice what a host that is cut off is given
  job->Signal(SIGCONT);
  const Outcome outcome = job->Wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

}  // namespace
}  // namespace vpod::testing
