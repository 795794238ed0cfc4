// Tests of requests that cannot be met: users see one clear line, the right exit code and nothing
// on stdout, and the POD does not notice. Each file that includes this is a program of its own,
// whose INSTANTIATE_TEST_SUITE_P blocks say what is asked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "device/base/file.h"
#include "tests/support/pod.h"

namespace vpod::testing {

// IPUOF_CONFIG_PATH of the partition with an attached device.
inline constexpr char kHeld[] = "@held";

// "$D" in words and values stands for the test's directory, "$P" for the controller's port.
struct Case {
  const char* name;
  std::vector<std::string> words;
  int code;
  std::string text;  // part of the line on stderr
  std::map<std::string, std::string> environment = {};
  std::string out = "";  // all of stdout, or its beginning
};

// The name of a test is the name of its case.
inline constexpr auto kCaseName = [](const auto& info) { return std::string(info.param.name); };

inline void PrintTo(const Case& item, std::ostream* stream) { *stream << item.name; }

inline std::vector<std::string> Vipu(std::vector<std::string> words) {
  words.insert(words.begin(), "vipu");
  return words;
}

inline std::vector<std::string> Admin(std::vector<std::string> words) {
  words.insert(words.begin(), "vipu-admin");
  return words;
}

inline std::vector<std::string> Create(std::vector<std::string> words) {
  words.insert(words.begin(), {"vipu", "create", "partition", "p9"});
  return words;
}

inline std::vector<std::string> Poprun(std::vector<std::string> words) {
  words.insert(words.begin(), "poprun");
  words.emplace_back("replica_job");
  return words;
}

// A configuration file for gc-info and programs.
inline std::map<std::string, std::string> File(const std::string& name) {
  return {{"IPUOF_CONFIG_PATH", "$D/" + name}};
}

// The partition with an attached device, and `more` of the environment.
inline std::map<std::string, std::string> Held(std::map<std::string, std::string> more = {}) {
  more["IPUOF_CONFIG_PATH"] = kHeld;
  return more;
}

// The controller's word instead of a file.
inline std::map<std::string, std::string> Asking(const std::string& partition,
                                                 const std::string& gcd) {
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
    // Left PENDING by the case that does not wait for machines that never come, if it ran.
    pod_->Run({"vipu", "remove", "partition", "p9"});
    for (const char* id : {"pend", "g4", "p8"}) {
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

inline WrongInputPod* const pod = static_cast<WrongInputPod*>(
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

}  // namespace vpod::testing
