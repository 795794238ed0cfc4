// Tests of vpod's answers about PODs and about itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "device/base/file.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
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
  EXPECT_EQ(status["name"], nullptr);
  EXPECT_EQ(status["in_use"], true);
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
  EXPECT_EQ(Parsed(none)["state"], "down");
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

// Whoever sets VPOD_HOME for others could make their terminals do things.
TEST(VpodCommandsTest, APathIsShownOnOneLineWithoutControlCharacters) {
  TestPod pod(0);
  const std::string home = pod.directory() + "/a\x1b[31m\nb\xff";
  ASSERT_TRUE(std::filesystem::create_directory(home));
  pod.environment()["VPOD_HOME"] = home;
  const auto expect_printable = [](const Outcome& outcome, const std::string& what) {
    for (const std::string& text : {outcome.out, outcome.err}) {
      EXPECT_EQ(text.find('\x1b'), std::string::npos) << what;
      EXPECT_EQ(text.find('\xff'), std::string::npos) << what;
      EXPECT_EQ(text.find("\nb"), std::string::npos) << what;
    }
  };
  const auto expect_all = [&](const std::string& which) {
    for (const char* command : {"status", "status --json", "list", "list --json", "doctor", "logs",
                                "up --pod 5", "backup file", "down"})
      expect_printable(pod.Shell("vpod " + std::string(command)), which + command);
  };
  expect_all("no POD: ");
  std::ofstream(home + "/pod.json") << "{";
  expect_all("damaged: ");
  std::ofstream(home + "/pod.json")
      << R"({"ipus": 4, "machine_type": "m2000", "api_port": 8090, "addresses": "127.10"})";
  expect_all("stopped: ");
  // Scripts get the path in JSON as far as it is UTF-8, and shells get all of it.
  std::ofstream(home + "/pod.json")
      << R"({"ipus": 4, "machine_type": "m2000", "api_port": 8090, "addresses": "127.10"})";
  EXPECT_EQ(pod.Shell("h=$VPOD_HOME; unset VPOD_HOME; eval \"$(VPOD_HOME=$h vpod env)\"; "
                      "test \"$VPOD_HOME\" = \"$h\" && echo same")
                .out,
            "same\n");
  expect_printable(pod.Run({"vpod", "delete"}), "delete");
}

TEST(VpodCommandsTest, ListIsAnArrayOfThem) {
  TestPod one(4), two(4);
  const Json list = Parsed(one.Run({"vpod", "list", "--json"}));
  for (TestPod* pod : {&one, &two}) {
    Json status = Parsed(pod->Run({"vpod", "status", "--json"}));
    status["in_use"] = pod == &one;
    EXPECT_NE(std::find(list.begin(), list.end(), status), list.end()) << list << status;
  }
}

TEST(VpodCommandsTest, LogsAreFollowed) {
  TestPod pod(4);
  const auto all = pod.Start({"vpod", "logs", "-f", "-n", "1"});
  const auto agent = pod.Start({"vpod", "logs", "agent", "--follow", "-n", "1"});
  ASSERT_TRUE(all->WaitForOutput("agent: ")) << all->Err();
  ASSERT_TRUE(agent->WaitForOutput("agent: ")) << agent->Err();
  const std::string last = all->Out();
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 2) << last;
  const std::string write = "echo \"$0\" >>$VPOD_HOME/$1.log";
  pod.Run({"bash", "-c", write, "one", "vipu-server"});
  EXPECT_TRUE(all->WaitForOutput("server: one\n")) << all->Out();
  pod.Run({"bash", "-c", write, "two", "vipu-agent"});
  EXPECT_TRUE(all->WaitForOutput("agent: two\n")) << all->Out();
  EXPECT_TRUE(agent->WaitForOutput("agent: two\n")) << agent->Out();
  EXPECT_EQ(agent->Out().find("server: "), std::string::npos);
  // A line appears when it is whole; a log that was replaced begins again.
  pod.Shell("printf half >>$VPOD_HOME/vipu-agent.log");
  pod.Shell("printf -- '-whole\\n' >>$VPOD_HOME/vipu-agent.log");
  EXPECT_TRUE(all->WaitForOutput("agent: half-whole\n")) << all->Out();
  pod.Shell("cd $VPOD_HOME; echo new >next; mv next vipu-agent.log");
  EXPECT_TRUE(all->WaitForOutput("agent: new\n")) << all->Out();
  ASSERT_EQ(pod.Run({"vpod", "delete"}).code, 0);
  EXPECT_EQ(all->Wait().code, 0);
  EXPECT_EQ(agent->Wait().code, 0);
  const Outcome gone = pod.Run({"vpod", "logs", "-f"});
  EXPECT_EQ(gone.code, 1);
  EXPECT_NE(gone.err.find("cannot follow the logs in " + pod.home()), std::string::npos)
      << gone.err;
}

TEST(VpodCommandsTest, LogsThatAreNotThereAreNamed) {
  TestPod pod(0);
  const std::string log = pod.home() + "/vipu-server.log";
  const auto expect_refused = [&](const std::string& text) {
    const Outcome outcome = pod.Run({"vpod", "logs", "server"});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.err, "vpod: error: " + text + "\n");
  };
  expect_refused("there is no log " + log + "; a POD that 'vpod up' starts writes it");
  std::filesystem::create_directories(log);
  expect_refused(log + " is a directory");
}

TEST(VpodCommandsTest, LogsHaveNoControlCharactersForATerminal) {
  TestPod pod(4);
  const std::string line = "a\x1b[31mred\x07 \xc3\xa4";
  pod.Run({"bash", "-c", "echo \"$0\" >>$VPOD_HOME/vipu-agent.log", line});
  EXPECT_EQ(pod.Run({"vpod", "logs", "agent", "-n", "1"}).out, "agent: " + line + "\n");
  // A program that gives vpod a terminal.
  const Outcome shown = pod.Run({"script", "-qec", "vpod logs agent -n 1", "/dev/null"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("agent: a\uFFFD[31mred\uFFFD \xc3\xa4"), std::string::npos) << shown.out;
  EXPECT_EQ(shown.out.find('\x1b'), std::string::npos) << shown.out;
}

TEST(VpodCommandsTest, TheSupportBundleHasWhatHelpsAndNoSecrets) {
  TestPod pod(4);
  pod.environment()["VIPU_CLI_API_ACCESS_KEY"] = "sesame";
  pod.CreatePartition("p4", 4);
  const std::string key =
      pod.Shell("sed -n 's/.*\"fabric_key\": *\"\\(.*\\)\".*/\\1/p' $IPUOF_CONFIG_DIR/*").out;
  ASSERT_GT(key.size(), 8u) << pod.Shell("cat $IPUOF_CONFIG_DIR/*").out;
  pod.Shell("echo 'api-access-key=\"sesame\"' >>$VPOD_HOME/vipu-cli.hcl");
  pod.Shell("for file in $IPUOF_CONFIG_DIR/*; do head -c -3 $file >$file.cut; done");
  const std::string file = pod.directory() + "/bundle.tar.gz";
  const Outcome made = pod.Run({"vpod", "support-bundle", "-o", file});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.out, file + "\n");
  EXPECT_EQ(pod.Shell("stat -c %a " + file).out, "600\n");
  const std::string unpacked = pod.directory() + "/unpacked";
  ASSERT_EQ(pod.Shell("mkdir " + unpacked + " && tar -C " + unpacked +
                      " --strip-components=1 -xzf " + file)
                .code,
            0);
  const auto content = [&](const std::string& name) {
    return pod.Run({"cat", unpacked + "/" + name}).out;
  };
  EXPECT_NE(content("vipu-server.log").find("serving users on"), std::string::npos);
  EXPECT_NE(content("vipu-agent.log").find("machines of type m2000"), std::string::npos);
  EXPECT_NE(content("status.txt").find("p4 (ACTIVE)"), std::string::npos);
  EXPECT_EQ(Json::parse(content("status.json"))["state"], "running");
  const Json objects = Json::parse(content("objects.json"));
  EXPECT_EQ(objects["partitions"][0]["partition"]["id"], "p4");
  EXPECT_EQ(objects["agents"].size(), 1u);
  EXPECT_FALSE(objects["events"].empty());
  EXPECT_NE(content("doctor.txt").find("ok   1 of 1 machines are up"), std::string::npos);
  EXPECT_NE(content("versions.txt").find("kernel: "), std::string::npos);
  EXPECT_NE(content("environment.txt").find("VPOD_HOME=" + pod.home()), std::string::npos);
  EXPECT_NE(content("vipu-cli.hcl").find("api-host=\"127.0.0.1\""), std::string::npos);
  EXPECT_NE(content("pod.json").find("m2000"), std::string::npos);
  EXPECT_EQ(pod.Shell("grep -rlE 'sesame|" + key.substr(0, key.size() - 1) + "' " + unpacked).out,
            "");
  // Nothing is overwritten, and what cannot be written is named.
  const Outcome again = pod.Run({"vpod", "support-bundle", "-o", file});
  EXPECT_EQ(again.code, 1);
  EXPECT_NE(again.err.find(file + " is there already"), std::string::npos) << again.err;
  const Outcome nowhere = pod.Run({"vpod", "support-bundle", "-o", "/nowhere/bundle.tar.gz"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_NE(nowhere.err.find("cannot write /nowhere/bundle.tar.gz"), std::string::npos)
      << nowhere.err;
}

// That is when it is needed.
TEST(VpodCommandsTest, ASupportBundleOfAPodThatIsDownHasItsLogs) {
  TestPod pod(4);
  ASSERT_EQ(pod.Run({"vpod", "down"}).code, 0);
  const std::string temporary = pod.directory() + "/temporary";
  ASSERT_EQ(pod.Run({"mkdir", temporary}).code, 0);
  pod.environment()["TMPDIR"] = temporary;
  const Outcome made = pod.Shell("cd " + pod.directory() + " && tar -tzf $(vpod support-bundle)");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.out.rfind("vpod-support-pod-2", 0), 0u) << made.out;
  for (const char* name : {"/vipu-server.log\n", "/status.txt\n", "/doctor.txt\n"})
    EXPECT_NE(made.out.find(name), std::string::npos) << made.out;
  EXPECT_EQ(pod.Shell("ls " + temporary).out, "");
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

TEST(VpodCommandsTest, NewMakesAProjectOnce) {
  TestPod pod(0);
  const std::string project = pod.directory() + "/digits";
  const Outcome made = pod.Run({"vpod", "new", project + "/"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.out, project + " has a first program; " + project +
                          "/README.md says how to build and run it.\n");
  const Outcome again = pod.Run({"vpod", "new", project, "--python"});
  EXPECT_EQ(again.code, 1);
  EXPECT_EQ(again.err, "vpod: error: " + project + " is there already\n");
  const Outcome nowhere = pod.Run({"vpod", "new", "/nowhere/digits"});
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_EQ(nowhere.err, "vpod: error: cannot make /nowhere/digits: No such file or directory\n");
  EXPECT_EQ(pod.Run({"vpod", "new", "3d"}).code, 2);
  ExpectWrongUsage(pod.Run({"vpod", "new"}), "project", "vpod new");
  ExpectWrongUsage(pod.Run({"vpod", "new", project, "--java"}), "--java", "vpod new");
}

TEST(VpodCommandsTest, PlanNeedsNoPod) {
  TestPod pod(0);
  const Outcome table = pod.Run({"vpod", "plan", "mnist", "--pod", "4,16", "--explain"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_THAT(table.out, AllOf(HasSubstr("| Items/s |"), HasSubstr("\n m2000   | 16   | 16 "),
                               HasSubstr("POD of 16 IPUs of type m2000, the IPUs of a replica")));
  const Outcome json = pod.Run({"vpod", "plan", "--pod", "65536", "mnist", "--json"});
  EXPECT_EQ(Parsed(json)[0]["global_batch"], 65536) << json.err;
  const Outcome csv = pod.Run({"vpod", "plan", "mnist", "--csv"});
  EXPECT_THAT(csv.out, HasSubstr("ipus,replicas,global_batch,"));
  ExpectWrongUsage(pod.Run({"vpod", "plan"}), "model", "vpod plan");
  ExpectWrongUsage(pod.Run({"vpod", "plan", "mnist", "--pod", "0"}), "--pod", "vpod plan");
  ExpectWrongUsage(pod.Run({"vpod", "plan", "mnist", "--json", "--csv"}), "--csv", "vpod plan");
  const Outcome unknown = pod.Run({"vpod", "plan", "resnet19"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("vpod: error: 'resnet19' is neither a model nor a file; models are "));
  EXPECT_EQ(pod.Run({"vpod", "plan", "mnist", "--memory-proportion", "0"}).code, 2);
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

// PODs by name, in a shell whose variables name none.
class NamedPodsTest : public ::testing::Test {
 protected:
  NamedPodsTest() : pod_(0) {
    for (const char* variable : {"VPOD_HOME", "VIPU_CLI_API_HOST", "VIPU_CLI_API_PORT",
                                 "IPUOF_CONFIG_DIR", "XDG_STATE_HOME"})
      pod_.environment()[variable] = "";
  }
  ~NamedPodsTest() override {
    for (const char* name : {"lab1", "lab2", "default"}) pod_.Run({"vpod", "delete", name});
    // As the destructor of the POD expects it.
    pod_.environment()["VPOD_HOME"] = pod_.home();
  }

  std::string HomeOf(const std::string& name) {
    return pod_.directory() + "/.local/state/vpod/pods/" + name;
  }
  Outcome Up(const std::string& name, int ipus) {
    return pod_.Run(
        {"vpod", "up", "--name", name, "--pod", std::to_string(ipus), "--memory-limit", "1024"});
  }

  TestPod pod_;
};

TEST_F(NamedPodsTest, ToolsFollowTheOneInUse) {
  const Outcome up = Up("lab1", 4);
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_NE(up.out.find("state in " + HomeOf("lab1") + "\n"), std::string::npos) << up.out;
  EXPECT_NE(up.out.find("in all: vpod use lab1\n"), std::string::npos) << up.out;
  ASSERT_EQ(Up("lab2", 8).code, 0);
  const std::string count = "vipu-admin list agents | grep -c ' Up '";
  EXPECT_EQ(pod_.Run({"vpod", "use"}).out, "default\n");
  EXPECT_EQ(pod_.Run({"vpod", "use", "lab1"}).out,
            "The POD in use is lab1 in " + HomeOf("lab1") + ".\n");
  EXPECT_EQ(pod_.Shell(count).out, "1\n");
  const Outcome use = pod_.Run({"vpod", "use", "lab2"});
  EXPECT_EQ(use.code, 0);
  EXPECT_EQ(use.err, "");
  EXPECT_EQ(pod_.Run({"vpod", "use"}).out, "lab2\n");
  EXPECT_EQ(pod_.Shell(count).out, "2\n");
  // Partitions, their files and the tools that read them.
  const Outcome job = pod_.Shell(
      "vipu create partition p8 --size 8 --reconfigurable && gc-info --ipu-count && "
      "poprun --num-replicas 8 replica_job --runs 1 >&2");
  EXPECT_EQ(job.code, 0) << job.err;
  EXPECT_EQ(job.out, "create partition (p8): success.\n8\n");
  // Other places come first.
  EXPECT_EQ(pod_.Shell("eval \"$(vpod env --name lab1)\"; " + count).out, "1\n");
  EXPECT_EQ(pod_.Shell("export VPOD_HOME=" + HomeOf("lab1") + "; " + count).out, "1\n");
  const Outcome shadowed = pod_.Shell("eval \"$(vpod env --name lab1)\"; vpod use lab2");
  EXPECT_NE(shadowed.err.find("eval \"$(vpod env --name lab2)\""), std::string::npos)
      << shadowed.err;
}

TEST_F(NamedPodsTest, CommandsTakeAName) {
  ASSERT_EQ(Up("lab1", 4).code, 0);
  const Outcome status = pod_.Shell("VPOD_HOME=/elsewhere vpod status --name lab1 --json");
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_EQ(Parsed(status)["name"], "lab1");
  EXPECT_EQ(Parsed(status)["in_use"], false);
  EXPECT_EQ(pod_.Run({"vpod", "doctor", "--name", "lab1"}).code, 0);
  EXPECT_EQ(pod_.Run({"vpod", "logs", "--name", "lab1", "agent", "-n", "1"}).code, 0);
  EXPECT_EQ(pod_.Run({"vpod", "down", "--name", "lab1"}).out,
            "POD in " + HomeOf("lab1") + " is down.\n");
  // It stays listed until it is deleted.
  const Json list = Parsed(pod_.Run({"vpod", "list", "--json"}));
  const auto lab1 =
      std::find_if(list.begin(), list.end(), [](const Json& pod) { return pod["name"] == "lab1"; });
  ASSERT_NE(lab1, list.end()) << list;
  EXPECT_EQ((*lab1)["state"], "down");
  for (const char* name : {"a/b", "..", ""}) {
    EXPECT_EQ(pod_.Run({"vpod", "up", "--name", name}).code, 2) << name;
    EXPECT_EQ(pod_.Run({"vpod", "use", name}).code, 2) << name;
  }
  const Outcome nobody = pod_.Run({"vpod", "use", "nobody"});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_NE(nobody.err.find("no POD has the name nobody; 'vpod up --name nobody' brings one up"),
            std::string::npos)
      << nobody.err;
}

TEST_F(NamedPodsTest, ANameThatNoPodHasIsRefusedWithThoseThatThereAre) {
  const auto expect = [&](const Outcome& outcome, const std::string& there_are) {
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.err,
              "vpod: error: no POD has the name nope; 'vpod up --name nope' brings one up; " +
                  there_are + "\n");
  };
  expect(pod_.Run({"vpod", "use", "nope"}), "there are no PODs yet");
  ASSERT_EQ(pod_.Shell("mkdir -p ~/.vpod " + HomeOf("lab1") + " " + HomeOf("lab2")).code, 0);
  for (const char* command :
       {"vpod use nope", "vpod delete nope", "vpod status --name nope", "vpod --name nope status",
        "vpod --name=nope status", "vpod down --name nope", "vpod logs --name nope",
        "vpod env --name nope", "vpod backup file --name nope"}) {
    SCOPED_TRACE(command);
    const Outcome outcome = pod_.Shell(command);
    expect(outcome, "there are default, lab1, lab2");
    EXPECT_EQ(outcome.out, "");
  }
  const Outcome json = pod_.Run({"vpod", "status", "--name", "nope", "--json"});
  expect(json, "there are default, lab1, lab2");
  EXPECT_EQ(Parsed(json)["state"], "down");
  EXPECT_EQ(pod_.Run({"vpod", "--name", "lab1", "status"}).out,
            "no POD in " + HomeOf("lab1") + "\n");
}

TEST_F(NamedPodsTest, DeleteLeavesNothingOfThePodAndNothingElseIsTouched) {
  ASSERT_EQ(Up("lab1", 4).code, 0);
  ASSERT_EQ(pod_.Run({"vpod", "use", "lab1"}).code, 0);
  const Outcome deleted = pod_.Run({"vpod", "delete"});
  EXPECT_EQ(deleted.code, 0) << deleted.err;
  EXPECT_EQ(deleted.out, "POD in " + HomeOf("lab1") + " is deleted.\n");
  EXPECT_NE(pod_.Shell("test -e " + HomeOf("lab1")).code, 0);
  EXPECT_EQ(pod_.Run({"vpod", "use"}).out, "default\n");
  ASSERT_EQ(Up("lab2", 4).code, 0);
  const Outcome again = pod_.Run({"vpod", "delete", "lab1"});
  EXPECT_EQ(again.code, 1);
  EXPECT_EQ(again.err,
            "vpod: error: no POD has the name lab1; 'vpod up --name lab1' brings one up; there is "
            "lab2\n");
  ASSERT_EQ(pod_.Shell("echo mine >" + HomeOf("lab2") + "/thesis").code, 0);
  const Outcome kept = pod_.Run({"vpod", "delete", "lab2"});
  EXPECT_EQ(kept.code, 1);
  EXPECT_NE(kept.err.find("cannot remove " + HomeOf("lab2") + ": Directory not empty"),
            std::string::npos)
      << kept.err;
  EXPECT_EQ(pod_.Shell("ls " + HomeOf("lab2")).out, "thesis\n");
  ASSERT_EQ(pod_.Shell("rm " + HomeOf("lab2") + "/thesis").code, 0);
}

// Its port may be any.
TEST_F(NamedPodsTest, TheDefaultPodIsFoundWithoutVariables) {
  const std::string port = std::to_string(FreePort());
  ASSERT_EQ(
      pod_.Run({"vpod", "up", "--pod", "4", "--memory-limit", "1024", "--api-port", port}).code, 0);
  EXPECT_EQ(pod_.Shell("vipu-admin list agents | grep -c ' Up '").out, "1\n");
  EXPECT_EQ(Parsed(pod_.Run({"vpod", "status", "--json"}))["name"], "default");
}

// PODs that a file describes.
class DescribedPodTest : public NamedPodsTest {
 protected:
  Outcome Apply(const std::string& text) {
    const std::string file = pod_.directory() + "/pod.yaml";
    std::ofstream(file) << text;
    return pod_.Run({"vpod", "up", "-f", file});
  }
};

constexpr char kLab[] = R"(name: lab1
machines: 4
memory_limit: 1024
clusters:
  - {id: c1, agents: [ag0, ag1]}
  - {id: c2, agents: [ag2, ag3]}
allocations:
  - {id: a1, cluster: c1, agents: [ag1]}
users:
  - {id: alice, allocations: [a1]}
partitions:
  - {id: p4, size: 4, allocation: a1, reconfigurable: true}
  - {id: p8, size: 8, cluster: c2, num_gcds: 2}
)";

TEST_F(DescribedPodTest, AllOfItIsMadeAndAgainChangesNothing) {
  const Outcome up = Apply(kLab);
  ASSERT_EQ(up.code, 0) << up.err;
  EXPECT_NE(up.out.find("POD16 is up: 4 machines (m2000), API"), std::string::npos) << up.out;
  for (const char* object :
       {"cluster c1", "cluster c2", "allocation a1", "user alice", "partition p4", "partition p8"})
    EXPECT_NE(up.out.find(std::string(object) + " is made.\n"), std::string::npos) << up.out;
  ASSERT_EQ(pod_.Run({"vpod", "use", "lab1"}).code, 0);
  EXPECT_EQ(pod_.Shell("vipu list partitions | grep -c ' ACTIVE$'").out, "2\n");
  EXPECT_EQ(pod_.Shell("IPUOF_VIPU_API_PARTITION_ID=p4 gc-info --ipu-count").out, "4\n");
  EXPECT_EQ(pod_.Shell("stat -c %a " + HomeOf("lab1") + "/alice.vipu-cli.hcl").out, "600\n");
  const std::string before = pod_.Shell("vipu-admin list events").out;
  const Outcome again = Apply(kLab);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("; nothing changed.\n"), std::string::npos) << again.out;
  EXPECT_EQ(again.out.find("is made"), std::string::npos) << again.out;
  EXPECT_EQ(pod_.Shell("vipu-admin list events").out, before);
  // Missing objects are made again, and those that others made are left alone.
  ASSERT_EQ(pod_.Shell("vipu remove partition p8 && vipu create partition own --size 4 "
                       "--allocation c1")
                .code,
            0);
  const Outcome mended = Apply(kLab);
  EXPECT_EQ(mended.out, "partition p8 is made.\n") << mended.err;
  EXPECT_EQ(pod_.Shell("vipu list partitions | grep -c ' ACTIVE$'").out, "3\n");
}

// A user may have been given the file.
TEST_F(DescribedPodTest, AKeyThatIsNotHereIsLeftAlone) {
  ASSERT_EQ(Apply(kLab).code, 0);
  ASSERT_EQ(pod_.Run({"vpod", "use", "lab1"}).code, 0);
  const std::string file = HomeOf("lab1") + "/alice.vipu-cli.hcl",
                    moved = HomeOf("lab1") + "/moved";
  std::filesystem::rename(file, moved);
  const std::string before = pod_.Shell("vipu-admin list events").out;
  EXPECT_EQ(Apply(kLab).code, 0);
  EXPECT_EQ(pod_.Shell("vipu-admin list events").out, before);
  EXPECT_EQ(pod_.Run({"vipu", "--config", moved, "list", "partitions"}).code, 0);
}

// As after an attempt that was interrupted before the key was in its file.
TEST_F(DescribedPodTest, AKeyThatNobodyHasIsRenewed) {
  ASSERT_EQ(Apply(kLab).code, 0);
  ASSERT_EQ(pod_.Run({"vpod", "use", "lab1"}).code, 0);
  const std::string file = HomeOf("lab1") + "/alice.vipu-cli.hcl";
  const std::string whole = base::ReadFile(file);
  pod_.Shell("sed -i /access-key/d " + file);
  ASSERT_NE(base::ReadFile(file), whole);
  EXPECT_EQ(pod_.Run({"vpod", "env", "--user", "alice"}).code, 1);
  EXPECT_EQ(Apply(kLab).code, 0);
  EXPECT_NE(base::ReadFile(file), whole);
  EXPECT_EQ(pod_.Run({"vipu", "--config", file, "list", "partitions"}).code, 0);
}

TEST_F(DescribedPodTest, DifferencesAreReportedAndNothingIsChanged) {
  ASSERT_EQ(Apply(kLab).code, 0);
  std::string changed = kLab;
  changed.replace(changed.find("id: p4, size: 4"), 15, "id: p4, size: 2");
  changed.replace(changed.find("agents: [ag1]"), 13, "agents: [ag0]");
  changed += "  - {id: p2, size: 2, cluster: c1}\n";
  const Outcome refused = Apply(changed);
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err, "vpod: error: the POD in " + HomeOf("lab1") +
                             " is not as described: allocation a1 has agents [\"ag1\"] instead of "
                             "[\"ag0\"]; partition p4 has size 4 instead of 2\n");
  EXPECT_EQ(pod_.Shell("vpod status --name lab1 | grep -c p2").out, "0\n");
  changed = kLab;
  changed.replace(changed.find("machines: 4"), 11, "machines: 8");
  const Outcome larger = Apply(changed);
  EXPECT_EQ(larger.code, 1);
  EXPECT_NE(larger.err.find("holds the state of a POD16"), std::string::npos) << larger.err;
}

TEST_F(DescribedPodTest, WhatTheControllerRefusesIsNamedAndCanBeMended) {
  std::string wrong = "machines: 1\nmemory_limit: 1024\npartitions:\n  - {id: p, size: 3}\n";
  const Outcome refused = Apply(wrong);
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("/pod.yaml:4: partition p: 3 IPUs requested"), std::string::npos)
      << refused.err;
  wrong.replace(wrong.find("size: 3"), 7, "size: 4");
  EXPECT_EQ(Apply(wrong).out, "partition p is made.\n");
  // The default POD's partitions are found without any variable.
  EXPECT_EQ(pod_.Run({"gc-info", "--ipu-count"}).out, "4\n");
}

TEST_F(DescribedPodTest, AnIdThatLeadsNowhereIsNamedWithItsLineAndNothingIsMade) {
  std::string wrong = kLab;
  wrong.replace(wrong.find("allocation: a1"), 14, "allocation: a9");
  const Outcome refused = Apply(wrong);
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err, "vpod: error: " + pod_.directory() +
                             "/pod.yaml:12: partition p4: there is no allocation a9; there are "
                             "a1, c1, c2\n");
  EXPECT_EQ(refused.out.find("is made"), std::string::npos) << refused.out;
  EXPECT_EQ(Apply(kLab).code, 0);
}

TEST_F(DescribedPodTest, MistakesInTheFileAreRefusedBeforeAnythingStarts) {
  const Outcome mistake = Apply("name: lab1\nmachinez: 4\n");
  EXPECT_EQ(mistake.code, 2);
  EXPECT_NE(mistake.err.find("/pod.yaml:2: a POD has no key 'machinez'"), std::string::npos)
      << mistake.err;
  for (const char* unreadable : {"/nowhere.yaml", "/"})
    EXPECT_EQ(pod_.Run({"vpod", "up", "-f", unreadable}).code, 1) << unreadable;
  ExpectWrongUsage(pod_.Run({"vpod", "up", "-f", "pod.yaml", "--pod", "4"}), "--pod", "vpod up");
  EXPECT_NE(pod_.Shell("test -e " + HomeOf("lab1")).code, 0);
}

}  // namespace
}  // namespace vpod::testing
