// Tests of requests that cannot be met: users see one clear line, the right exit code and nothing
// on stdout, and the POD does not notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "absl/strings/str_replace.h"
#include "device/base/file.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

constexpr char kHeld[] = "@held";  // IPUOF_CONFIG_PATH of the partition with an attached device

// "$D" in words and values stands for the test's directory, "$P" for the controller's port.
struct Case {
  const char* name;
  std::vector<std::string> words;
  int code;
  std::string text;  // part of the line on stderr
  std::map<std::string, std::string> environment = {};
  std::string out = "";  // all of stdout, or its beginning
};

void PrintTo(const Case& item, std::ostream* stream) { *stream << item.name; }

std::vector<std::string> Vipu(std::vector<std::string> words) {
  words.insert(words.begin(), "vipu");
  return words;
}

std::vector<std::string> Admin(std::vector<std::string> words) {
  words.insert(words.begin(), "vipu-admin");
  return words;
}

std::vector<std::string> Create(std::vector<std::string> words) {
  words.insert(words.begin(), {"vipu", "create", "partition", "p9"});
  return words;
}

std::vector<std::string> Poprun(std::vector<std::string> words) {
  words.insert(words.begin(), "poprun");
  words.emplace_back("replica_job");
  return words;
}

// A configuration file for gc-info and programs.
std::map<std::string, std::string> File(const std::string& name) {
  return {{"IPUOF_CONFIG_PATH", "$D/" + name}};
}

// The controller's word instead of a file.
std::map<std::string, std::string> Asking(const std::string& partition, const std::string& gcd) {
  return {{"IPUOF_VIPU_API_HOST", "127.0.0.1"},
          {"IPUOF_VIPU_API_PORT", "$P"},
          {"IPUOF_VIPU_API_PARTITION_ID", partition},
          {"IPUOF_VIPU_API_GCD_ID", gcd}};
}

// One POD for all cases: what one of them leaves behind would show in the next.
class WrongInputPod : public ::testing::Environment {
 public:
  void SetUp() override {
    pod_ = std::make_unique<TestPod>(16);
    pod_->CreatePartition("p8", 8);
    ASSERT_EQ(
        pod_->Run({"vipu", "create", "partition", "g4", "--size", "4", "--num-gcds", "2"}).code, 0);
    // A partition on machines that never come: it stays PENDING.
    ASSERT_EQ(pod_->Run({"vipu-admin", "create", "agent", "ghost", "--host", "192.0.2.1"}).code, 0);
    ASSERT_EQ(pod_->Run({"vipu-admin", "create", "cluster", "cghost", "--agents", "ghost"}).code,
              0);
    ASSERT_EQ(pod_->Run({"vipu", "create", "partition", "pend", "--size", "2", "--cluster",
                         "cghost", "--no-wait"})
                  .code,
              0);
    WriteFiles();
    holder_ = pod_->Start({"env", "IPUOF_CONFIG_PATH=" + Conf("p8"), "replica_job", "--runs",
                           "1000000", "--pause-ms", "50"});
    ASSERT_TRUE(holder_->WaitForOutput("run 0 loss")) << holder_->Err();
    server_pid_ = pod_->ServerPid();
    agent_pid_ = pod_->AgentPid();
  }

  // After everything: the same daemons, a round of management, and a job.
  void TearDown() override {
    EXPECT_NE(holder_->Out().find("loss"), std::string::npos);
    EXPECT_EQ(kill(holder_->pid(), 0), 0) << "the job that ran meanwhile has ended";
    holder_.reset();
    ExpectUnharmed();
    for (const char* id : {"pend", "p9", "g4", "p8"}) {
      EXPECT_EQ(pod_->Run({"vipu", "remove", "partition", id}).code, 0) << id;
    }
    EXPECT_EQ(pod_->Run({"vipu-admin", "remove", "cluster", "cghost"}).code, 0);
    EXPECT_EQ(pod_->Run({"vipu-admin", "remove", "agent", "ghost"}).code, 0);
    pod_->CreatePartition("p16", 16);
    const Outcome list = pod_->Shell("vipu list partitions | sed -n '3,$ p' | grep -c ACTIVE");
    EXPECT_EQ(list.out, "1\n");
    const Outcome job = pod_->Run(
        {"poprun", "--num-instances", "4", "--num-replicas", "16", "replica_job", "--runs", "2"});
    EXPECT_EQ(job.code, 0) << job.err;
    EXPECT_EQ(pod_->AttachedIpus(), 0);
    EXPECT_EQ(pod_->Run({"vipu", "remove", "partition", "p16"}).code, 0);
    pod_.reset();
  }

  std::string Conf(const std::string& name) {
    return pod_->home() + "/ipuof.conf.d/" + name + ".conf";
  }

  void WriteFiles() {
    const std::string good = base::ReadFile(Conf("p8"));
    const auto write = [&](const std::string& name, const std::string& text) {
      std::ofstream(pod_->directory() + "/" + name) << text;
    };
    write("malformed.conf", "{ \"devices\": [");
    write("truncated.conf", good.substr(0, good.size() / 2));
    write("empty.conf", "");
    write("binary.conf", std::string("\x00\xff\x7f\x80 ELF", 8));
    write("nodevices.conf", "{\"attributes\": {}}");
    write("emptydevices.conf", "{\"devices\": []}");
    write("noaddress.conf", "{\"devices\": [{\"ip\": 5}]}");
    // Devices say it as well.
    write("gcd9.conf", absl::StrReplaceAll(good, {{"\"GCD Id\": \"0\"", "\"GCD Id\": \"9\""},
                                                  {"\"gcd\": \"0\"", "\"gcd\": \"9\""}}));
    write("gone.conf",
          absl::StrReplaceAll(good, {{"\"Partition Id\": \"p8\"", "\"Partition Id\": \"gone\""},
                                     {"\"id\": \"p8\"", "\"id\": \"gone\""}}));
    write("dead.conf", "{\"devices\": [{\"ip\": \"127.0.0.1\", \"server_port\": 1}]}");
    write("bad.hcl", "api-host=\"127.0.0.1\"\nthis is no assignment\n");
    write("list.json", "[1, 2]");
  }

  std::string Filled(std::string text) {
    const std::pair<std::string, std::string> placeholders[] = {
        {"$D", pod_->directory()}, {"$P", std::to_string(pod_->port())}, {kHeld, Conf("p8")}};
    for (const auto& [name, value] : placeholders) {
      for (size_t at = text.find(name); at != std::string::npos;
           at = text.find(name, at + value.size())) {
        text.replace(at, name.size(), value);
      }
    }
    return text;
  }

  // Both daemons are the ones that were started.
  void ExpectUnharmed() {
    EXPECT_EQ(pod_->ServerPid(), server_pid_);
    EXPECT_EQ(pod_->AgentPid(), agent_pid_);
    EXPECT_EQ(kill(server_pid_, 0), 0) << "the controller has died";
    EXPECT_EQ(kill(agent_pid_, 0), 0) << "the agent has died";
  }
  const std::map<std::string, std::string>& environment() { return pod_->environment(); }

 private:
  std::unique_ptr<TestPod> pod_;
  std::unique_ptr<Command> holder_;
  int server_pid_ = 0, agent_pid_ = 0;
};

WrongInputPod* const pod = static_cast<WrongInputPod*>(
    ::testing::AddGlobalTestEnvironment(std::make_unique<WrongInputPod>().release()));

class WrongInputTest : public ::testing::TestWithParam<Case> {};

TEST_P(WrongInputTest, IsRefusedInOneLine) {
  std::vector<std::string> words = GetParam().words;
  for (std::string& word : words) word = pod->Filled(word);
  std::map<std::string, std::string> environment = pod->environment();
  for (const auto& [name, value] : GetParam().environment) environment[name] = pod->Filled(value);
  const Outcome outcome = Command(words, environment).Wait(std::chrono::seconds(30));
  EXPECT_EQ(outcome.code, GetParam().code) << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, GetParam().out.size()), GetParam().out);
  EXPECT_EQ(outcome.out.empty(), GetParam().out.empty()) << outcome.out;
  EXPECT_NE(outcome.err.find(pod->Filled(GetParam().text)), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(outcome.err.empty() || outcome.err.back() == '\n');
  pod->ExpectUnharmed();
}

const std::string kManyLetters(64, 'a');

INSTANTIATE_TEST_SUITE_P(
    Sizes, WrongInputTest,
    ::testing::Values(
        Case{"NoPowerOfTwo", Create({"--size", "24"}), 1,
             "create partition (p9): failed. 24 IPUs requested, sizes are powers of two (next: "
             "32)."},
        Case{"Zero", Create({"--size", "0"}), 2, "Flag --size takes 1 or more, not 0."},
        Case{"Negative", Create({"--size", "-4"}), 2, "Flag --size needs a number, not '-4'."},
        Case{"WithLetters", Create({"--size", "4x"}), 2, "Flag --size needs a number, not '4x'."},
        Case{"BeyondThirtyTwoBits", Create({"--size", "99999999999"}), 2,
             "Flag --size takes at most 4294967295, not 99999999999."},
        Case{"LargerThanThePod", Create({"--size", "64"}), 1, "Size 64 exceeds every allocation"},
        Case{"Enormous", Create({"--size", "2147483648"}), 1,
             "Size 2147483648 exceeds every allocation"},
        Case{"MoreThanFree", Create({"--size", "8", "--allocation", "c16"}), 1,
             "No 8 free IPUs in allocation c16 (4 free, largest free block 4)."},
        Case{"GcdsDoNotDivide", Create({"--size", "2", "--num-gcds", "3"}), 1,
             "Number of GCDs must divide the size."},
        Case{"ReplicasDoNotDivide",
             Create({"--size", "4", "--num-gcds", "2", "--total-num-replicas", "3"}), 1,
             "Number of replicas must be a multiple of the number of GCDs."},
        Case{"TwoNamesOfOneValue",
             Create({"--size", "4", "--gcd-sync-replicas", "2", "--total-num-replicas", "4"}), 2,
             "two names of one value"},
        Case{"PositionInUse", Create({"--size", "4", "--index", "0", "--cluster", "c16"}), 1,
             "Position 0 is in use."},
        Case{"PositionOutside",
             Create({"--size", "4", "--index", "4294967295", "--cluster", "c16"}), 1,
             "create partition (p9): failed."},
        Case{"WrongIlds", Create({"--size", "4", "--num-ilds", "2", "--cluster", "c16"}), 1,
             "4 IPUs of cluster c16 lie in 1 IPU-Link domains; 2 requested."}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Ids, WrongInputTest,
    ::testing::Values(
        Case{"PartitionExists", Vipu({"create", "partition", "p8", "--size", "4"}), 1,
             "create partition (p8): failed. Partition p8 already exists."},
        Case{"AgentExists", Admin({"create", "agent", "ag0", "--host", "h"}), 1,
             "create agent (ag0): failed. Agent ag0 already exists."},
        Case{"ClusterExists", Admin({"create", "cluster", "c16", "--agents", "ag0"}), 1,
             "create cluster (c16): failed."},
        Case{"AgentOfACluster", Admin({"create", "cluster", "c2", "--agents", "ag0,ag1"}), 1,
             "Agent ag0 is already in cluster c16."},
        Case{"WithBlank", Vipu({"create", "partition", "a b", "--size", "4"}), 2,
             "Invalid id 'a b'."},
        Case{"WithBar", Vipu({"create", "partition", "a|b", "--size", "4"}), 2,
             "Invalid id 'a|b'."},
        Case{"WithSlash", Vipu({"create", "partition", "../a", "--size", "4"}), 2,
             "Invalid id '../a'."},
        Case{"WithLineBreak", Vipu({"create", "partition", "a\nb", "--size", "4"}), 2,
             "Argument 'a\\nb' must be one line of UTF-8 text."},
        Case{"NoText", Vipu({"create", "partition", "\xff\xfe", "--size", "4"}), 2,
             "must be one line of UTF-8 text"},
        Case{"Empty", Vipu({"create", "partition", "", "--size", "4"}), 2, "Invalid id ''."},
        Case{"TooLong", Vipu({"create", "partition", kManyLetters, "--size", "4"}), 2,
             "Invalid id"},
        Case{"AgentWithBlank", Admin({"create", "agent", "a b", "--host", "h"}), 2,
             "Invalid id 'a b'."},
        Case{"GetUnknownPartition", Vipu({"get", "partition", "nope"}), 1,
             "get partition (nope): failed. Partition nope does not exist."},
        Case{"RemoveUnknownPartition", Vipu({"remove", "partition", "nope"}), 1,
             "remove partition (nope): failed. Partition nope does not exist."},
        Case{"DeleteIsRemove", Vipu({"delete", "partition", "nope"}), 1,
             "remove partition (nope): failed. Partition nope does not exist."},
        Case{"ResetUnknownPartition", Vipu({"reset", "partition", "nope"}), 1,
             "Partition nope does not exist."},
        Case{"UpdateUnknownPartition", Vipu({"update", "partition", "nope", "--size", "4"}), 1,
             "Partition nope does not exist."},
        Case{"GetUnknownAllocation", Vipu({"get", "allocation", "nope"}), 1,
             "Allocation nope does not exist."},
        Case{"GetUnknownAgent", Admin({"get", "agent", "nope"}), 1, "Agent nope does not exist."},
        Case{"GetUnknownCluster", Admin({"get", "cluster", "nope"}), 1,
             "Cluster nope does not exist."},
        Case{"ClusterOfUnknownAgent", Admin({"create", "cluster", "c2", "--agents", "nope"}), 1,
             "Agent nope does not exist."},
        Case{"PartitionInUnknownCluster", Create({"--size", "4", "--cluster", "nope"}), 1,
             "Cluster nope does not exist."},
        Case{"PartitionInUnknownAllocation", Create({"--size", "4", "--allocation", "nope"}), 1,
             "Allocation nope does not exist."},
        Case{"AllocationIsNoText", Create({"--size", "4", "--allocation", "\xff"}), 2,
             "must be one line"},
        Case{"RemoveClusterInUse", Admin({"remove", "cluster", "c16"}), 1,
             "Cluster c16 is in use by partition"},
        Case{"RemoveAgentInUse", Admin({"remove", "agent", "ag0"}), 1,
             "Agent ag0 is in use by cluster c16."}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Words, WrongInputTest,
    ::testing::Values(
        Case{"NoCommand", Vipu({}), 2, "No command given. Try 'vipu --help'."},
        Case{"UnknownVerb", Vipu({"frobnicate", "partition", "p9"}), 2,
             "Unknown verb 'frobnicate'."},
        Case{"UnknownNoun", Vipu({"create", "widget", "w"}), 2, "Unknown noun 'widget'."},
        Case{"NoNoun", Vipu({"create"}), 2, "'create' needs a noun, e.g. 'create partition'."},
        Case{"NoId", Vipu({"create", "partition"}), 2, "create partition needs an id."},
        Case{"TooManyWords", Create({"p10", "--size", "4"}), 2, "Unexpected argument 'p10'."},
        Case{"AdministratorsOnly", Vipu({"create", "agent", "a1", "--host", "h"}), 2,
             "Cannot create agent with vipu."},
        Case{"UnknownFlag", Create({"--siez", "4"}), 2, "Unknown flag: --siez."},
        Case{"FlagOfAnotherCommand", Vipu({"list", "partitions", "--size", "4"}), 2,
             "Unknown flag: --size."},
        Case{"NoSize", Create({}), 2,
             "create partition needs --size. Try 'vipu create partition --help'."},
        Case{"NoGcds", Create({"--size", "4", "--num-gcds", "0"}), 2,
             "Flag --num-gcds takes 1 or more, not 0."},
        Case{"MoreReplicasThanIpus", Create({"--size", "4", "--gcd-sync-replicas", "8"}), 1,
             "at most 4 replicas. 8 replicas of 4 IPUs requested."},
        Case{"HostIsNoName", Admin({"create", "agent", "a1", "--host", "ö"}), 1,
             "Host 'ö' is not a name or address"},
        Case{"NoValue", Create({"--size"}), 2, "Flag --size needs a value."},
        Case{"EmptyValue", Create({"--size="}), 2, "Flag --size needs a value."},
        Case{"FlagGivenTwice", Create({"--size", "4", "--size", "2"}), 2,
             "Flag --size is given more than once."},
        Case{"ValueForASwitch", Create({"--size", "4", "--reconfigurable=maybe"}), 2,
             "--reconfigurable"},
        Case{"UnknownRouting", Create({"--size", "4", "--routing", "ring"}), 1,
             "Unknown routing 'ring'; use dnc, swnc, ringswnc or btnc."},
        Case{"RoutingNeedsWholeDomains", Create({"--size", "4", "--routing", "ringswnc"}), 1,
             "Routing RINGSWNC needs whole IPU-Link domains"},
        Case{"UnknownGwRouting", Create({"--size", "4", "--gw-routing", "x"}), 1,
             "Unknown GW routing 'x'; use default or ring."},
        Case{"UnknownSyncType", Create({"--size", "4", "--sync-type", "x"}), 1,
             "Unknown sync type 'x'"},
        Case{"SyncTypeOfReconfigurable",
             Create({"--size", "4", "--reconfigurable", "--sync-type", "pod-native-default"}), 1,
             "Reconfigurable partitions need sync type c2-compatible."},
        Case{"NoAgentHost", Admin({"create", "agent", "ag9"}), 2, "create agent needs --host."},
        Case{"AgentPortOutside",
             Admin({"create", "agent", "ag9", "--host", "h", "--port", "99999"}), 1,
             "Port is 99999; give 1 to 65535"},
        Case{"NoClusterAgents", Admin({"create", "cluster", "c2"}), 2,
             "create cluster needs --agents."},
        Case{"TimeoutOfZero", Vipu({"list", "partitions", "--timeout", "0"}), 2,
             "Flag --timeout needs a time such as 30, 30s or 2m, not '0'."},
        Case{"NoRoomForTheOutput",
             {"sh", "-c", "vipu list partitions >/dev/full"},
             1,
             "vipu: error: cannot write to stdout"},
        Case{"NoRoomForTheOutputOfATool",
             {"sh", "-c", "gc-info --help >/dev/full"},
             1,
             "gc-info: error: cannot write to stdout: No space left on device"},
        Case{"VpodWithoutCommand", {"vpod"}, 2, "Try 'vpod --help'."},
        Case{"VpodUnknownCommand", {"vpod", "bogus"}, 2, "unknown command 'bogus'"},
        Case{"VpodUnknownFlag", {"vpod", "up", "--bogus"}, 2, "--bogus"},
        Case{"VpodSizeIsNoNumber", {"vpod", "up", "--pod", "many"}, 2, "--pod"},
        Case{"VpodUnknownLog", {"vpod", "logs", "nobody"}, 2, "nobody"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Servers, WrongInputTest,
    ::testing::Values(
        Case{"NobodyListens", Vipu({"list", "partitions", "--api-host", "127.0.0.1:1"}), 1,
             "Cannot connect to the V-IPU server at 127.0.0.1:1."},
        Case{"PortOutside", Vipu({"list", "partitions", "--api-port", "70000"}), 2, "'70000'"},
        Case{"PortIsNoNumber", Vipu({"list", "partitions", "-H", "127.0.0.1:http"}), 2, "'http'"},
        Case{"EnvironmentPortIsNoNumber",
             Vipu({"list", "partitions"}),
             2,
             "'x'",
             {{"VIPU_CLI_API_PORT", "x"}}},
        Case{"NoConfigurationFile",
             Vipu({"list", "partitions", "--config", "/nope"}),
             2,
             "/nope",
             {{"VIPU_CLI_API_HOST", ""}}},
        Case{"BrokenConfigurationFile",
             Vipu({"list", "partitions", "--config", "$D/bad.hcl"}),
             2,
             "bad.hcl line 2 is not key=\"value\"",
             {{"VIPU_CLI_API_HOST", ""}}},
        Case{"ServerVersionOfNobody", Vipu({"--server-version", "-H", "127.0.0.1:1"}), 1,
             "Cannot connect to the V-IPU server at 127.0.0.1:1."},
        Case{"PoprunReachesNobody",
             Poprun({"--vipu-server-host", "127.0.0.1", "--vipu-server-port", "1"}), 1,
             "cannot reach the V-IPU server at 127.0.0.1:1"},
        Case{"PoprunPortOutside", Poprun({"--vipu-server-port", "99999"}), 2,
             "--vipu-server-port"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Devices, WrongInputTest,
    ::testing::Values(
        Case{"GcdOutside", Vipu({"get", "partition", "g4", "--gcd", "2", "--ipuof-configs"}), 1,
             "Partition has 2 GCDs; GCD 2 does not exist."},
        Case{"GcdFarOutside",
             Vipu({"get", "partition", "p8", "--gcd", "4294967295", "--ipuof-configs"}), 1,
             "Partition has 1 GCDs; GCD 4294967295 does not exist."},
        Case{"GcdIsNoNumber", Vipu({"get", "partition", "p8", "--gcd", "x", "--ipuof-configs"}), 2,
             "Flag --gcd needs a number, not 'x'."},
        Case{"ShownGcdOutside", Vipu({"get", "partition", "p8", "--gcd", "1"}), 1,
             "Partition has 1 GCDs; GCD 1 does not exist."},
        Case{"GcdMissing",
             {"gc-info", "-i"},
             1,
             "partition g4 has 2 GCDs; choose one with IPUOF_VIPU_API_PARTITION_ID and "
             "IPUOF_VIPU_API_GCD_ID, or name its file with IPUOF_CONFIG_PATH",
             Asking("g4", "")},
        Case{"GcdOfEnvironmentOutside",
             {"gc-info", "-l"},
             1,
             "Partition has 2 GCDs; GCD 7 does not exist.",
             Asking("g4", "7")},
        Case{"GcdOfEnvironmentIsNoNumber",
             {"gc-info", "-l"},
             1,
             "IPUOF_VIPU_API_GCD_ID is 'x', must be a number",
             Asking("g4", "x")},
        Case{"SeveralPartitions",
             {"gc-monitor"},
             1,
             "choose one with IPUOF_VIPU_API_PARTITION_ID and IPUOF_VIPU_API_GCD_ID, or name its "
             "file with IPUOF_CONFIG_PATH"},
        Case{"SeveralPartitionsAsJson",
             {"gc-monitor", "-j"},
             0,
             "choose one with IPUOF_VIPU_API_PARTITION_ID and IPUOF_VIPU_API_GCD_ID, or name its "
             "file with IPUOF_CONFIG_PATH",
             {},
             "{\"cards\": [], \"error\": \""},
        Case{"SeveralPartitionsListedAsJson",
             {"gc-info", "-l", "-j"},
             1,
             "choose one with IPUOF_VIPU_API_PARTITION_ID and IPUOF_VIPU_API_GCD_ID",
             {},
             "{\n \"error\": \""},
        Case{"UnknownOptionWithJson",
             {"gc-links", "-j", "--foo"},
             2,
             "unrecognised option '--foo'",
             {},
             "{\n \"error\": \"unrecognised option '--foo'\"\n}\n"},
        Case{"FailureOfVipuAsJson",
             {"vipu", "get", "partition", "nope", "--showjson"},
             1,
             "Partition nope does not exist.",
             {},
             "{\n  \"verb\": \"get\",\n  \"noun\": \"partition\",\n  \"id\": \"nope\",\n  "
             "\"result\": "
             "\"failed\","},
        Case{"UnknownPartition",
             {"gc-info", "--ipu-count"},
             1,
             "Partition nope does not exist.",
             Asking("nope", "")},
        Case{"PartitionNotActive",
             {"gc-info", "-l"},
             1,
             "gc-info: error: partition is not ACTIVE: pend (state PS_PENDING)",
             Asking("pend", "")},
        Case{"ConfigurationOfPending",
             Vipu({"get", "partition", "pend", "--gcd", "0", "--ipuof-configs"}), 1,
             "Partition pend is not ACTIVE (state PENDING)."},
        Case{"CreateDoesNotBecomeActive",
             Create({"--size", "1", "--cluster", "cghost", "--timeout", "1"}), 1,
             "No result within 1 s; partition is PENDING."},
        Case{"DeviceOutside",
             {"gc-info", "-i", "-d", "15"},
             1,
             "device 15 does not exist; 8 IPUs have devices 0 to 14",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"DeviceIsNoNumber",
             {"gc-info", "-i", "-d", "x"},
             2,
             "the argument ('x') for option '--device-id' is invalid"},
        Case{"DeviceIsNegative",
             {"gc-info", "-i", "-d", "-1"},
             2,
             "the argument ('-1') for option '--device-id' is invalid"},
        Case{"ResetDeviceIsNegative",
             {"gc-reset", "-d", "-1"},
             2,
             "the argument ('-1') for option '--device-id' is invalid"},
        Case{"NoInfoAskedFor", {"gc-info"}, 2, "give one of -l, -i"},
        Case{"TwoInfosAskedFor", {"gc-info", "-l", "--ipu-arch"}, 2, "give one of -l, -i"},
        Case{"UnknownGcInfoFlag", {"gc-info", "--foo"}, 2, "unrecognised option '--foo'"},
        Case{"UnknownGcMonitorFlag", {"gc-monitor", "--foo"}, 2, "unrecognised option '--foo'"},
        Case{"StrayWord", {"gc-monitor", "extra"}, 2, "gc-monitor: error: too many positional"},
        Case{"WatchOfNothing",
             {"gc-monitor", "--watch=0"},
             2,
             "--watch=0 must be a number of seconds"},
        Case{"WatchIsNoNumber",
             {"gc-monitor", "--watch=nan"},
             2,
             "--watch=nan must be a number of seconds"},
        Case{"WatchWithLetters",
             {"gc-monitor", "--watch=2x"},
             2,
             "--watch=2x must be a number of seconds"},
        Case{"ResetWithoutDevice",
             {"gc-reset"},
             2,
             "the option '--device-id' is required but missing"},
        Case{"ResetOfHeldDevice",
             {"gc-reset", "-d", "0"},
             1,
             "gc-reset: error: device 0 is in use by process ",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"JobOnHeldDevices", Poprun({"--vipu-partition", "p8", "--num-replicas", "8"}), 1,
             "is in use by process"},
        Case{"JobOnPendingPartition",
             Poprun({"--vipu-partition", "pend", "--num-replicas", "2", "--vipu-server-timeout",
                     "1"}),
             1, "pend"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Files, WrongInputTest,
    ::testing::Values(
        Case{"Malformed",
             {"gc-info", "-l"},
             1,
             "malformed.conf: not an IPUoF configuration",
             File("malformed.conf")},
        Case{"Truncated",
             {"gc-info", "-l"},
             1,
             "truncated.conf: not an IPUoF configuration",
             File("truncated.conf")},
        Case{"Empty",
             {"gc-info", "-l"},
             1,
             "empty.conf: not an IPUoF configuration",
             File("empty.conf")},
        Case{"Binary",
             {"gc-monitor"},
             1,
             "binary.conf: not an IPUoF configuration",
             File("binary.conf")},
        Case{"NoDevices", {"gc-info", "-l"}, 1, "no \"devices\"", File("nodevices.conf")},
        Case{"EmptyDevices",
             {"gc-info", "-l"},
             1,
             "\"devices\" must be a non-empty array",
             File("emptydevices.conf")},
        Case{"NoAddress",
             {"gc-info", "-l"},
             1,
             "a device has neither \"ip\" nor \"endpoint\"",
             File("noaddress.conf")},
        Case{"Missing", {"gc-info", "-l"}, 1, "cannot read $D/missing.conf", File("missing.conf")},
        Case{"Directory", {"gc-info", "-l"}, 1, "cannot read $D/pod", File("pod")},
        Case{"GcdThatIsNotThere", {"gc-info", "-l"}, 1, "GCD 9 does not exist", File("gcd9.conf")},
        Case{"MonitorOfGcdThatIsNotThere",
             {"gc-monitor"},
             1,
             "GCD 9 does not exist",
             File("gcd9.conf")},
        Case{"PartitionThatIsGone",
             {"gc-info", "-l"},
             1,
             "partition gone is not on this agent",
             File("gone.conf")},
        Case{"AgentThatIsGone", {"gc-info", "-l"}, 1, "127.0.0.1:1", File("dead.conf")},
        Case{"ProgramWithMalformed",
             {"replica_job", "--runs", "1"},
             1,
             "replica_job: error: $D/malformed.conf: not an IPUoF configuration",
             File("malformed.conf")},
        Case{"ProgramWithDirectory", {"replica_job", "--runs", "1"}, 1, "cannot read", File("pod")},
        Case{"ProgramWithoutAgent",
             {"replica_job", "--runs", "1"},
             1,
             "cannot reach the IPUs at 127.0.0.1:1",
             File("dead.conf")},
        Case{"ImportedOptionsAreAList", Poprun({"--import-config", "$D/list.json"}), 2,
             "list.json is not a JSON object of options"},
        Case{"ImportedOptionsAreADirectory", Poprun({"--import-config", "$D"}), 2,
             "--import-config: cannot read"},
        Case{"AddressesOfNoPod",
             {"vipu-agent", "--addresses", "foo"},
             2,
             "addresses 'foo' are not valid; use 127.10, 127.12 … 127.252"},
        Case{"FewerThreadsThanNone",
             {"vipu-agent", "--compute-threads", "-3"},
             2,
             "--compute-threads"},
        Case{"LogFileInAMissingDirectory",
             {"vipu-agent", "--log-file", "$D/missing/agent.log"},
             2,
             "its directory does not exist"},
        Case{"ConfigurationIsADirectory",
             Vipu({"list", "partitions", "--config", "$D"}),
             2,
             "$D",
             {{"VIPU_CLI_API_HOST", ""}}},
        Case{"NoDataSet",
             {"fashion_mnist", "--use-ipu-model", "--data", "$D/nope"},
             1,
             "fashion_mnist: error: cannot read $D/nope/"},
        Case{"DataSetIsADirectory",
             {"fashion_mnist", "--use-ipu-model", "--data", "/dev/null"},
             1,
             "fashion_mnist: error: cannot read /dev/null/"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    DeviceTools, WrongInputTest,
    ::testing::Values(
        Case{"InventoryOfNoDevice",
             {"gc-inventory", "-d", "15"},
             1,
             "gc-inventory: error: device 15 does not exist; 8 IPUs have devices 0 to 14",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"FlopsOfNoDevice",
             {"gc-flops", "-d", "15"},
             1,
             "gc-flops: error: device 15 does not exist; 8 IPUs have devices 0 to 14",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"FlopsOfHeldDevice",
             {"gc-flops", "-d", "14"},
             1,
             "device 14 is in use by process ",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"FlopsOfUnknownType",
             {"gc-flops", "-p", "FP64"},
             2,
             "--fp is 'FP64', must be one of FP16, FP32, FP8"},
        Case{"FlopsWithoutFp8Units",
             {"gc-flops", "-d", "1", "-p", "FP8"},
             1,
             "has no FP8 units (ipu2)",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"TrafficOfNoTile",
             {"gc-hosttraffictest", "--tiles-per-ipu", "0"},
             2,
             "--tiles-per-ipu is 0, must be 1 to 1472"},
        Case{"TrafficOfTooManyTiles",
             {"gc-hosttraffictest", "--tiles-per-ipu", "1473"},
             2,
             "--tiles-per-ipu is 1473, must be 1 to 1472"},
        Case{"TrafficOfNothing",
             {"gc-hosttraffictest", "--iterations", "0"},
             2,
             "--iterations is 0, must be 1 to 100000000"},
        Case{"TrafficIsNoNumber",
             {"gc-hosttraffictest", "--iterations", "-5"},
             2,
             "--iterations is '-5', must be 1 to "},
        Case{"UnknownTransport",
             {"gc-hosttraffictest", "-d", "1"},
             1,
             "VPOD_TRANSPORT is 'pigeon', must be shm or tcp",
             {{"IPUOF_CONFIG_PATH", kHeld}, {"VPOD_TRANSPORT", "pigeon"}}},
        Case{"SyncOfUnknownProxy",
             {"gc-hostsynclatencytest", "--which-hsp", "hsp3"},
             2,
             "--which-hsp is 'hsp3', must be one of hsp1, hsp2, both"},
        Case{"SyncOfUnknownMode",
             {"gc-hostsynclatencytest", "-m", "x"},
             2,
             "--sync-mode is 'x', must be one of posted, polling, hybrid"},
        Case{"SyncOfLongDelays",
             {"gc-hostsynclatencytest", "--delay-val", "21"},
             2,
             "--delay-val is 21, must be 0 to 20"},
        Case{"SyncOfManyMarks",
             {"gc-hostsynclatencytest", "--mark-count", "4096"},
             2,
             "--mark-count is 4096, must be 1 to 4095"},
        Case{"MemoryOfNothing",
             {"gc-memorytest", "--elements", "0"},
             2,
             "--elements is 0, must be 1 to 36"},
        Case{"ExchangeWithFlag", {"gc-exchangetest", "--foo"}, 2, "unrecognised option '--foo'"},
        Case{"ExchangeWriteWithWord",
             {"gc-exchangewritetest", "1"},
             2,
             "gc-exchangewritetest: error: too many positional"},
        Case{"PowerOfNoDevice",
             {"gc-powertest", "-d", "15"},
             1,
             "gc-powertest: error: device 15 does not exist",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"JsonOfABareValue",
             {"gc-info", "--ipu-count", "-j"},
             2,
             "--json-output needs -l or -i",
             {},
             "{\n \"error\": \"--json-output needs -l or -i\"\n}\n"},
        Case{"TileOutside",
             {"gc-info", "--tile-status", "1472"},
             2,
             "'1472' is not a tile; use 0 to 1471"},
        Case{"ContextOutside",
             {"gc-info", "--tile-status", "-", "-c", "W6"},
             2,
             "'W6' is not a context; use SU, W0 to W5 or 0 to 6"},
        Case{"RegisterWithoutTile",
             {"gc-info", "--ipu-count", "-r", "PC"},
             2,
             "--context and --register need --tile-status"},
        Case{"DumpOfHalfAnAddress",
             {"gc-info", "--dump-mem", "0", "0x4c000"},
             2,
             "--dump-mem needs a tile, a start address and bytes"},
        Case{"RegistersAreNotModelled",
             {"gc-info", "-d", "1", "--tile-status", "0", "-r", "PC"},
             1,
             "gc-info: error: not modelled",
             {{"IPUOF_CONFIG_PATH", kHeld}}},
        Case{"ContainerWithoutImage",
             {"gc-docker", "--echo"},
             2,
             "give the arguments of 'docker run' after --"},
        Case{"ContainerWithPcieDevice",
             {"gc-podman", "--device-id", "0", "--", "image"},
             1,
             "there are no PCIe devices"},
        Case{"ContainerEngineMissing",
             {"$D/bin/gc-podman", "--", "image"},
             1,
             "gc-podman: error: cannot run podman: No such file or directory",
             {{"IPUOF_CONFIG_PATH", kHeld}, {"PATH", "/nonexistent"}}}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Text, WrongInputTest,
    ::testing::Values(
        Case{"UserIdOutsideAscii", Vipu({"list", "partitions", "--api-user-id", "ö"}), 2,
             "vipu: error: user id '\\xc3\\xb6' must have 1 to 128 printable ASCII characters"},
        Case{"UserIdOfTheEnvironment",
             {"gc-info", "-l"},
             1,
             "user id '\\xc3\\xb6' must have",
             {{"VIPU_CLI_API_USER_ID", "ö"}, {"IPUOF_VIPU_API_HOST", "127.0.0.1"}}},
        Case{"WordOutsideUtf8",
             Vipu({"get", "partition", "caf\xe9", "--showjson"}),
             2,
             "vipu: error: Argument 'caf\\xe9' must be one line of UTF-8 text.",
             {},
             "{\n  \"verb\": \"get\",\n  \"noun\": \"partition\",\n  \"result\": \"failed\","},
        Case{"AgentHostOutsideUtf8",
             Admin({"create", "agent", "a9", "--host", "h\xe9", "--showjson"}),
             2,
             "vipu-admin: error: Argument 'h\\xe9' must be one line of UTF-8 text.",
             {},
             "{\n  \"verb\": \"create\","},
        Case{"PartitionOfTheEnvironment",
             {"gc-info", "-l"},
             1,
             "partition_id 'caf\\xe9' is not UTF-8 text",
             Asking("caf\xe9", "")},
        Case{"PartitionOfPoprun", Poprun({"--vipu-partition", "caf\xe9"}), 1, "caf\\xe9"},
        Case{"EndlessConfiguration", Vipu({"list", "partitions", "--config", "/dev/zero"}), 2,
             "vipu: error: cannot read /dev/zero: it is not a file."},
        Case{"EndlessIpuofFile",
             {"gc-info", "-l"},
             1,
             "cannot read /dev/zero: it is not a file",
             {{"IPUOF_CONFIG_PATH", "/dev/zero"}}},
        Case{"LinesAndEscapesToAGcTool",
             {"gc-info", "-i", "-d", "a\nb\x1b[31m\xff"},
             2,
             "the argument ('a\uFFFDb\uFFFD[31m\uFFFD') for option '--device-id' is invalid"},
        Case{"LinesToVpod", {"vpod", "up\nx"}, 2, "vpod: error: unknown command 'up\uFFFDx'."},
        Case{"LinesToAnOptionOfVpod",
             {"vpod", "up", "--memory-limit", "a\nb"},
             2,
             "--memory-limit: Value a\uFFFDb not in range 1 to"},
        Case{"LinesToPoprun", {"poprun", "a\nb"}, 1, "cannot find program 'a\uFFFDb' in PATH"},
        Case{"LinesToTheController", {"vipu-server", "a\nb"}, 2, "expected: a\uFFFDb."},
        Case{"LinesToAnAgent", {"vipu-agent", "a\nb"}, 2, "expected: a\uFFFDb."},
        Case{"LinesToAProgram",
             {"fashion_mnist", "--replicas", "a\nb"},
             2,
             "--replicas: Value a\uFFFDb not in range 1 to 64"},
        Case{"StorageIsADirectory",
             {"vipu-server", "--storage", "/"},
             1,
             "vipu-server: error: storage / is a directory"},
        Case{"EndlessStorage",
             {"vipu-server", "--storage", "/dev/zero"},
             1,
             "vipu-server: error: storage /dev/zero is not a file"},
        Case{"FlagOfAProgramWithAValue", {"fashion_mnist", "--use-ipu-model=1,2,,3"}, 2, "flag"},
        Case{"FlagOfTheControllerWithNumbers",
             {"vipu-server", "--secure=1,2,,3"},
             2,
             "vipu-server: error: --secure: '"},
        Case{"FlagOfAnAgentWithANumber",
             {"vipu-agent", "--require-encrypted-fabric=1.5"},
             2,
             "--require-encrypted-fabric: '1.5' is neither true nor false"},
        Case{"NoRoomForTheOutputOfAProgram",
             {"sh", "-c", "fashion_mnist --help >/dev/full"},
             1,
             "fashion_mnist: error: cannot write to stdout: No space left on device"},
        Case{"NoRoomForTheLosses",
             {"fashion_mnist", "--use-ipu-model", "--epochs", "1", "--train-images", "640",
              "--loss-file", "/dev/full"},
             1,
             "fashion_mnist: error: cannot write --loss-file /dev/full",
             {},
             "Fashion-MNIST: 640 training images"},
        Case{"NoDirectoryForThePasses",
             {"fashion_mnist", "--use-ipu-model", "--dump-passes", "/proc/x"},
             1,
             "fashion_mnist: error: cannot make the directory of --dump-passes /proc/x: "},
        Case{"FewerImagesThanARunTakes",
             {"fashion_mnist", "--use-ipu-model", "--train-images", "5"},
             1,
             "5 images are fewer than the 208 of one run; raise --train-images",
             {},
             "Fashion-MNIST: 5 training images"},
        Case{"FlagOfVpodWithAValue", {"vpod", "status", "--json=1,2,,3"}, 2, "flag"},
        Case{"SizeOfAPodIsNoNumber",
             {"vpod", "up", "--pod", "abc"},
             2,
             "--pod: 'abc' is not a power of two from 4 to 65536"},
        Case{"HelpAboutANumber", {"vpod", "help", "-1"}, 2, "vpod: error: unknown option '-1'."},
        Case{"UnknownFlagOfAnExample",
             {"gc-get-attributes-for-all-devices", "--bogus"},
             2,
             "Usage: gc-get-attributes-for-all-devices [ATTRIBUTE]"},
        Case{"NoDevicesForAnExample",
             {"gc-get-attributes-for-all-devices"},
             1,
             "error: no devices: {  \"error\": \"",
             File("empty.conf")},
        Case{"EndlessHostFile", Poprun({"--hostfile", "/dev/zero"}), 2,
             "--hostfile: cannot read /dev/zero: it is not a file"}),
    [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Layouts, WrongInputTest,
    ::testing::Values(
        Case{"NoProgram", {"poprun"}, 2, "no program given"},
        Case{"ReplicasDoNotDivide", Poprun({"--num-instances", "3", "--num-replicas", "16"}), 2,
             "--num-replicas (16) must be a multiple of --num-instances (3)"},
        Case{"MoreInstancesThanReplicas", Poprun({"--num-instances", "4", "--num-replicas", "2"}),
             2, "--num-instances (4) must not exceed --num-replicas (2)"},
        Case{"NoPowerOfTwo", Poprun({"--num-instances", "4", "--num-replicas", "12"}), 2,
             "must be powers of two"},
        Case{"NoReplicas", Poprun({"--num-replicas", "0"}), 2,
             "Give an integer from 1 to 4294967295"},
        Case{"ReplicasAreNoNumber", Poprun({"--num-replicas", "x"}), 2, "('x')"},
        Case{"NoValue",
             {"poprun", "--num-replicas"},
             2,
             "the required argument for option '--num-replicas' is missing"},
        Case{"UnknownOption", Poprun({"--nope"}), 2, "unrecognised option '--nope'"},
        Case{"AmbiguousOption", Poprun({"--vipu-server"}), 2, "is ambiguous and matches"},
        Case{"MissingProgram",
             {"poprun", "--num-replicas", "2", "no_such_program"},
             1,
             "cannot find program 'no_such_program' in PATH"},
        Case{"ProgramIsNotExecutable", {"poprun", "$D/bad.hcl"}, 1, "is not executable"},
        Case{"MoreThanThePod", Poprun({"--vipu-partition", "big", "--num-replicas", "32"}), 1,
             "cannot create partition big"},
        Case{"PartitionTooSmall", Poprun({"--vipu-partition", "g4", "--num-replicas", "8"}), 1,
             "partition g4 has 4 IPUs"},
        Case{"PartitionWithBlank", Poprun({"--vipu-partition", "a b"}), 1, "Invalid id 'a b'"},
        Case{"HostRange", Poprun({"--host", "h[0-"}), 2, "--host: bad range"},
        Case{"OutputOfNobody",
             Poprun({"--num-instances", "2", "--num-replicas", "2", "--only-output-from-instance",
                     "2"}),
             2, "--only-output-from-instance (2) must be less than --num-instances (2)"},
        Case{"ReplicasOfExample", {"fashion_mnist", "--replicas", "65"}, 2, "--replicas"},
        Case{"FlagOfExample", {"fashion_mnist", "--bogus"}, 2, "--bogus"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace vpod::testing
