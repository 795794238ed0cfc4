// The JSON of the tools on a POD that runs, against docs/schema.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

struct Output {
  const char* definition;  // of the schema
  const char* command;
  int code = 0;
};

// Every `list`, `get` and `discover` of vipu-admin is here, which a test below sees to.
const std::vector<Output> kVipuOutputs = {
    {"agents", "vipu-admin list agents --showjson"},
    {"agent", "vipu-admin get agent ag0 --showjson"},
    {"discovered_agents", "vipu-admin discover agents --showjson"},
    {"clusters", "vipu-admin list clusters --showjson"},
    {"get_cluster", "vipu-admin get cluster c16 --showjson"},
    {"allocations", "vipu-admin list allocations --showjson"},
    {"allocation", "vipu-admin get allocation c16 --showjson"},
    {"user_allocations", "vipu list allocations --showjson"},
    {"user_allocation", "vipu get allocation c16 --showjson"},
    {"partitions", "vipu list partitions -o json"},
    {"partitions", "vipu-admin list partitions --showjson"},
    {"partition", "vipu-admin get partition p4 --showjson"},
    {"users", "vipu-admin list users --showjson"},
    {"failure", "vipu-admin get user nobody --showjson", 1},
    {"ipu_attrs", "vipu-admin list ipu-attrs --showjson"},
    {"events", "vipu-admin list events --showjson"},
    {"tests", "vipu-admin test cluster c16 --force --versions --sync --showjson"},
    {"done", "vipu reset partition p4 --showjson"},
    {"failure", "vipu create partition p4 --size 4 --showjson", 1},
    {"failure", "vipu create partition p4 --showjson", 2},
    {"failure", "vipu --siez 4 --showjson", 2},
};

const std::vector<Output> kGcOutputs = {
    {"gc-monitor", "gc-monitor -j"},
    {"gc-monitor", "gc-monitor -j --all-partitions"},
    {"gc-monitor", "IPUOF_CONFIG_DIR=/nonexistent gc-monitor -j"},
    {"gc-info_-l", "gc-info -l -j"},
    {"gc-info_-l", "gc-info -a -j"},
    {"gc-info_-i", "gc-info -d 0 -i -j"},
    {"gc-info_-i", "gc-info -d 6 -i -j"},
    {"gc-inventory", "gc-inventory -j"},
    {"gc-links", "gc-links -j"},
    {"gc-iputraffictest", "gc-iputraffictest --device0 0 --device1 1 -j --wall"},
    {"failure", "gc-gwlinkstraffictest -j", 1},  // one IPU-Link domain
    {"gc-hosttraffictest", "gc-hosttraffictest -d 0 -j --wall --iterations 1000"},
    {"gc-hostsynclatencytest", "gc-hostsynclatencytest -d 0 -j --wall"},
    {"gc-flops", "gc-flops -d 0 -j --wall"},
    {"tile_test", "gc-memorytest -d 0 -j --elements 1"},
    {"tile_test", "gc-exchangetest -d 0 -j"},
    {"tile_test", "gc-exchangewritetest -d 0 -j"},
    {"failure", "gc-info -d 99 -i -j", 1},
    {"failure", "gc-flops -d 99 -j", 1},
    {"failure", "gc-links -j --foo", 2},
    {"failure", "IPUOF_CONFIG_DIR=/nonexistent gc-info -l -j", 1},
    {"failure", "IPUOF_CONFIG_DIR=/nonexistent gc-inventory -j", 1},
};

class JsonSchemaTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pod_ = new TestPod(16);
    pod_->CreatePartition("p4", 4);
    has_checker_ = pod_->Run({"python3", "-c", "import jsonschema"}).code == 0;
  }
  static void TearDownTestSuite() {
    delete pod_;
    pod_ = nullptr;
  }
  void SetUp() override {
    if (!has_checker_)
      GTEST_SKIP() << "python3-jsonschema is not installed (deploy/packages-test.txt)";
  }

  // Violations in a document, a line each; `option` is one of check_json.py.
  static std::string Violations(const std::string& file, const std::string& definition,
                                const std::string& document, const std::string& option = "") {
    std::ofstream(pod_->directory() + "/document") << document;
    return pod_
        ->Shell("python3 " + Program("tests/support/check_json.py") + " " + option + " " +
                Program("docs/schema/" + file) + " " + definition + " 2>&1 <" + pod_->directory() +
                "/document")
        .out;
  }

  static void ExpectValid(const std::string& file, const std::vector<Output>& outputs) {
    for (const auto& [definition, command, code] : outputs) {
      const Outcome outcome = pod_->Shell(command);
      EXPECT_EQ(outcome.code, code) << command << "\n" << outcome.err;
      EXPECT_EQ(Violations(file, definition, outcome.out), "") << command << "\n" << outcome.out;
    }
  }

  static TestPod* pod_;
  static bool has_checker_;
};
TestPod* JsonSchemaTest::pod_ = nullptr;
bool JsonSchemaTest::has_checker_ = false;

TEST_F(JsonSchemaTest, VipuPrintsWhatItsSchemaSays) { ExpectValid("vipu.json", kVipuOutputs); }

TEST_F(JsonSchemaTest, GcToolsPrintWhatTheirSchemaSays) { ExpectValid("gc.json", kGcOutputs); }

TEST_F(JsonSchemaTest, DevicesInUseAreInTheSchema) {
  const auto job = pod_->Start({"replica_job", "--runs", "1000000", "--pause-ms", "20"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  const Outcome outcome = pod_->Run({"gc-monitor", "-j"});
  EXPECT_NE(outcome.out.find("\"PID\""), std::string::npos) << outcome.out;
  EXPECT_EQ(Violations("gc.json", "gc-monitor", outcome.out), "") << outcome.out;
}

TEST_F(JsonSchemaTest, ListsThatGoOnAreADocumentALine) {
  const auto follow = pod_->Start({"vipu-admin", "list", "events", "--follow", "-o", "json"});
  ASSERT_TRUE(follow->WaitForOutput("\"number\"")) << follow->Err();
  ASSERT_EQ(pod_->Shell("timeout 2 vipu list partitions --watch=0.2 -o json >$HOME/watched").code,
            124);
  const std::string lines = pod_->Run({"bash", "-c", "cat $HOME/watched"}).out;
  EXPECT_EQ(Violations("vipu.json", "partitions", lines, "--lines"), "") << lines;
}

TEST_F(JsonSchemaTest, TheCheckerFindsWhatIsNotInTheSchema) {
  EXPECT_EQ(Violations("gc.json", "failure", R"({"error": "x"})"), "");
  EXPECT_NE(Violations("gc.json", "failure", R"({"error": 1})"), "");
  EXPECT_NE(Violations("gc.json", "failure", R"({"error": "x", "more": 1})"), "");
  EXPECT_NE(Violations("vipu.json", "ipu", R"({"agent_id": "ag0"})"), "");
  EXPECT_NE(Violations("vipu.json", "time", R"("yesterday")"), "");
  EXPECT_NE(Violations("vipu.json", "nothing", "1"), "");
  EXPECT_NE(Violations("vipu.json", "time", "", "--lines"), "");
}

TEST_F(JsonSchemaTest, NoListOrGetIsWithoutASchema) {
  std::set<std::string> tested;
  for (const Output& output : kVipuOutputs) {
    std::string tool, verb, noun;
    std::istringstream(output.command) >> tool >> verb >> noun;
    if (tool == "vipu-admin") tested.insert(verb + " " + noun);
  }
  std::istringstream help(pod_->Run({"vipu-admin", "--help"}).out);
  int found = 0;
  for (std::string line; std::getline(help, line);) {
    std::string verb, noun;
    std::istringstream(line) >> verb >> noun;
    if (line.rfind("  ", 0) != 0 || (verb != "list" && verb != "get" && verb != "discover"))
      continue;
    ++found;
    EXPECT_TRUE(tested.contains(verb + " " + noun)) << line;
  }
  EXPECT_GT(found, 10);
}

}  // namespace
}  // namespace vpod::testing
