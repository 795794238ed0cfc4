// What vpod says about PODs and about itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Json = nlohmann::json;

Json Parsed(const Outcome& outcome) {
  const Json json = Json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << outcome.out << outcome.err;
  return json;
}

// One clear line that leads to the help of a command.
void ExpectWrongUsage(const Outcome& outcome, const std::string& text, const std::string& command) {
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("vpod: error: ", 0), 0u) << outcome.err;
  EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("Try '" + command + " --help'.\n"), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST(VpodCommandsTest, StatusIsJsonForScripts) {
  TestPod pod(8);
  pod.CreatePartition("p4", 4);
  const Outcome outcome = pod.Run({"vpod", "status", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json status = Parsed(outcome);
  EXPECT_EQ(status["home"], pod.home());
  EXPECT_EQ(status["state"], "running");
  EXPECT_EQ(status["missing"], Json::array());
  EXPECT_EQ(status["ipus"], 8);
  EXPECT_EQ(status["machines"], 2);
  EXPECT_EQ(status["machine_type"], "m2000");
  EXPECT_EQ(status["memory_limit_mib"], 4096);
  EXPECT_EQ(status["api"], "127.0.0.1:" + std::to_string(pod.port()));
  EXPECT_EQ(status["metrics"].get<std::string>().rfind("http://127.0.0.1:", 0), 0u) << status;
  EXPECT_EQ(status["server"]["pid"], pod.ServerPid());
  EXPECT_EQ(status["agents"], Json::array({{{"name", "vipu-agent"},
                                            {"pid", pod.AgentPid()},
                                            {"log", pod.home() + "/vipu-agent.log"}}}));
  EXPECT_EQ(status["partitions"], Json::array({{{"id", "p4"}, {"size", 4}, {"state", "ACTIVE"}}}));
}

TEST(VpodCommandsTest, StatusOfWhatIsNotWholeIsJsonToo) {
  TestPod pod(0);
  const Outcome none = pod.Run({"vpod", "status", "--json"});
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(Parsed(none)["state"], "none");
  const std::string up = "vpod up --pod 4 --memory-limit 2048 --api-port ";
  ASSERT_EQ(pod.Shell(up + std::to_string(pod.port())).code, 0);
  ASSERT_TRUE(EndProcess(pod.AgentPid(), SIGKILL));
  const Outcome partial = pod.Run({"vpod", "status", "--json"});
  EXPECT_EQ(partial.code, 1);
  EXPECT_EQ(Parsed(partial)["state"], "in part");
  EXPECT_EQ(Parsed(partial)["missing"][0], "vipu-agent does not run");
  EXPECT_EQ(Parsed(partial)["agents"][0]["pid"], nullptr);
  ASSERT_TRUE(EndProcess(pod.ServerPid(), SIGKILL));
  const Json stopped = Parsed(pod.Run({"vpod", "status", "--json"}));
  EXPECT_EQ(stopped["state"], "stopped");
  EXPECT_EQ(stopped["partitions"], nullptr);
  ASSERT_EQ(pod.Shell("echo '{' >$VPOD_HOME/pod.json").code, 0);
  const Outcome damaged = pod.Run({"vpod", "status", "--json"});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_EQ(Parsed(damaged)["state"], "damaged");
  EXPECT_NE(Parsed(damaged)["error"].get<std::string>().find("pod.json is damaged"),
            std::string::npos);
}

TEST(VpodCommandsTest, ListIsAnArrayOfThem) {
  TestPod one(4), two(4);
  const Json list = Parsed(one.Run({"vpod", "list", "--json"}));
  for (TestPod* pod : {&one, &two}) {
    const Json status = Parsed(pod->Run({"vpod", "status", "--json"}));
    EXPECT_NE(std::find(list.begin(), list.end(), status), list.end()) << list << status;
  }
}

TEST(VpodCommandsTest, VersionAndHelp) {
  TestPod pod(0);
  const Outcome version = pod.Run({"vpod", "--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out, pod.Run({"vipu", "--version"}).out);
  EXPECT_EQ(pod.Run({"vpod", "help"}).out, pod.Run({"vpod", "--help"}).out);
  const Outcome help = pod.Run({"vpod", "help", "up"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("--machine-type"), std::string::npos) << help.out;
  EXPECT_EQ(help.out, pod.Run({"vpod", "up", "--help"}).out);
  ExpectWrongUsage(pod.Run({"vpod", "help", "bogus"}), "unknown command 'bogus'", "vpod");
}

TEST(VpodCommandsTest, WrongUsageLeadsToTheHelpOfTheCommand) {
  TestPod pod(0);
  ExpectWrongUsage(pod.Run({"vpod"}), "", "vpod");
  ExpectWrongUsage(pod.Run({"vpod", "--bogus"}), "--bogus", "vpod");
  ExpectWrongUsage(pod.Run({"vpod", "up", "--bogus"}), "--bogus", "vpod up");
  ExpectWrongUsage(pod.Run({"vpod", "up", "--agents", "some"}), "--agents", "vpod up");
  ExpectWrongUsage(pod.Run({"vpod", "logs", "nobody"}), "nobody", "vpod logs");
  ExpectWrongUsage(pod.Run({"vpod", "down", "now"}), "now", "vpod down");
  for (const char* option :
       {"--pod", "--machine-type", "--cluster-topology", "--memory-limit", "--api-port"}) {
    ExpectWrongUsage(pod.Run({"vpod", "up", option, ""}), option, "vpod up");
    ExpectWrongUsage(pod.Run({"vpod", "up", std::string(option) + "="}), option, "vpod up");
  }
  EXPECT_NE(pod.Shell("test -e $VPOD_HOME").code, 0) << "a refusal left something behind";
}

}  // namespace
}  // namespace vpod::testing
