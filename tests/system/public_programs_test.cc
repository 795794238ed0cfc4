// Usage by public programs and documents, as they have it: PaddlePaddle's launcher, lablup's
// backend.ai, power samplers, simple-server-framework, examples-utils, PopTorch's V-IPU wrapper,
// ALCF's job logs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line + ",");
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

// A partition of four IPUs, which tools take as active.
class PublicProgramsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(16);
    pod_->CreatePartition("p4", 4);
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

  // Writes a file of the test, and returns its path.
  static std::string File(const std::string& name, const std::string& text) {
    const std::string path = pod_->directory() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  static TestPod* pod_;
};
TestPod* PublicProgramsTest::pod_ = nullptr;

// --- poprun: PaddlePaddle launch/controllers/ipu_controller.py, argonne-lcf/user-guides ---

constexpr char kPaddle[] =
    "poprun --num-instances=2 --num-replicas=2 --vipu-partition=p4 --print-topology=yes "
    "--mpi-local-args='-x PADDLE_TRAINERS_NUM=2' "
    "--instance-mpi-local-args=0:\"-x PADDLE_TRAINER_ID=0 -x PADDLE_RANK_IN_NODE=0\" "
    "--instance-mpi-local-args=1:\"-x PADDLE_TRAINER_ID=1 -x PADDLE_RANK_IN_NODE=1\" "
    "sh -c 'echo trainer $PADDLE_TRAINER_ID of $PADDLE_TRAINERS_NUM, rank $OMPI_COMM_WORLD_RANK'";

TEST_F(PublicProgramsTest, AnInstanceHasWordsOfItsOwn) {
  const std::string out = Sh(kPaddle);
  for (const char* line : {"[1,0]<stdout>:trainer 0 of 2, rank 0",
                           "[1,1]<stdout>:trainer 1 of 2, "
                           "rank 1"})
    EXPECT_TRUE(Contains(out, line)) << out;
}

TEST_F(PublicProgramsTest, WordsOfAnInstanceMayBeQuoted) {
  const Outcome outcome =
      pod_->Run({"poprun", "--offline-mode=on", "--num-instances", "1",
                 "--instance-mpi-local-args=0:\"-x A=1 -x B=2\"", "sh", "-c", "echo $A$B"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Contains(outcome.out, "<stdout>:12\n")) << outcome.out;
}

TEST_F(PublicProgramsTest, WordsOfAnInstanceThatDoesNotExistAreRefused) {
  for (const std::string& bad : std::vector<std::string>{"2:-x A=1", "-x A=1", ":-x A=1", "1"}) {
    const Outcome outcome = pod_->Run({"poprun", "--num-instances", "2", "--num-replicas", "2",
                                       "--instance-mpi-local-args", bad, "true"});
    EXPECT_EQ(outcome.code, 2) << bad;
    EXPECT_TRUE(Contains(outcome.err, "the argument ('" + bad +
                                          "') for option '--instance-mpi-local-args' is invalid"))
        << outcome.err;
  }
}

TEST_F(PublicProgramsTest, TheLogOfOneInstanceIsThePublishedOne) {
  const std::string log =
      Sh("poprun -vv --vipu-partition=p4 --num-instances=1 --num-replicas=4 "
         "--executable-cache-path=$HOME/cache true 2>&1");
  size_t last = 0;
  for (const char* part :
       {"[D] The reconfigurable partition p4 is OK", "poprun topology", "| replicas  | 0 | 1 | 2 ",
        "[D] Target options from environment: {}",
        R"([D] Target options from V-IPU partition: {"ipuLinkDomainSize":"4",)",
        "[D] Found 1 devices with 4 IPUs", "[D] Attached to device 6",
        "[I] Preparing parent device 6",
        "[D] Device 6 ipuLinkDomainSize=64, ipuLinkConfiguration=Default, ipuLinkTopology=Mesh, "
        "gatewayMode=true, instanceSize=4",
        R"([D] Target options from Poplar device: {"ipuLinkDomainSize":"64",)",
        R"([D] Using target options: {"ipuLinkDomainSize":"4",)"}) {
    const size_t at = log.find(part);
    ASSERT_NE(at, std::string::npos) << part << "\n" << log;
    EXPECT_GT(at, last) << part << " comes too early\n" << log;
    last = at;
  }
}

// A job that uses a part of its partition.
TEST_F(PublicProgramsTest, TheInstanceSizeOfThePartitionIsItsSizeByInstances) {
  const std::string log =
      Sh("poprun -vv --vipu-partition=p4 --num-instances=2 --num-replicas=2 bash -c "
         "'echo \"options=$POPLAR_TARGET_OPTIONS\"' 2>&1");
  for (const char* part :
       {R"("gatewayMode":"true","instanceSize":"2"}
)",
        "gatewayMode=true, instanceSize=1\n", "| hosts     |  [0]  |", "\n[0]: localhost\n",
        R"(options={"ipuLinkDomainSize":"4","ipuLinkConfiguration":"default",)"
        R"("ipuLinkTopology":"mesh","gatewayMode":"true","instanceSize":"2"})"})
    EXPECT_TRUE(Contains(log, part)) << part << "\n" << log;
}

// As on a partition of 64 IPUs with a sliding window, whose topology is a mesh.
TEST_F(PublicProgramsTest, ADeviceOfAMeshHasTheDefaultLinkConfiguration) {
  const std::string log = Sh(
      "vipu create partition sw8 --size 8 --routing swnc --reconfigurable --index 1 && poprun -vv "
      "--vipu-partition=sw8 --num-replicas=1 true 2>&1; vipu remove partition sw8");
  for (const char* part :
       {R"([D] Target options from V-IPU partition: {"ipuLinkDomainSize":"8",)"
        R"("ipuLinkConfiguration":"slidingWindow","ipuLinkTopology":"mesh","gatewayMode":"true",)"
        R"("instanceSize":"8"})",
        "[D] Device 0 ipuLinkDomainSize=64, ipuLinkConfiguration=Default, ipuLinkTopology=Mesh, "
        "gatewayMode=true, instanceSize=1\n"})
    EXPECT_TRUE(Contains(log, part)) << part << "\n" << log;
}

TEST_F(PublicProgramsTest, HelpShowsNoArgumentWhereNoneIsTaken) {
  const std::string help = Sh("poprun --help");
  for (const char* flag : {"--help", "--version", "--vv", "-v [ --verbose ]"}) {
    EXPECT_TRUE(Contains(help, std::string("  ") + flag + " ")) << flag;
    EXPECT_FALSE(Contains(help, std::string(flag) + " arg")) << flag;
  }
  EXPECT_TRUE(Contains(help, "--offline-mode ")) << help;
}

TEST_F(PublicProgramsTest, AMissingTmpdirIsNamed) {
  for (const std::string& tmpdir : {pod_->directory() + "/none", File("a-file", "")}) {
    const Outcome outcome = pod_->Shell("TMPDIR=" + tmpdir + " poprun --vipu-partition p4 true");
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(Contains(outcome.err, "poprun: error: TMPDIR is " + tmpdir)) << outcome.err;
    EXPECT_FALSE(Contains(outcome.err, "mpirun")) << outcome.err;
  }
}

TEST_F(PublicProgramsTest, SamplersReadTheColumnsOfGcMonitor) {
  const auto job = pod_->Start(
      {"env", "GCDA_MONITOR=1", "gc-hosttraffictest", "-d0", "--iterations", "100000000"});
  ASSERT_EQ(Sh("for i in $(seq 600); do gc-monitor --no-card-info | grep -q gc-hosttraffic && "
               "exit 0; sleep 0.05; done; exit 1"),
            "");
  const std::vector<std::string> rows = Lines(Sh("gc-monitor -c -s --no-headers"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(Lines(Sh("gc-monitor -s --csv-output --no-headers")).size(), 4u);
  const std::vector<std::string> cells = Cells(rows[0]);
  ASSERT_EQ(cells.size(), 26u) << rows[0];
  EXPECT_EQ(cells[6], "0");
  const std::vector<std::pair<size_t, const char*>> kinds = {{15, "[0-9]+MHz"}, {16, "[0-9.]+ C"},
                                                             {17, "[0-9.]+ C"}, {18, "[0-9.]+ W"},
                                                             {23, "[0-9.]+%"},  {25, "[0-9.]+ W"}};
  for (const auto& [column, form] : kinds)
    EXPECT_TRUE(std::regex_match(cells[column], std::regex(form))) << column << " " << rows[0];
  EXPECT_GT(std::stod(cells[18]), std::stod(cells[25])) << "a board has two IPUs";
  // The heading names them, and a caller of --csv takes the last one for the power.
  const std::vector<std::string> whole = Lines(Sh("gc-monitor --csv"));
  ASSERT_EQ(whole.size(), 5u);
  const std::vector<std::string> names = Cells(whole[0]);
  ASSERT_EQ(names.size(), 26u);
  EXPECT_EQ(names[0] + "," + names[1] + "," + names[6], "IPU-M,Serial,ID");
  EXPECT_EQ(Sh("gc-monitor --csv | awk -F, 'NR==2 {print ($NF + 0 > 10)}'"), "1\n");
  EXPECT_EQ(Cells(rows[1])[25], "N/A") << "nobody samples it";
  job->Signal(SIGTERM);
  job->Wait();
}

TEST_F(PublicProgramsTest, OneSdkVersionEverywhere) {
  for (const char* command : {"gc-info --version", "gc-monitor --version", "gc-monitor version",
                              "gc-inventory -v", "gc-reset --version"})
    EXPECT_EQ(Sh(command), "Poplar version: 3.2.0\n") << command;
  EXPECT_EQ(Sh("poprun --version"),
            "POPRUN version 3.2.0 (virtual IPU-POD)\nPOPDIST version 3.2.0 (virtual IPU-POD)\n");
}

TEST_F(PublicProgramsTest, GcResetInitialisesMemoryOfAllIpus) {
  Sh("vipu-admin inject agent ag0 --fault memory-parity --ipu 2");
  EXPECT_EQ(Sh("gc-reset -m"), "");
  EXPECT_EQ(Sh("gc-info -i -d 1 | grep 'ipu error state'"), "  ipu error state: no errors\n");
  EXPECT_EQ(pod_->Run({"gc-reset"}).code, 2) << "it still takes no guess";
  Sh("vipu-admin inject agent ag0 --clear");
}

TEST_F(PublicProgramsTest, GcDockerTakesRunWithoutDashes) {
  const std::string tail = " -it --rm -v /a:/etc/ipuof.conf.d/ new_image\n";
  for (const char* words : {"run -it --rm -v /a:/etc/ipuof.conf.d/ new_image",
                            "-- -it --rm -v /a:/etc/ipuof.conf.d/ new_image",
                            "-- run -it --rm -v /a:/etc/ipuof.conf.d/ new_image"}) {
    const std::string line = Sh(std::string("gc-docker --echo ") + words);
    EXPECT_EQ(line.rfind("docker run --network=host ", 0), 0u) << line;
    ASSERT_GT(line.size(), tail.size());
    EXPECT_EQ(line.substr(line.size() - tail.size()), tail) << line;
  }
}

TEST_F(PublicProgramsTest, PopTorchDrivesVipuCli) {
  const std::string cli = "vipu-cli -a --showjson ";
  EXPECT_NE(Sh(cli + "--version"), "");
  Sh(cli + "create partition pt2 --size 2 --num-gcds 1 --gcd-sync-replicas 2");
  const Json partitions = Json::parse(Sh(cli + "list partition"));
  const auto made = std::find_if(partitions.begin(), partitions.end(),
                                 [](const Json& one) { return one["partition"]["id"] == "pt2"; });
  ASSERT_NE(made, partitions.end()) << partitions;
  const Json spec = (*made)["partition"]["spec"];
  EXPECT_EQ(spec["ipus"].size(), 2u);
  EXPECT_EQ(spec["num_gcds"], 1);
  EXPECT_EQ(spec["num_replicas"], 2);
  const Json clusters = Json::parse(Sh(cli + "list cluster"));
  EXPECT_EQ(clusters[0]["spec"]["ipu_link_domains"][0]["ipus"].size(), 16u);
  Sh(cli + "reset partition pt2");
  Sh(cli + "delete partition pt2");
  EXPECT_EQ(pod_->Shell("vipu-cli list agents").code, 2) << "without -a it is vipu";
}

TEST_F(PublicProgramsTest, HelpLeavesOutWhatIsNotModelled) {
  const std::string help = Sh("gc-info --help");
  for (const char* option : {"--xb-status", "--gsp-status", "--tile-status", "--dump-mem"}) {
    EXPECT_FALSE(Contains(help, option)) << help;
    // It is still understood.
    const Outcome outcome = pod_->Shell(std::string("gc-info -d 0 ") + option +
                                        (std::string(option) == "--tile-status" ? " 0"
                                         : std::string(option) == "--dump-mem"  ? " 0 0 4"
                                                                                : ""));
    EXPECT_EQ(outcome.err, "gc-info: error: not modelled\n");
  }
  EXPECT_FALSE(Contains(Sh("gc-docker --help"), "--device-id"));
}

TEST_F(PublicProgramsTest, LogLevelsPrintInPoplarsForm) {
  const auto lines = [](const std::string& variables) {
    return Sh(variables + " replica_job --runs 1 2>&1 >/dev/null");
  };
  const auto expect = [&](const std::string& variables, const std::string& prefix, char level) {
    const std::string form = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z " +
                             prefix + " +[0-9]+\\.[0-9]+ " + level + ": ";
    const std::string text = lines(variables);
    EXPECT_TRUE(std::regex_search(text, std::regex(form))) << variables << "\n" << text;
  };
  expect("POPLAR_LOG_LEVEL=INFO", "PO:ENGINE", 'I');
  expect("POPLAR_LOG_LEVEL=OFF POPLAR_ENGINE_LOG_LEVEL=INFO", "PO:ENGINE", 'I');
  expect("POPLAR_LOG_LEVEL=DEBUG", "PO:[A-Z]+", 'D');
  expect("IPUOF_LOG_LEVEL=INFO", "IPUOF", 'I');
  expect("IPUOF_LOG_LEVEL=DEBUG", "IPUOF", 'D');
  expect("IPUOF_LOG_LEVEL=TRACE", "IPUOF", 'T');
  EXPECT_EQ(lines("POPLAR_LOG_LEVEL=WARN GCL_LOG_LEVEL=WARN IPUOF_LOG_LEVEL=WARN"), "");
  const std::string file = pod_->directory() + "/poplar.log";
  EXPECT_EQ(lines("POPLAR_LOG_LEVEL=INFO POPLAR_LOG_DEST=" + file), "");
  EXPECT_GT(fs::file_size(file), 0u);
  EXPECT_TRUE(Contains(pod_->Shell("IPUOF_LOG_LEVEL=DEBUG gc-info -l").err, "IPUOF"));
  const Outcome wrong = pod_->Shell("POPLAR_LOG_LEVEL=LOUD replica_job --runs 1");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(Contains(wrong.err,
                       "Unknown POPLAR_LOG_LEVEL 'LOUD'. Valid values are TRACE, DEBUG, "
                       "INFO, WARN, ERR and OFF."))
      << wrong.err;
}

TEST_F(PublicProgramsTest, CollectivesAreLoggedByGcl) {
  const Outcome outcome = pod_->Shell(
      "GCL_LOG_LEVEL=DEBUG poprun --num-instances 2 --num-replicas 2 --mpi-local-args='-x "
      "GCL_LOG_LEVEL' replica_job --runs 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(std::regex_search(outcome.err, std::regex("Z GCL +[0-9]+\\.[0-9]+ D: ")))
      << outcome.err;
}

TEST_F(PublicProgramsTest, TheExporterHasThePublishedNames) {
  const std::string metrics =
      Sh("python3 -c 'import sys, urllib.request; "
         "print(urllib.request.urlopen(sys.argv[1]).read().decode())' "
         "$(vipu-admin get agent ag0 | sed -n 's/.*Exporter *| *//p')");
  for (const char* name :
       {"chassis_fan", "chassis_power", "chassis_temperature", "exporter_ticks",
        "gcipuinfo_clock_frequency", "ipu_attached", "ipu_link_err_cnt", "ipu_tile_clk_speed",
        "ipum_hardware_info", "ipu_power_watts", "machine_power_watts"}) {
    EXPECT_TRUE(Contains(metrics, std::string("\n# TYPE ") + name + " ")) << name;
    EXPECT_TRUE(std::regex_search(metrics, std::regex(std::string("\n") + name + "(\\{| )")))
        << name;
  }
}

// It names one type for a device, whichever tool shows it.
TEST_F(PublicProgramsTest, ADeviceHasOneTypeInAllTools) {
  EXPECT_EQ(Sh("gc-info -l | grep -F 'Id: [6], target'"), "-+- Id: [6], target: [Multi IPU]\n");
  EXPECT_EQ(Sh("gc-info -i -d 6 | grep target"), "  target: Multi IPU\n");
  EXPECT_EQ(Sh("gc-info -i -d 0 | grep target"), "  target: Fabric\n");
  EXPECT_EQ(Sh("gc-inventory | grep -A1 '^  id: 6$' | tail -n 1"), "  target: Multi IPU\n");
}

TEST(LinkFaultTest, ALinkThatCorruptsIsNotDown) {
  TestPod pod(4);
  pod.CreatePartition("p4", 4);
  const Outcome injected =
      pod.Shell("vipu-admin inject agent ag0 --fault link-corrupts --link IPU2.NLC_W_1B");
  ASSERT_EQ(injected.code, 0) << injected.err;
  Outcome shown;
  EXPECT_TRUE(Within(std::chrono::seconds(30), [&] {
    shown = pod.Shell("vipu get partition p4 --showjson; vipu get partition p4");
    return Contains(shown.out, "link IPU2.NLC_W_1B corrupts data");
  })) << shown.out;
  const Outcome links = pod.Run({"gc-links"});
  EXPECT_TRUE(Contains(links.out, "failed (corrupting, 8 of 8 lanes)")) << links.out << links.err;
}

TEST_F(PublicProgramsTest, DumbTerminalsGetNoEscapeCodes) {
  const std::string watch = "timeout 2 script -qec 'gc-monitor --watch=0.2' /dev/null </dev/null";
  EXPECT_FALSE(Contains(pod_->Shell("TERM=dumb " + watch).out, "\033"));
  EXPECT_TRUE(Contains(pod_->Shell("TERM=xterm " + watch).out, "\033"));
}

// Graphcore's table of tests has the command alone.
TEST(GwLinksTest, AreTestedByOneCommand) {
  TestPod pod(8);
  pod.Shell(
      "vipu-admin remove cluster c8; vipu-admin create cluster cl1x2 --agents "
      "$(vipu-admin list agents | awk -F'|' '/ag/ {gsub(/ /,\"\",$1); printf s $1; s=\",\"}') "
      "--num-ipulinkdomains 2 --cluster-topology looped");
  const Outcome made = pod.Run({"vipu-admin", "create", "partition", "pa1x2", "--size", "8",
                                "--num-gcds", "2", "--gw-routing", "ring"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome outcome = pod.Run({"gc-gwlinkstraffictest", "-i", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> lines = Lines(outcome.out);
  EXPECT_EQ(lines.size(), 5u) << "two ports of each machine, and the result";
  EXPECT_FALSE(Contains(outcome.out, "failed")) << outcome.out;
}

TEST(EnableTest, SetsWhatPublicScriptsForward) {
  TestPod pod(0);
  const std::string top = pod.directory() + "/top";
  fs::create_directories(top + "/deploy");
  fs::create_directories(top + "/dist/bin");
  fs::copy_file("deploy/enable.sh", top + "/deploy/enable.sh");
  fs::create_symlink("/bin/true", top + "/dist/bin/vpod");
  fs::create_symlink("../deploy/enable.sh", top + "/dist/enable");  // as deploy/build does
  const Outcome outcome = pod.Shell(
      "unset OPAL_PREFIX CPATH LIBRARY_PATH POPLAR_SDK_ENABLED; source " + top +
      "/dist/enable; for v in POPLAR_SDK_ENABLED OPAL_PREFIX CPATH LIBRARY_PATH "
      "LD_LIBRARY_PATH; do echo \"$v ${!v-unset}\"; done; ls $POPLAR_SDK_ENABLED; "
      "mpirun --oversubscribe -np 1 -x OPAL_PREFIX -x CPATH -x LD_LIBRARY_PATH -x PYTHONPATH -x "
      "POPLAR_SDK_ENABLED -x PATH echo started");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(Contains(outcome.out, "POPLAR_SDK_ENABLED " + top + "/dist\n")) << outcome.out;
  EXPECT_FALSE(Contains(outcome.out, " unset\n")) << outcome.out;
  EXPECT_TRUE(Contains(outcome.out, "\nbin\n")) << outcome.out;
  EXPECT_TRUE(Contains(outcome.out, "started\n")) << "mpirun has lost its own files";
  EXPECT_FALSE(Contains(outcome.err, "could not find environment variable")) << outcome.err;
}

}  // namespace
}  // namespace vpod::testing
