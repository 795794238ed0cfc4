// Tests of the daemons' logs for operators: who was refused what and why, who had which IPUs, and
// nothing that a client makes up.
#include <gtest/gtest.h>

#include <csignal>
#include <regex>

#include "device/base/file.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

class LogsTest : public ::testing::Test {
 protected:
  std::string ServerLog() { return base::ReadFile(pod_.home() + "/vipu-server.log"); }
  std::string AgentLog() { return base::ReadFile(pod_.home() + "/vipu-agent.log"); }
  // The line that matches, waiting for it; empty when there is none.
  template <class Log>
  std::string Line(const Log& log, const std::string& pattern) {
    std::smatch match;
    std::string text;
    const std::regex line("[^\n]*" + pattern + "[^\n]*");
    return Within(kSoon, [&] { return std::regex_search(text = log(), match, line); })
               ? match[0].str()
               : "";
  }
  std::string InServerLog(const std::string& pattern) {
    return Line([this] { return ServerLog(); }, pattern);
  }
  std::string InAgentLog(const std::string& pattern) {
    return Line([this] { return AgentLog(); }, pattern);
  }

  TestPod pod_{4};
};

TEST_F(LogsTest, RefusedCommandsNameUserAndReason) {
  pod_.environment()["VIPU_CLI_API_USER_ID"] = "mallory";
  ASSERT_EQ(pod_.Run({"vipu", "remove", "partition", "nope"}).code, 1);
  EXPECT_NE(InServerLog("refused call=\"remove partition\" user=\"mallory\" "
                        "peer=\"ipv4:127\\.0\\.0\\.1:[0-9]+\" code=NOT_FOUND "
                        "reason=\"Partition nope does not exist\\.\""),
            "")
      << ServerLog();
  ASSERT_EQ(pod_.Run({"vipu", "create", "partition", "p9", "--size", "64"}).code, 1);
  EXPECT_NE(InServerLog(
                "refused call=\"create partition\" user=\"mallory\" .*reason=\"64 IPUs requested"),
            "");
  ASSERT_EQ(pod_.Run({"vipu-admin", "create", "agent", "ag0", "--host", "h"}).code, 1);
  EXPECT_NE(InServerLog("refused call=\"create agent\" user=\"mallory\" .*already exists"), "");
  // One line for a client that asks again and again.
  for (int i = 0; i < 20; ++i) pod_.Run({"vipu", "get", "partition", "again"});
  const std::string log = ServerLog();
  size_t lines = 0;
  for (size_t at = log.find("Partition again does"); at != std::string::npos;
       at = log.find("Partition again does", at + 1))
    ++lines;
  EXPECT_GE(lines, 1u);
  EXPECT_LE(lines, 3u) << log;
}

TEST_F(LogsTest, AttachAndDetachNameUserProcessPartitionAndIpus) {
  pod_.CreatePartition("p2", 2);
  const Outcome job = pod_.Run({"replica_job", "--runs", "2"});
  ASSERT_EQ(job.code, 0) << job.err;
  const std::string process = "user=\"[^\"]+\" pid=[0-9]+ host=\"[^\"]+\" program=\"replica_job\"";
  EXPECT_NE(InAgentLog("attach lease=[0-9a-f]{8} " + process +
                       " partition=p2 gcd=0 device=[0-9]+ ipus=\"127[0-9.]+:[0-9,]+\""),
            "")
      << AgentLog();
  EXPECT_NE(InAgentLog("detach lease=[0-9a-f]{8} " + process +
                       " partition=p2 .*reason=\"the client detached\""),
            "")
      << AgentLog();
}

TEST_F(LogsTest, AClientThatDiesIsNamedWithTheReason) {
  pod_.CreatePartition("p2", 2);
  const auto job = pod_.Start({"replica_job", "--runs", "1000000", "--pause-ms", "20"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  const int pid = static_cast<int>(job->pid());
  job->Signal(SIGKILL);
  job->Wait();
  EXPECT_NE(InAgentLog("detach lease=.* pid=" + std::to_string(pid) +
                       " .*partition=p2 .*reason=\"the client \\(pid [0-9]+ on .*\\) was lost\""),
            "")
      << AgentLog();
  EXPECT_EQ(AgentLog().find("without a word"), std::string::npos) << AgentLog();
}

TEST_F(LogsTest, AnAttachThatIsRefusedIsNamedToo) {
  pod_.CreatePartition("p2", 2);
  const auto job = pod_.Start({"replica_job", "--runs", "1000000", "--pause-ms", "20"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  EXPECT_NE(
      pod_.Run({"poprun", "--vipu-partition", "p2", "--num-replicas", "2", "replica_job"}).code, 0);
  EXPECT_NE(
      InAgentLog(
          "refused call=\"attach\" user=\"[^\"]+\" pid=[0-9]+ .*program=\"poprun\" partition=p2 "
          ".*reason=\"device [0-9]+ is in use by process " +
          std::to_string(job->pid())),
      "")
      << AgentLog();
}

TEST_F(LogsTest, ResetsAndRemovalsThatEndJobsAreTheReason) {
  pod_.CreatePartition("p2", 2);
  const auto job = pod_.Start({"replica_job", "--runs", "1000000", "--pause-ms", "20"});
  ASSERT_TRUE(job->WaitForOutput("run 0 loss")) << job->Err();
  ASSERT_EQ(pod_.Run({"vipu", "remove", "partition", "p2"}).code, 0);
  EXPECT_NE(InAgentLog("detach lease=.*reason=\"partition p2 was removed\""), "") << AgentLog();
}

}  // namespace
}  // namespace vpod::testing
