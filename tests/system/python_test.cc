// Programs in Python, in their own process and as jobs of poprun.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Words = std::vector<std::string>;
const Words kFirst = {"/usr/bin/python3", "client/examples/first_program/first.py"};

Words UnderPoprun(int instances, int replicas, const Words& program) {
  Words words = {"poprun", "--num-instances", std::to_string(instances), "--num-replicas",
                 std::to_string(replicas)};
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

std::map<std::string, std::string> Environment() {
  return {{"PYTHONPATH", std::filesystem::absolute("client/python").string()}};
}

std::vector<double> Losses(const std::string& text) {
  static const std::regex line("step [0-9]+ loss ([0-9.]+)");
  std::vector<double> losses;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at)
    losses.push_back(std::stod((*at)[1]));
  return losses;
}

void ExpectLearned(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<double> losses = Losses(outcome.out);
  ASSERT_EQ(losses.size(), 20u) << outcome.out;
  EXPECT_LT(losses.back(), losses.front() / 2) << outcome.out;
}

TEST(PythonTest, TheFirstProgramLearnsAloneAndUnderPoprun) {
  TestPod pod(16, {}, Environment());
  pod.CreatePartition("p16", 16);
  ExpectLearned(pod.Run(kFirst));
  ExpectLearned(pod.Run(UnderPoprun(4, 16, kFirst)));
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

// A mistake in the program ends the job with Python's traceback, and the IPUs are free.
TEST(PythonTest, AnExceptionEndsTheJob) {
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  const Outcome outcome = pod.Run(UnderPoprun(
      2, 4,
      {"/usr/bin/python3", "-c",
       "import vpod; device = vpod.attach(replicas=2); vpod.Graph().input('x', [-1])"}));
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("ValueError: "), std::string::npos) << outcome.err;
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

TEST(PythonTest, ControlCOnAttachedIpusLeavesTheVariables) {
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  const Outcome outcome = pod.Run({"/usr/bin/python3", "-c", R"(
import os, signal, threading, vpod
graph = vpod.Graph()
x = graph.buffer("x", vpod.filled([1024, 1024], 1))
graph.output("y", (x @ x).sum())
executable = vpod.compile(graph, [vpod.Program("run", device_iterations=1000000)])
with vpod.Session(executable, vpod.attach()) as session:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        session.run("run")
    except KeyboardInterrupt:
        print("interrupted")
    try:
        session.run("run")
    except vpod.Error as error:
        print(error)
    print(session.read("x").sum())
)"});
  EXPECT_EQ(outcome.out, "interrupted\nthe run was cancelled\n1048576.0\n") << outcome.err;
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

// The module's own test makes wrong calls, and right ones in the same process afterwards. Under
// poprun its sessions have IPUs of the POD, which can be used afterwards, too.
TEST(PythonTest, WrongCallsLeaveInterpreterAndPodUsable) {
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  const Outcome outcome =
      pod.Run(UnderPoprun(1, 1,
                          {"/usr/bin/python3", "client/python/vpod/vpod_test.py", "WrongCallsTest",
                           "SessionTest.test_an_error_of_the_program_leaves_the_session"}));
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(pod.Shell("grep 'attach .*python' $VPOD_HOME/vipu-agent.log").code, 0);
  EXPECT_EQ(pod.AttachedIpus(), 0);
  ExpectLearned(pod.Run(UnderPoprun(2, 4, kFirst)));
}

}  // namespace
}  // namespace vpod::testing
