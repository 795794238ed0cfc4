// gcipuinfo on a running POD: attributes while programs run, health while things break, and the
// event records that programs leave.
#include "client/gcipuinfo/gcipuinfo.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Two machines, ag0 and ag1, each in a process of its own; partition p8 has all their IPUs, those
// of ag0 first.
class GcipuinfoTest : public ::testing::Test {
 protected:
  GcipuinfoTest() : pod_(8, {"--agents", "processes"}) {
    pod_.CreatePartition("p8", 8);
    records_ = pod_.directory() + "/records";
    fs::create_directories(records_);
    // The library in this process sees the POD as its programs do.
    for (const auto& [name, value] : pod_.environment()) {
      if (value.empty()) {
        unsetenv(name.c_str());
      } else {
        setenv(name.c_str(), value.c_str(), 1);
      }
    }
    pod_.environment()["IPU_APP_EVENT_RECORD_PATH"] = records_;
  }

  // Asks until the attribute of device 0 is as wanted.
  static std::string Await(gcipuinfo& info, const char* label,
                           const std::function<bool(const std::string&)>& wanted) {
    std::string value;
    Within(std::chrono::seconds(60), [&] {
      info.updateData();
      value = info.getNamedAttributeForDevice(0, label);
      return wanted(value);
    });
    return value;
  }
  gcipuinfo::Attributes Record() const { return gcipuinfo().getLastAppEventRecord(records_); }
  void Inject(const std::vector<std::string>& fault) {
    std::vector<std::string> words = {"vipu-admin", "inject", "agent"};
    words.insert(words.end(), fault.begin(), fault.end());
    const Outcome outcome = pod_.Run(words);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  TestPod pod_;
  std::string records_;
};

TEST_F(GcipuinfoTest, AttributesFollowTheProgramThatRuns) {
  gcipuinfo info;
  ASSERT_EQ(info.getDevices().size(), 8u);
  EXPECT_EQ(info.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId), "N/A");
  pod_.environment()["GCDA_MONITOR"] = "1";
  const auto job = pod_.Start({"replica_job", "--runs", "1000000"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  const std::string pid = std::to_string(job->pid());
  EXPECT_EQ(Await(info, gcipuinfo::UserProcessId, [&](const auto& v) { return v == pid; }), pid);
  const std::string use =
      Await(info, gcipuinfo::IpuUtilisation, [](const auto& v) { return v != "0.00%"; });
  EXPECT_NE(use, "0.00%");
  EXPECT_EQ(use.back(), '%');
  EXPECT_EQ(info.getNamedAttributeForDevice(0, gcipuinfo::UserExecutable), "replica_job");
  EXPECT_NE(info.getNamedAttributeForDevice(0, gcipuinfo::IpuPower), "N/A");
  EXPECT_EQ(info.getNamedAttributeForDevice(1, gcipuinfo::UserProcessId), "N/A");
  job->Signal(SIGKILL);
  EXPECT_EQ(Await(info, gcipuinfo::UserProcessId, [](const auto& v) { return v == "N/A"; }), "N/A");
}

// FZJ jpwr makes the object before the program, and never calls setUpdateMode nor updateData. It
// counts the IPUs that have a power, so all of them need one.
TEST_F(GcipuinfoTest, APowerSamplerThatNeverAsksForUpdatesGetsLiveValues) {
  gcipuinfo info;
  ASSERT_EQ(info.getDevices().size(), 8u);
  for (const std::string& power : info.getNamedAttributeForAll(gcipuinfo::IpuPower))
    EXPECT_NEAR(std::stod(power), 41.6, 15) << power;
  EXPECT_EQ(info.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId), "N/A");
  pod_.environment()["GCDA_MONITOR"] = "1";
  const auto job = pod_.Start({"replica_job", "--runs", "1000000"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  const std::string pid = std::to_string(job->pid());
  EXPECT_TRUE(Within(std::chrono::seconds(60), [&] {
    return info.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId) == pid;
  }));
  std::set<std::string> powers;
  EXPECT_TRUE(Within(std::chrono::seconds(60), [&] {
    powers.insert(info.getNamedAttributeForAll(gcipuinfo::IpuPower)[0]);
    return powers.size() > 2;
  })) << "the value of the start";
  job->Signal(SIGKILL);
  EXPECT_TRUE(Within(std::chrono::seconds(60), [&] {
    return info.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId) == "N/A";
  }));
}

TEST_F(GcipuinfoTest, DataStaysAsItIsForCallersThatUpdateIt) {
  gcipuinfo updates, off;
  updates.updateData();
  off.setUpdateMode(false);
  pod_.environment()["GCDA_MONITOR"] = "1";
  const auto job = pod_.Start({"replica_job", "--runs", "1000000"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  gcipuinfo live;
  const std::string pid = std::to_string(job->pid());
  ASSERT_TRUE(Within(std::chrono::seconds(60), [&] {
    return live.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId) == pid;
  }));
  EXPECT_EQ(updates.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId), "N/A");
  EXPECT_EQ(off.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId), "N/A");
  updates.updateData();
  EXPECT_EQ(updates.getNamedAttributeForDevice(0, gcipuinfo::UserProcessId), pid);
}

TEST_F(GcipuinfoTest, ToolsShowNoSensorsOfIdleIpus) {
  EXPECT_NE(pod_.Run({"gc-info", "-i", "-d", "0"}).out.find("ipu power: N/A"), std::string::npos);
}

TEST_F(GcipuinfoTest, HealthNamesDevicesAndConnections) {
  gcipuinfo info;
  EXPECT_EQ(info.checkHealthOfDevices(), "{}");
  const auto devices = info.getDevices();
  ASSERT_EQ(devices.size(), 8u);
  const std::string first = devices[0].at(gcipuinfo::IpuofHost);
  const std::string second = devices[4].at(gcipuinfo::IpuofHost);
  Inject({"ag0", "--fault", "ipu-error", "--ipu", "1", "--error", "IPUSOFTERR"});
  Inject({"ag0", "--fault", "memory-parity", "--ipu", "0"});
  EXPECT_EQ(info.checkHealthOfDevices(),
            "{ \"hosts\": { \"" + first +
                "\": [ {\"error\":\"device\",\"id\":\"2\",\"partition\":\"p8\",\"board ipu "
                "index\":\"1\"},\n" +
                std::string(13 + first.size() + 6, ' ') +
                "{\"error\":\"device\",\"id\":\"3\",\"partition\":\"p8\",\"board ipu "
                "index\":\"0\"} ] } }");
  Inject({"ag0", "--clear"});
  EXPECT_EQ(info.checkHealthOfDevices(), "{}");

  // An agent that is gone: the old attributes stay.
  kill(pod_.AgentPid(1), SIGKILL);
  EXPECT_FALSE(info.updateData());
  EXPECT_EQ(info.getDevices(), devices);
  const Json health = Json::parse(info.checkHealthOfDevices());
  ASSERT_EQ(health["hosts"].size(), 1u) << health;
  const Json& lost = health["hosts"][second];
  ASSERT_EQ(lost.size(), 4u) << health;
  EXPECT_EQ(
      lost[0],
      (Json{{"error", "connection"}, {"id", "4"}, {"partition", "p8"}, {"board ipu index", "3"}}));
}

TEST_F(GcipuinfoTest, AHangingAgentIsAConnectionError) {
  gcipuinfo info;
  const std::string host = info.getNamedAttributeForDevice(0, gcipuinfo::IpuofHost);
  Inject({"ag0", "--fault", "agent-hang", "--seconds", "3000"});
  const Json health = Json::parse(info.checkHealthOfDevices());
  ASSERT_EQ(health["hosts"][host].size(), 4u) << health;
  EXPECT_EQ(health["hosts"][host][0]["error"], "connection");
}

TEST_F(GcipuinfoTest, EventRecordTellsOfAttachAndOfALostInstance) {
  const std::vector<std::string> job = {"poprun", "--num-instances", "2", "--num-replicas",
                                        "2",      "replica_job"};
  EXPECT_EQ(pod_.Run(job).code, 0);
  auto record = Record();
  EXPECT_EQ(record[gcipuinfo::keySeverity], "Info");
  EXPECT_EQ(record[gcipuinfo::keyPartition], "p8");
  EXPECT_NE(record[gcipuinfo::keyCommandLine].find("replica_job"), std::string::npos);
  EXPECT_EQ(record[gcipuinfo::keyRecordPath], records_ + "/ipu_app_event_record.json");
  EXPECT_TRUE(record[gcipuinfo::keyAttachedIPUs] == "0" ||
              record[gcipuinfo::keyAttachedIPUs] == "1")
      << record[gcipuinfo::keyAttachedIPUs];
  EXPECT_NE(record[gcipuinfo::keyAttachedIPUHosts], "");
  EXPECT_EQ(record[gcipuinfo::keySpecificIPUs], "");

  std::vector<std::string> killed = job;
  killed.insert(killed.end(), {"--fault", "kill", "--instance", "1"});
  EXPECT_EQ(pod_.Run(killed).code, 137);
  record = Record();
  EXPECT_EQ(record[gcipuinfo::keySeverity], "Error");
  EXPECT_NE(record[gcipuinfo::keyDescription].find("instance 1 (pid "), std::string::npos)
      << record[gcipuinfo::keyDescription];
  EXPECT_EQ(record[gcipuinfo::keyAttachedIPUs], "0");

  // A less severe event does not replace it.
  EXPECT_EQ(pod_.Run(job).code, 0);
  EXPECT_EQ(Record(), record);
}

TEST_F(GcipuinfoTest, EventRecordNamesTheIpuThatFailedAndTheAgentThatIsLost) {
  {
    const auto job = pod_.Start({"replica_job", "--runs", "1000000", "--ipus", "4"});
    ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
    Inject({"ag0", "--fault", "ipu-error", "--ipu", "1", "--error", "IPUSOFTERR"});
    EXPECT_EQ(job->Wait().code, 1);
  }
  auto record = Record();
  EXPECT_EQ(record[gcipuinfo::keySeverity], "Error");
  EXPECT_EQ(record[gcipuinfo::keyAttachedIPUs], "0,1,2,3");
  EXPECT_EQ(record[gcipuinfo::keySpecificIPUs], "2");
  EXPECT_NE(record[gcipuinfo::keyDescription].find("IPUSOFTERR"), std::string::npos)
      << record[gcipuinfo::keyDescription];

  Inject({"ag0", "--clear"});
  // The controller hears of it with the next heartbeat, and the partition comes back.
  const Outcome back = pod_.Shell(
      "for i in $(seq 100); do vipu list partitions | grep -q ACTIVE && exit 0; sleep 0.1; done; "
      "exit 1");
  ASSERT_EQ(back.code, 0) << back.out;
  const auto job = pod_.Start({"replica_job", "--runs", "1000000", "--ipus", "8"});
  ASSERT_TRUE(job->WaitForOutput("run 3 loss")) << job->Err();
  kill(pod_.AgentPid(1), SIGKILL);
  EXPECT_NE(job->Wait().code, 0);
  record = Record();
  EXPECT_EQ(record[gcipuinfo::keySeverity], "Fatal") << record[gcipuinfo::keyDescription];
  EXPECT_EQ(record[gcipuinfo::keySpecificIPUs], "4,5,6,7");
}

TEST_F(GcipuinfoTest, PythonCallersAndExamples) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the distribution's Python cannot load what is instrumented";
#endif
  pod_.Run({"vipu-admin", "remove", "partition", "p8"});
  pod_.CreatePartition("p4", 4);
  pod_.environment()["PYTHONPATH"] = Program("client/python/gcipuinfo");
  const std::string script = Program("tests/system/gcipuinfo_test.py");
  const Outcome active = pod_.Run({"/usr/bin/python3", script, "active"});
  EXPECT_EQ(active.out, "passed\n") << active.err;
  const std::string examples = Program("client/examples/gcipuinfo") + "/";
  const Outcome health = pod_.Run({"/usr/bin/python3", examples + "gc_health_check.py"});
  EXPECT_EQ(health.code, 0) << health.err;
  EXPECT_EQ(health.out, "All IPUs are healthy.\n");
  const Outcome power = pod_.Run({"/usr/bin/python3", examples + "gc_power_consumption.py", "1"});
  EXPECT_TRUE(std::regex_match(power.out, std::regex("[0-9.]+ W \\(4 of 4 IPUs measured\\)\n")))
      << power.out << power.err;
  const Outcome boards = pod_.Run({"gc-get-attributes-for-all-devices", "board type"});
  EXPECT_EQ(boards.out, "0: M2000\n1: M2000\n2: M2000\n3: M2000\n") << boards.err;

  pod_.environment()["IPUOF_VIPU_API_PARTITION_ID"] = "p4";
  pod_.environment()["IPUOF_VIPU_API_HOST"] = "127.0.0.1";
  pod_.environment()["IPUOF_VIPU_API_PORT"] = std::to_string(pod_.port());
  pod_.CreatePartition("p1", 1);
  const Outcome all = pod_.Run({"/usr/bin/python3", script, "all"});
  EXPECT_EQ(all.out, "passed\n") << all.err;
}

}  // namespace
}  // namespace vpod::testing
