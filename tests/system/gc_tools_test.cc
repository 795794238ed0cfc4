// The gc-* tools that run programs on devices, as people and public scripts call them
// (spec/gc-tools.md 5 to 8 and 10).
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kTestTools = {
    "gc-exchangetest",    "gc-exchangewritetest", "gc-flops",    "gc-hostsynclatencytest",
    "gc-hosttraffictest", "gc-memorytest",        "gc-powertest"};

// A partition of four IPUs: devices 0 to 6.
class GcToolsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(4);
    pod_->CreatePartition("p4", 4);
  }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }

  // Whatever a test does, its devices are free afterwards.
  void TearDown() override { EXPECT_EQ(pod_->AttachedIpus(), 0); }

  static std::string Sh(const std::string& script) {
    const Outcome outcome = pod_->Shell(script);
    EXPECT_EQ(outcome.code, 0) << script << "\n" << outcome.err;
    EXPECT_EQ(outcome.err, "") << script;
    return outcome.out;
  }

  // JSON output of a command, all of whose scalars must be strings.
  static Json Object(const std::string& command) {
    const Json json = Json::parse(Sh(command), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(json.is_object()) << command;
    const Json flat = json.flatten();
    for (const auto& [key, value] : flat.items()) EXPECT_TRUE(value.is_string()) << key;
    return json;
  }

  static TestPod* pod_;
};
TestPod* GcToolsTest::pod_ = nullptr;

// --- Callers ---

TEST_F(GcToolsTest, InventoryIsCountedAndCompared) {
  // Every key that ends in "id:" counts.
  EXPECT_EQ(Sh("gc-inventory | grep -c '^Device:'"), "7\n");
  EXPECT_EQ(Sh("gc-inventory | grep -c '^  id: '"), "7\n");
  EXPECT_EQ(Sh("gc-inventory | grep 'id:' | wc -l"), "28\n");
  EXPECT_EQ(Sh("gc-inventory -j | python3 -c '\n"
               "import json, sys\n"
               "devices = json.load(sys.stdin)[\"devices\"]\n"
               "for n in range(7):\n"
               "    device = [d for d in devices if d[\"id\"] == str(n)][0]\n"
               "    print(device[\"id\"], device[\"remote buffers\"], device[\"board type\"])'"),
            "0 1 M2000\n1 1 M2000\n2 1 M2000\n3 1 M2000\n4 1 M2000\n5 1 M2000\n6 1 M2000\n");
  EXPECT_EQ(Object("gc-inventory -2 -d 3")["devices"].size(), 1u);
}

TEST_F(GcToolsTest, EveryDeviceAnswersTheCloudToolsTests) {
  for (const std::string device : {"0", "3", "4", "6"}) {
    const Json sync = Object("gc-hostsynclatencytest -d " + device + " -j");
    EXPECT_EQ(sync["ipu_id"], device);
    EXPECT_EQ(sync["result"], "pass");
    EXPECT_NEAR(std::stod(sync["time_to_sync_us"].get<std::string>()), 1485, 5);
    const Json traffic = Object("gc-hosttraffictest -d " + device + " -j --iterations 1000");
    EXPECT_EQ(traffic["repeat_0"].size(), 4u);
    EXPECT_GT(std::stod(traffic["repeat_0"]["host_to_buffer_to_tile"]["tile_transfer_speed_gbps"]
                            .get<std::string>()),
              20);
  }
}

TEST_F(GcToolsTest, HostTrafficOfTheDefaultsMovesAllBytes) {
  const Json report = Object("gc-hosttraffictest -d0 -j");
  EXPECT_EQ(report["configuration"]["iterations"], "100000");
  for (const auto& [key, way] : report["repeat_0"].items())
    EXPECT_EQ(way["tile_data_transferred_bytes"], "819200000") << key;
}

TEST_F(GcToolsTest, MonitorsSeeSensorsOfATrafficTestThatAskedForThem) {
  for (const std::string asked :
       {"GCDA_MONITOR=1", "GCDA_OPTIONS={\"enableMonitoring\":\"true\"}"}) {
    const auto test =
        pod_->Start({"env", asked, "gc-hosttraffictest", "-d0", "--iterations", "100000000"});
    const std::string find =
        "for i in $(seq 200); do gc-monitor --no-card-info | grep "
        "'gc-hosttraffictest' && exit 0; sleep 0.05; done; exit 1";
    const std::string row = Sh(find);
    EXPECT_NE(row.find(std::to_string(test->pid())), std::string::npos) << row;
    EXPECT_EQ(row.find("N/A"), std::string::npos) << row;
    test->Signal(SIGTERM);
    EXPECT_EQ(test->Wait().code, 128 + SIGTERM);
    EXPECT_EQ(Sh("for i in $(seq 200); do gc-monitor --no-card-info | grep -q 'No attached' && "
                 "exit 0; sleep 0.05; done; exit 1"),
              "");
  }
}

// --- Tests of devices ---

TEST_F(GcToolsTest, FlopsOfOneIpuAndOfAGroup) {
  const std::string text = Sh("gc-flops -d 0 -p FP32");
  EXPECT_EQ(Sh("echo '" + text + "' | head -3"),
            "This test can take up to 3 minutes to run.\n"
            "Loading binary into IPU(s)\n"
            "Starting FP32 FLOPS calculation...\n");
  EXPECT_NE(text.find("Flops per IPU (FP32): 58."), std::string::npos) << text;
  EXPECT_NE(text.find("\nIPU clock speed: 1330 MHz\n"), std::string::npos) << text;
  const Json group = Object("gc-flops --device=5 --json --low-clock-rate --wall");
  EXPECT_NEAR(std::stod(group["teraflops_per_ipu"].get<std::string>()), 235.5, 1);
  EXPECT_GT(std::stod(group["wall_duration_seconds"].get<std::string>()), 0);
}

TEST_F(GcToolsTest, TileTestsPass) {
  for (const char* command :
       {"gc-exchangetest -d 4", "gc-exchangewritetest -d 4", "gc-memorytest -d 4 --elements 2"}) {
    const std::string text = Sh(command);
    EXPECT_EQ(text.rfind("ipus: 2\ntiles_per_ipu: 1472\n", 0), 0u) << text;
    EXPECT_NE(text.find("\nResult - Pass\n"), std::string::npos) << text;
    EXPECT_EQ(Object(std::string(command) + " -j")["result"], "pass");
  }
  EXPECT_EQ(Object("gc-memorytest -d 0 -j")["bytes_per_tile"], "589824");
}

TEST_F(GcToolsTest, PowerIsShownUntilCtrlC) {
  const auto test = pod_->Start({"gc-powertest", "-d", "0"});
  const auto beside = pod_->Start({"gc-powertest", "-d", "1"});
  ASSERT_TRUE(test->WaitForOutput("0002: ")) << test->Err();
  ASSERT_TRUE(beside->WaitForOutput("0002: ")) << beside->Err();
  // Others may look, but not touch.
  EXPECT_NE(Sh("gc-info -i -d 0").find("user executable: gc-powertest"), std::string::npos);
  EXPECT_EQ(Sh("gc-info --ipu-count"), "4\n");
  const std::string holder = "device 0 is in use by process " + std::to_string(test->pid());
  for (const char* command : {"gc-info -d 0 --tile-overview", "gc-info -d 0 --nlc-status",
                              "gc-flops -d 0", "gc-memorytest -d 0", "gc-reset -d 0 -p"}) {
    const Outcome refused = pod_->Shell(command);
    EXPECT_EQ(refused.code, 1) << command;
    EXPECT_EQ(refused.out, "") << command;
    EXPECT_NE(refused.err.find(holder), std::string::npos) << refused.err;
  }
  for (const auto& tool : {&test, &beside}) {
    (*tool)->Signal(SIGINT);
    const Outcome outcome = (*tool)->Wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
  }
  const std::string table = test->Out();
  EXPECT_EQ(table.rfind(" |                                    CARD LEVEL ", 0), 0u) << table;
  EXPECT_EQ(table.find("CARD LEVEL", table.find("CARD LEVEL") + 1), std::string::npos) << table;
  EXPECT_EQ(table.find("--W"), std::string::npos) << table;
}

TEST_F(GcToolsTest, IdleTilesAndLinksAreShown) {
  EXPECT_EQ(Sh("gc-info -d 0 --tile-overview | grep -c ' xx::'"), "1\n");
  EXPECT_EQ(Sh("gc-info -d 2 --nlc-status | grep -c 'IPUID 2'"), "4\n");
  EXPECT_EQ(Sh("gc-info -d 2 --pci-status | head -1"), "pci id: 1\n");
}

TEST_F(GcToolsTest, TilesOfAnIpuWithAnErrorShowTheException) {
  Sh("vipu-admin inject agent ag0 --fault memory-parity --ipu 2");
  EXPECT_EQ(Sh("gc-info -d 1 --tile-overview | grep -c ' EEEE'"), "23\n");
  EXPECT_EQ(Sh("gc-info -d 0 --tile-overview | grep -c ' ::::'"), "22\n");
  Sh("gc-reset -d 1 -p");
  EXPECT_EQ(Sh("gc-info -d 1 --tile-overview | grep -c ' ::::'"), "22\n");
}

// --- Containers ---

TEST_F(GcToolsTest, ContainersGetTheFileOfThePartition) {
  const std::string file = pod_->home() + "/ipuof.conf.d/p4.conf";
  EXPECT_NE(Sh("gc-docker --echo -- -ti image")
                .find(" -v " + file + ":" + file + ":ro -e IPUOF_CONFIG_PATH=" + file +
                      " -e IPUOF_CONFIG_DIR -ti image\n"),
            std::string::npos);
  EXPECT_NE(Sh("env -u IPUOF_CONFIG_DIR IPUOF_VIPU_API_HOST=10.1.3.101 "
               "IPUOF_VIPU_API_PARTITION_ID=p1 gc-podman --echo -- image")
                .find(" -e IPUOF_VIPU_API_HOST -e IPUOF_VIPU_API_PARTITION_ID image\n"),
            std::string::npos);
  EXPECT_NE(Sh("env IPUOF_CONFIG_DIR=/nowhere IPUOF_VIPU_API_PARTITION_ID=p4 "
               "gc-podman --echo -- image")
                .find(" -e IPUOF_VIPU_API_HOST=127.0.0.1:" + std::to_string(pod_->port()) + " "),
            std::string::npos);
}

TEST_F(GcToolsTest, ContainerEnginesAreRunWithTheirExitStatus) {
  const std::string bin = pod_->directory() + "/engines";
  std::filesystem::create_directories(bin);
  std::ofstream(bin + "/docker") << "#!/bin/sh\nfor word; do echo \"$word\"; done\nexit 7\n";
  std::filesystem::permissions(bin + "/docker", std::filesystem::perms::all);
  const Outcome outcome =
      pod_->Shell("PATH=" + bin + ":$PATH gc-docker -- image sh -c 'two words'");
  EXPECT_EQ(outcome.code, 7) << outcome.err;
  EXPECT_EQ(outcome.out.rfind("run\n--network=host\n--ipc=host\n", 0), 0u) << outcome.out;
  EXPECT_NE(outcome.out.find("\nimage\nsh\n-c\ntwo words\n"), std::string::npos) << outcome.out;
}

// --- Common to all ---

TEST_F(GcToolsTest, HelpAndVersion) {
  std::vector<std::string> tools = kTestTools;
  tools.insert(tools.end(), {"gc-docker", "gc-info", "gc-inventory", "gc-podman", "gc-reset"});
  for (const std::string& tool : tools) {
    EXPECT_EQ(Sh(tool + " -h").rfind("Usage: " + tool + " [options]\nAllowed options:\n", 0), 0u);
    EXPECT_EQ(Sh(tool + " --help"), Sh(tool + " --he")) << tool;
    EXPECT_EQ(Sh(tool + " -v"), "Poplar version: 3.2.0\n");
  }
}

TEST_F(GcToolsTest, WithoutAPartitionEveryToolSaysSo) {
  for (const std::string& tool : kTestTools) {
    const Outcome outcome = pod_->Shell("IPUOF_CONFIG_DIR=/nonexistent " + tool + " -d 0");
    EXPECT_EQ(outcome.code, 1) << tool;
    EXPECT_EQ(outcome.out, "") << tool;
    EXPECT_EQ(outcome.err.rfind(tool + ": error: no active partition", 0), 0u) << outcome.err;
  }
}

TEST_F(GcToolsTest, WatchShowsAgainUntilCtrlC) {
  const auto watch = pod_->Start({"gc-monitor", "--watch", "0.1", "--csv"});
  const auto times = [&] {
    const std::string out = watch->Out();
    return std::count(out.begin(), out.end(), '\n');
  };
  ASSERT_TRUE(watch->WaitForOutput("\n")) << watch->Err();
  const auto first = times();
  EXPECT_TRUE(Within(std::chrono::seconds(60), [&] { return times() > 2 * first; }));
  watch->Signal(SIGINT);
  const Outcome outcome = watch->Wait();
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos) << "a pipe is not a screen to clear";
}

// It does not wait for the answer, so that it has nothing to report.
TEST(GcMonitorTest, WatchCanBeInterruptedWhileTheControllerHangs) {
  TestPod pod(0);
  const int port = FreePort();
  const base::UniqueFd controller = ListenOn(port);
  pod.environment()["IPUOF_VIPU_API_HOST"] = "127.0.0.1";
  pod.environment()["IPUOF_VIPU_API_PORT"] = std::to_string(port);
  const auto watch = pod.Start({"gc-monitor", "--watch"});
  pollfd asked{controller.get(), POLLIN, 0};
  ASSERT_EQ(poll(&asked, 1, 60000), 1) << watch->Err();
  watch->Signal(SIGINT);
  const Outcome outcome = watch->Wait();
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out + outcome.err, "");
}

// Its own POD: the agent is killed under the tools.
TEST(GcToolsFaultTest, ToolsEndWhenTheAgentDies) {
  TestPod pod(4);
  pod.CreatePartition("p4", 4);
  const auto power = pod.Start({"gc-powertest", "-d", "0"});
  const auto traffic = pod.Start({"gc-hosttraffictest", "-d", "1", "--iterations", "100000000"});
  ASSERT_TRUE(power->WaitForOutput("0002: ")) << power->Err();
  EXPECT_EQ(pod.Shell("for i in $(seq 200); do gc-monitor --no-card-info | grep -q "
                      "gc-hosttraffictest && exit 0; sleep 0.05; done; exit 1")
                .code,
            0);
  kill(pod.AgentPid(), SIGKILL);
  for (const auto& [tool, name] :
       {std::pair{&power, "gc-powertest"}, {&traffic, "gc-hosttraffictest"}}) {
    const Outcome outcome = (*tool)->Wait();
    EXPECT_EQ(outcome.code, 1) << outcome.out;
    EXPECT_NE(outcome.err.find(std::string(name) + ": error: "), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace vpod::testing
