// Public scripts around the real tools, run as they are: the rules of the script-compatibility
// contract, and the callers of gc-monitor, gc-info and gc-reset.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/vipu/client.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

// Two partitions: p4, which tools take as active, and g2 with two GCDs, in a directory of its own.
class ScriptsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(16);
    pod_->CreatePartition("p4", 4);
    ASSERT_EQ(pod_->Shell("IPUOF_CONFIG_DIR=$HOME/other vipu create partition g2 --size 2 "
                          "--num-gcds 2")
                  .code,
              0);
    // Its machine never comes.
    ASSERT_EQ(pod_->Shell("vipu-admin create agent ghost --host 192.0.2.1 && "
                          "vipu-admin create cluster cghost --agents ghost && "
                          "vipu create partition pend --size 1 --cluster cghost --no-wait")
                  .code,
              0);
    pod_->environment()["H"] = "127.0.0.1";
    pod_->environment()["PORT"] = std::to_string(pod_->port());
  }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }

  // Output of a script that must succeed.
  static std::string Sh(const std::string& script) {
    const Outcome outcome = pod_->Shell(script);
    EXPECT_EQ(outcome.code, 0) << script << "\n" << outcome.err;
    return outcome.out;
  }

  static std::vector<std::string> Lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  static TestPod* pod_;
};
TestPod* ScriptsTest::pod_ = nullptr;

// --- Rules 1 to 12 ---

TEST_F(ScriptsTest, Rule1ServerVersionTellsTheHost) {
  const std::string address = "127.0.0.1:" + std::to_string(pod_->port());
  EXPECT_EQ(Sh("vipu --server-version"), "version: 1.18.0\nhost: " + address + "\n");
  EXPECT_EQ(Sh("vipu-admin --server-version"), "version: 1.18.0\nhost: " + address + "\n");
  EXPECT_EQ(Sh("vipu --server-version | sed -n 's/.*host: \\(.*\\):.*/\\1/p'"), "127.0.0.1\n");
  EXPECT_EQ(Sh("vipu-admin --server-version | grep -oP 'host: \\K.*(?=:)'"), "127.0.0.1\n");
  EXPECT_EQ(Sh("vipu --server-version | sed -n '2 p' | awk '{print $2}' | cut -d ':' -f 1"),
            "127.0.0.1\n");
}

TEST_F(ScriptsTest, Rule2ListsBeginWithHeadingAndRule) {
  for (const char* tool : {"vipu", "vipu-admin"}) {
    const auto lines = Lines(Sh(std::string(tool) + " list partitions"));
    ASSERT_EQ(lines.size(), 6u);
    EXPECT_NE(lines[0].find(" Partition "), std::string::npos);
    EXPECT_EQ(lines[1].find_first_not_of('-'), std::string::npos);
    EXPECT_EQ(lines[5], lines[1]);
    for (size_t row : {0, 2, 3, 4}) {
      EXPECT_EQ(lines[row][0], ' ') << lines[row];
      for (size_t bar = lines[row].find('|'); bar != std::string::npos;
           bar = lines[row].find('|', bar + 1)) {
        EXPECT_EQ(lines[row].substr(bar - 1, 3), " | ") << lines[row];
      }
    }
  }
  // Only usable rows have the word ACTIVE.
  EXPECT_EQ(Sh("vipu list partitions | grep ACTIVE | awk '{print $1}'"), "g2\np4\n");
  EXPECT_EQ(Sh("vipu list partitions | grep -v ACTIVE | grep -c pend"), "1\n");
}

TEST_F(ScriptsTest, Rule3IdOfTheFirstActivePartition) {
  EXPECT_EQ(Sh("vipu-admin list partitions --api-host $H:$PORT | grep ACTIVE | cut -d '|' -f 3 | "
               "cut -d ' ' -f 2 | head -1"),
            "g2\n");
  EXPECT_EQ(Sh("vipu-admin list partitions --api-host $H --api-port $PORT | grep ACTIVE | "
               "cut -d '|' -f 3 | cut -d ' ' -f 2 | tail -1"),
            "p4\n");
}

TEST_F(ScriptsTest, Rule4IdByTheFifthWord) {
  EXPECT_EQ(Sh("vipu-admin list partitions | awk '{print $5}' | sed -n '3 p'"), "g2\n");
}

TEST_F(ScriptsTest, Rule5ListsOf2021OnRequest) {
  EXPECT_EQ(Sh("VIPU_CLI_LIST_COMPAT=2021 vipu-admin list partitions | grep ACTIVE | "
               "cut -d '|' -f 2 | cut -d ' ' -f 2 | head -1"),
            "g2\n");
  EXPECT_EQ(Sh("vipu-admin list partitions | grep ACTIVE | cut -d '|' -f 2 | cut -d ' ' -f 2 | "
               "head -1"),
            Sh("id -un"));
}

TEST_F(ScriptsTest, Rule6NounsAndHostsAnywhere) {
  const std::string list = Sh("vipu-admin list partitions");
  for (const char* command :
       {"vipu-admin list partition", "vipu-admin -H $H --api-port $PORT list partitions",
        "vipu-admin list partitions -H $H --api-port $PORT",
        "vipu-admin --api-host=$H --api-port=$PORT list partition",
        "vipu-admin --api-host $H:$PORT list partitions",
        "vipu-admin list partitions --api-host $H --api-port $PORT",
        "vipu-admin list --api-host $H --api-port $PORT partitions"}) {
    EXPECT_EQ(Sh(command), list) << command;
  }
  EXPECT_EQ(Sh("vipu list allocation"), Sh("vipu list allocations"));
  // All but the last column, which tells the age.
  EXPECT_EQ(Sh("vipu-admin list agent | cut -d '|' -f 1-7"),
            Sh("vipu-admin list agents | cut -d '|' -f 1-7"));
  EXPECT_EQ(Sh("vipu-admin discover agent | cut -d '|' -f 1-3"),
            Sh("vipu-admin discover agents | cut -d '|' -f 1-3"));
  EXPECT_EQ(Sh("vipu get partition p4 -H $H --api-port $PORT"), Sh("vipu get partition p4"));
}

TEST_F(ScriptsTest, Rule7ConfigurationsAreJson) {
  for (const char* command : {"vipu-admin get partition p4 --gcd 0 --ipuof-configs",
                              "vipu get partition p4 -H $H --api-port $PORT --gcd 0 --ipu-configs",
                              "vipu-admin get partition p4 --ipuof-configs | tail -n +2",
                              "vipu-admin get partition g2 --gcd 1 --ipuof-config"}) {
    const std::string text = Sh(std::string(command) + " > $HOME/rule7; cat $HOME/rule7");
    const auto json = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(json.is_object()) << command << "\n" << text;
    EXPECT_FALSE(json["devices"].empty()) << command;
    for (const auto& [key, value] : json["attributes"].items()) EXPECT_TRUE(value.is_string());
  }
  // Without a GCD each begins with a line of its own.
  EXPECT_EQ(Sh("vipu get partition g2 --ipuof-configs | grep -v '^[ {}]'"),
            "IPUoF configuration for GCD 0:\nIPUoF configuration for GCD 1:\n");
  // Such a file names the partition to tools.
  EXPECT_EQ(Sh("vipu get partition g2 --gcd 1 --ipuof-configs > $HOME/g2.conf; "
               "IPUOF_CONFIG_PATH=$HOME/g2.conf gc-info --ipu-count"),
            "1\n");
}

TEST_F(ScriptsTest, Rule8ConfigurationFileCanBeGrepped) {
  const std::string file = "$VPOD_HOME/vipu-cli.hcl";
  EXPECT_EQ(Sh("grep 'api-host=' " + file + " | sed -e 's/api-host=//' -e 's/\"//g'"),
            "127.0.0.1\n");
  EXPECT_EQ(Sh("cat " + file + " | grep api-host | cut -d '=' -f 2 | tr -d '\"'"), "127.0.0.1\n");
  EXPECT_EQ(Sh("grep -oP 'api-port=\"\\K[0-9]+' " + file), std::to_string(pod_->port()) + "\n");
  EXPECT_EQ(Sh("grep -c ' ' " + file + " || true"), "0\n");
  // And the tools read it.
  EXPECT_EQ(Sh("env -u VIPU_CLI_API_HOST -u VIPU_CLI_API_PORT vipu --config " + file +
               " list partitions"),
            Sh("vipu list partitions"));
}

TEST_F(ScriptsTest, Rule9CreateLeavesTheConfiguration) {
  EXPECT_EQ(Sh("unset IPUOF_CONFIG_DIR VPOD_HOME; vipu create partition r9 --size 4; "
               "ls ~/.ipuof.conf.d; vipu remove partition r9; ls ~/.ipuof.conf.d"),
            "create partition (r9): success.\nr9.conf\nremove partition (r9): success.\n");
  EXPECT_EQ(
      Sh("unset IPUOF_CONFIG_DIR VPOD_HOME; vipu-admin create partition r9 --size 8 --num-gcds 2; "
         "ls ~/.ipuof.conf.d; stat -c %a ~/.ipuof.conf.d/r9_gcd0.conf; "
         "vipu-admin remove partition r9; ls ~/.ipuof.conf.d"),
      "create partition (r9): success.\nr9_gcd0.conf\nr9_gcd1.conf\n600\n"
      "remove partition (r9): success.\n");
}

TEST_F(ScriptsTest, Rule10GrpcKnowsPartitionsByIdAndStatesByName) {
  vipu::ClientConfig config;
  config.host = "127.0.0.1";
  config.port = static_cast<uint32_t>(pod_->port());
  vipu::Client client(config);
  const auto active = client.GetPartitionStatus("p4");
  ASSERT_TRUE(active.ok()) << active.status();
  EXPECT_EQ(vipuuser::PartitionState_Name(active->state()), "PS_ACTIVE");
  const auto pending = client.GetPartitionStatus("pend");
  ASSERT_TRUE(pending.ok()) << pending.status();
  EXPECT_EQ(vipuuser::PartitionState_Name(pending->state()), "PS_PENDING");
  EXPECT_TRUE(absl::IsNotFound(client.GetPartitionStatus("nope").status()));
  // Port 8090 when none is given; nobody listens on that address.
  const Outcome outcome = pod_->Shell("vipu -H 127.255.13.7 list partitions");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("127.255.13.7:8090"), std::string::npos) << outcome.err;
}

TEST_F(ScriptsTest, Rule11GcInfoSaysWhetherThePartitionIsActive) {
  EXPECT_EQ(Sh("gc-info -l | grep 'Partition: p4 \\[active\\]'"), "Partition: p4 [active]\n");
  EXPECT_EQ(Sh("gc-info -l | grep -c 'is not ACTIVE' || true"), "0\n");
  EXPECT_EQ(Sh("IPUOF_VIPU_API_HOST=$H IPUOF_VIPU_API_PORT=$PORT "
               "IPUOF_VIPU_API_PARTITION_ID=pend gc-info -l 2>&1 | grep -c 'partition is not "
               "ACTIVE'"),
            "1\n");
  // By the file that create left: moved to where no machine comes.
  EXPECT_EQ(Sh("export IPUOF_CONFIG_DIR=$HOME/rule11; "
               "vipu create partition r11 --size 1 >/dev/null; "
               "vipu update partition r11 --cluster cghost --no-wait >/dev/null; "
               "gc-info -l 2>&1 | grep -o 'partition is not ACTIVE.*'; "
               "vipu remove partition r11"),
            "partition is not ACTIVE: r11 (state PS_PENDING)\nremove partition (r11): success.\n");
}

TEST_F(ScriptsTest, Rule12ClusterAndAllocationCanBeRead) {
  EXPECT_EQ(Sh("vipu-admin list allocation | sed -n '4 p' | awk '{print $1}'"), "c16\n");
  EXPECT_EQ(Sh("vipu-admin list allocation | grep ag0 | cut -d '|' -f 2 | tr -d ' '"), "c16\n");
  EXPECT_EQ(Sh("vipu list allocation | grep ag0 | cut -d '|' -f 1 | tr -d ' '"), "c16\n");
  EXPECT_EQ(Sh("vipu-admin list partition | grep p4 | cut -d '|' -f 1 | tr -d ' '"), "c16\n");
  EXPECT_EQ(Sh("vipu-admin list partition | grep p4 | cut -d '|' -f 4 | tr -d ' '"), "c16\n");
  EXPECT_EQ(Sh("vipu list partition | grep p4 | cut -d '|' -f 2 | tr -d ' '"), "c16\n");
  EXPECT_EQ(Sh("vipu-admin list partition --showjson | python3 -c 'import json, sys; "
               "print(sorted(p[\"partition\"][\"id\"] for p in json.load(sys.stdin)))'"),
            "['g2', 'p4', 'pend']\n");
  EXPECT_EQ(Sh("vipu-admin list cluster --showjson | python3 -c 'import json, sys; "
               "print(max(len(d[\"ipus\"]) for c in json.load(sys.stdin) "
               "for d in c[\"spec\"][\"ipu_link_domains\"]))'"),
            "16\n");
}

// --- Callers of gc-monitor, gc-info and gc-reset ---

TEST_F(ScriptsTest, IpusAreFourTimesTheCards) {
  const std::string count =
      " | python3 -c 'import json, sys; print(4 * len(json.load(sys.stdin)[\"cards\"]))'";
  EXPECT_EQ(Sh("gc-monitor -j" + count), "4\n");
  // Without devices, too, and with status 0.
  EXPECT_EQ(Sh("set -o pipefail; IPUOF_CONFIG_DIR=$HOME/none gc-monitor -j" + count), "0\n");
  EXPECT_EQ(Sh("set -o pipefail; IPUOF_VIPU_API_HOST=127.0.0.1 IPUOF_VIPU_API_PORT=1 "
               "gc-monitor --json 2>/dev/null" +
               count),
            "0\n");
}

TEST_F(ScriptsTest, MonitorJsonCanBeMergedIntoARecord) {
  const std::string merged =
      Sh("gc-monitor --json | python3 -c 'import json, sys; "
         "print(json.dumps({**{\"timestamp\": \"now\"}, **json.load(sys.stdin)}))'");
  const auto json = nlohmann::json::parse(merged, nullptr, false);
  ASSERT_TRUE(json.is_object()) << merged;
  EXPECT_EQ(json["timestamp"], "now");
  ASSERT_EQ(json["cards"].size(), 1u);
  for (const auto& [key, value] : json["cards"][0].items()) {
    EXPECT_TRUE(value.is_string() || key == "ipus") << key;
  }
  ASSERT_EQ(json["cards"][0]["ipus"].size(), 4u);
  for (const auto& ipu : json["cards"][0]["ipus"]) {
    for (const auto& [key, value] : ipu.items()) EXPECT_TRUE(value.is_string()) << key;
    EXPECT_FALSE(ipu.contains("PID"));
  }
  // Another caller's name of an IPU.
  EXPECT_EQ(Sh("gc-monitor -j | python3 -c 'import json, sys; print(len({c[\"IPU-M\"] + \":\" + "
               "i[\"PCIe ID\"] for c in json.load(sys.stdin)[\"cards\"] for i in c[\"ipus\"]}))'"),
            "4\n");
}

TEST_F(ScriptsTest, IdleIpusAreSaidToBe) {
  EXPECT_EQ(Sh("gc-monitor --no-card-info | grep -c 'No attached processes'"), "1\n");
  EXPECT_EQ(Sh("gc-monitor | grep -c 'No attached processes'"), "1\n");
  EXPECT_EQ(Sh("gc-monitor --no-card-info | awk -F'|' '/^\\| *[0-9]+ *\\|/ {print $2, $5}'"), "");
}

TEST_F(ScriptsTest, ProcessesAreFoundByTheirPid) {
  const auto job = pod_->Start({"replica_job", "--runs", "1000000", "--pause-ms", "20"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  const std::string pid = std::to_string(job->pid());
  EXPECT_EQ(Sh("gc-monitor --no-card-info | grep -c '^| *" + pid + " '"), "1\n");
  EXPECT_EQ(Sh("gc-monitor --no-card-info | grep " + pid + " | awk '{print $2, $4}'"),
            pid + " replica_job\n");
  // The interesting fields of rows that begin with a number: PID and user.
  EXPECT_EQ(Sh("gc-monitor --no-card-info | awk -F'|' '/^\\| *[0-9]+ *\\|/ {gsub(/ /, \"\", $2); "
               "gsub(/ /, \"\", $5); print $2, $5}'"),
            pid + " " + Sh("id -un"));
  EXPECT_EQ(Sh("gc-monitor | grep -c 'No attached processes' || true"), "0\n");
  // Sensors are hidden.
  EXPECT_EQ(Sh("gc-monitor --no-card-info | grep " + pid + " | grep -o 'N/A' | wc -l"), "3\n");
  EXPECT_EQ(Sh("gc-monitor --no-card-info | grep " + pid + " | grep -o '1330MHz'"), "1330MHz\n");
}

TEST_F(ScriptsTest, MonitoredProgramsShowTheirSensors) {
  const auto job = pod_->Start(
      {"env", "GCDA_MONITOR=1", "replica_job", "--runs", "1000000", "--pause-ms", "20"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  const std::string row = Sh("gc-monitor --no-card-info | grep replica_job");
  EXPECT_EQ(row.find("N/A"), std::string::npos) << row;
  EXPECT_EQ(
      Sh("gc-monitor --no-card-info | grep replica_job | grep -oE '[0-9]+\\.[0-9] (C|W) ?\\|' "
         "| wc -l"),
      "3\n")
      << row;
  EXPECT_EQ(Sh("gc-monitor -j | python3 -c 'import json, sys; print(sum(\"PID\" in i for c in "
               "json.load(sys.stdin)[\"cards\"] for i in c[\"ipus\"]))'"),
            "1\n");
}

TEST_F(ScriptsTest, StartUpScriptSeesTheActivePartition) {
  EXPECT_EQ(Sh("timeout 5 gc-info -l 2>&1 | grep 'Partition.* \\[active\\]'"),
            "Partition: p4 [active]\n");
  EXPECT_EQ(Sh("if timeout 5 gc-info -l 2>&1 | grep -q 'partition is not ACTIVE'; then echo bad; "
               "else echo good; fi"),
            "good\n");
  EXPECT_EQ(Sh("export IPUOF_VIPU_API_HOST=$H IPUOF_VIPU_API_PORT=$PORT "
               "IPUOF_VIPU_API_PARTITION_ID=pend; if timeout 5 gc-info -l 2>&1 | grep -q "
               "'partition is not ACTIVE'; then echo bad; else echo good; fi"),
            "bad\n");
}

TEST_F(ScriptsTest, BareValuesComeBare) {
  EXPECT_EQ(Sh("numIPUs=$(gc-info --ipu-count); echo $((numIPUs * 2))"), "8\n");
  EXPECT_EQ(Sh("gc-info -d 0 --ipu-arch"), "ipu2\n");
  EXPECT_EQ(Sh("gc-info --device-id 3 --tile-clock-speed"), "1330MHz\n");
  for (const char* spelling : {"-d0", "-d 0", "--device-id 0", "--device-id=0"}) {
    EXPECT_EQ(Sh(std::string("gc-info ") + spelling + " --ipu-arch"), "ipu2\n") << spelling;
  }
  EXPECT_EQ(Sh("gc-info -i -d 0 | grep 'remote buffers supported: 1' | wc -l"), "1\n");
  EXPECT_EQ(Sh("gc-monitor version | sed 's/Poplar version: //' | grep -cE '^[0-9.]+$'"), "1\n");
}

TEST_F(ScriptsTest, DevicesOfAllPartitionsAreListed) {
  EXPECT_EQ(Sh("gc-info -l | grep -c '^-+- Id'"), "7\n");
  EXPECT_EQ(Sh("gc-info -l --all-partitions | grep '^Partition'"),
            "Partition: p4 [active]\nPartition: g2 (gcd:0)\nPartition: g2 (gcd:1)\n");
  EXPECT_EQ(Sh("IPUOF_VIPU_API_HOST=$H IPUOF_VIPU_API_PORT=$PORT gc-monitor --no-card-info "
               "--all-partitions | grep -c 'No attached processes'"),
            "3\n");
  // One GCD at a time.
  EXPECT_EQ(Sh("export IPUOF_VIPU_API_HOST=$H IPUOF_VIPU_API_PORT=$PORT "
               "IPUOF_VIPU_API_PARTITION_ID=g2; for i in 0 1; do IPUOF_VIPU_API_GCD_ID=$i "
               "gc-monitor | grep -o 'g2 (gcd:.)'; done"),
            "g2 (gcd:0)\ng2 (gcd:1)\n");
}

TEST_F(ScriptsTest, ResetIsSilentOrNamesTheHolder) {
  const Outcome reset = pod_->Shell("gc-reset -d 0 -p && gc-reset -d 6 && gc-reset --device-id=4");
  EXPECT_EQ(reset.code, 0);
  EXPECT_EQ(reset.out + reset.err, "");
  const auto job = pod_->Start({"replica_job", "--runs", "1000000", "--pause-ms", "20"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  const Outcome refused = pod_->Shell("gc-reset -d 0 -p");
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err.rfind("gc-reset: error: device 0 is in use by process " +
                                  std::to_string(job->pid()) + " (replica_job) of ",
                              0),
            0u)
      << refused.err;
  for (const char* part : {", attached ", "; wait until it detaches; run 'gc-monitor' "})
    EXPECT_NE(refused.err.find(part), std::string::npos) << refused.err;
  EXPECT_EQ(Sh("gc-reset -d 1"), "") << "an idle device beside it";
}

TEST_F(ScriptsTest, MonitorsSkipPartitionsThatGoMeanwhile) {
  Sh("export IPUOF_CONFIG_DIR=$HOME/gone; "
     "while vipu create partition gone --size 1 && vipu remove partition gone; do :; done "
     ">/dev/null & for i in $(seq 60); do gc-monitor --all-partitions >/dev/null || exit 1; done; "
     "kill $!");
  pod_->Run({"vipu", "remove", "partition", "gone"});
}

}  // namespace
}  // namespace vpod::testing
