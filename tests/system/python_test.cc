// The first program in Python, in its own process and as a job of poprun.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

const std::vector<std::string> kFirst = {"/usr/bin/python3",
                                         "client/examples/first_program/first.py"};

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
  std::vector<std::string> words = {"poprun", "--num-instances", "4", "--num-replicas", "16"};
  words.insert(words.end(), kFirst.begin(), kFirst.end());
  ExpectLearned(pod.Run(words));
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

// A mistake in the program ends the job with Python's traceback, and the IPUs are free.
TEST(PythonTest, AnExceptionEndsTheJob) {
  TestPod pod(4, {}, Environment());
  pod.CreatePartition("p4", 4);
  const Outcome outcome =
      pod.Run({"poprun", "--num-instances", "2", "--num-replicas", "4", "/usr/bin/python3", "-c",
               "import vpod; device = vpod.attach(replicas=2); vpod.Graph().input('x', [-1])"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("ValueError: "), std::string::npos) << outcome.err;
  EXPECT_EQ(pod.AttachedIpus(), 0);
}

}  // namespace
}  // namespace vpod::testing
