// Programs in Python, in their own process and as jobs of poprun.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Words = std::vector<std::string>;
constexpr char kPython[] = "/usr/bin/python3";
const Words kFirst = {kPython, "client/examples/first_program/first.py"};

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

// Programs on a POD of four IPUs, which are one partition.
class PythonOnFourIpusTest : public ::testing::Test {
 protected:
  PythonOnFourIpusTest() { pod_.CreatePartition("p4", 4); }
  Outcome Run(const char* program) { return pod_.Run({kPython, "-c", program}); }

  TestPod pod_{4, {}, Environment()};
};

TEST(PythonTest, TheFirstProgramLearnsAloneAndUnderPoprun) {
  TestPod pod(16, {}, Environment());
  pod.CreatePartition("p16", 16);
  ExpectLearned(pod.Run(kFirst));
  ExpectLearned(pod.Run(UnderPoprun(4, 16, kFirst)));
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

// A mistake in the program ends the job with Python's traceback, and the IPUs are free.
TEST_F(PythonOnFourIpusTest, AnExceptionEndsTheJob) {
  const Outcome outcome = pod_.Run(UnderPoprun(
      2, 4,
      {kPython, "-c",
       "import vpod; device = vpod.attach(replicas=2); vpod.Graph().input('x', [-1])"}));
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("ValueError: "), std::string::npos) << outcome.err;
  EXPECT_EQ(pod_.AttachedIpus(), 0);
}

TEST_F(PythonOnFourIpusTest, ControlCOnAttachedIpusLeavesTheVariables) {
  const Outcome outcome = Run(R"(
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
)");
  EXPECT_EQ(outcome.out, "interrupted\nthe run was cancelled\n1048576.0\n") << outcome.err;
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(pod_.AttachedIpus(), 0);
}

TEST_F(PythonOnFourIpusTest, ARemovedPartitionIsNoWrongArgument) {
  const Outcome outcome = Run(R"(
import subprocess, vpod
graph = vpod.Graph()
graph.output("y", graph.buffer("x", [3.0], "float32"))
session = vpod.Session(vpod.compile(graph, [vpod.Program("run")]), vpod.attach())
session.run("run")
subprocess.run(["vipu-admin", "remove", "partition", "p4"], check=True, stdout=subprocess.DEVNULL)
for call in (lambda: session.run("run"), lambda: session.read("x"), lambda: vpod.attach()):
    try:
        call()
    except vpod.Error as error:
        print(error)
)");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  constexpr char kTwice[] = "partition p4 was removed\npartition p4 was removed\n";
  EXPECT_EQ(outcome.out.rfind(kTwice, 0), 0u) << outcome.out;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3) << outcome.out;
}

TEST_F(PythonOnFourIpusTest, AForkedChildLeavesAttachedIpusToItsParent) {
  const Outcome outcome = Run(R"(
import os, vpod
graph = vpod.Graph()
graph.output("y", graph.buffer("x", [3.0], "float32"))
executable = vpod.compile(graph, [vpod.Program("run")])
session, device = vpod.Session(executable, vpod.attach()), vpod.attach()
child = os.fork()
if child == 0:
    calls = [lambda: session.run("run"), lambda: vpod.Session(executable, device), lambda: vpod.attach()]
    for call in calls:
        try:
            call()
        except vpod.Error as error:
            print(error, flush=True)
    session.close()
    del session, device
    os._exit(0)
os.waitpid(child, 0)
print(session.run("run")["y"])
with vpod.Session(executable, device) as other:
    print(other.run("run")["y"])
)");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::regex expected(
      "the session is of process [0-9]+ and cannot be used in a process forked from it: open one "
      "in a process that is not forked\n"
      "the device is of process [0-9]+ and .*\n"
      ".*this process was forked from process [0-9]+, which had connected to a POD, and .*\n"
      "\\[3\\.\\]\n\\[3\\.\\]\n");
  EXPECT_TRUE(std::regex_match(outcome.out, expected)) << outcome.out << outcome.err;
}

// The module's own test makes wrong calls, and right ones in the same process afterwards. Under
// poprun its sessions have IPUs of the POD, which can be used afterwards, too.
TEST_F(PythonOnFourIpusTest, WrongCallsLeaveInterpreterAndPodUsable) {
  const Outcome outcome =
      pod_.Run(UnderPoprun(1, 1,
                           {kPython, "client/python/vpod/vpod_test.py", "WrongCallsTest",
                            "SessionTest.test_an_error_of_the_program_leaves_the_session"}));
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(pod_.Shell("grep 'attach .*python' $VPOD_HOME/vipu-agent.log").code, 0);
  EXPECT_EQ(pod_.AttachedIpus(), 0);
  ExpectLearned(pod_.Run(UnderPoprun(2, 4, kFirst)));
}

}  // namespace
}  // namespace vpod::testing
