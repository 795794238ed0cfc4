// Commands interrupted at any moment: nothing is left half done, or the next command finishes it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

// How many moments are tried, half of them with each kind of POD.
int Interruptions() {
  const char* all = std::getenv("VPOD_TEST_INTERRUPTIONS");
  return all == nullptr ? 16 : std::atoi(all);
}

Words UpWords(const TestPod& pod, const Words& kind) {
  return Words{"vpod", "up", "--memory-limit", "2048", "--api-port", std::to_string(pod.port())} +
         kind;
}

// All daemons run, all machines are up, and the cluster can give a partition.
void ExpectWhole(TestPod& pod, const std::string& what) {
  const Outcome status = pod.Run({"vpod", "status"});
  EXPECT_EQ(status.code, 0) << what << "\n" << status.out;
  const Outcome doctor = pod.Run({"vpod", "doctor"});
  EXPECT_EQ(doctor.code, 0) << what << "\n" << doctor.out;
  const Outcome create = pod.Run({"vipu-admin", "create", "partition", "all", "--size", "8"});
  EXPECT_EQ(create.code, 0) << what << "\n" << create.out << create.err;
}

// A wait of given length is the point of this test: nothing tells where `vpod up` is.
void InterruptAfter(TestPod& pod, const Words& words, microseconds delay, int signal) {
  const auto up = pod.Start(words);
  std::this_thread::sleep_for(delay);
  kill(up->pid(), signal);
  up->Wait();
}

class InterruptedUpTest : public ::testing::TestWithParam<std::string> {};

TEST_P(InterruptedUpTest, TheNextUpEndsWithAWholePod) {
  const Words kind = {"--pod", "8", "--agents", GetParam()};
  std::mt19937 random(std::random_device{}());
  microseconds whole{0};
  for (int i = 0; i <= Interruptions() / 2; ++i) {
    TestPod pod(0);
    const Words up = UpWords(pod, kind);
    if (whole.count() == 0) {
      const auto begin = Clock::now();
      ASSERT_EQ(pod.Run(up).code, 0);
      whole = std::chrono::duration_cast<microseconds>(Clock::now() - begin);
      continue;
    }
    const microseconds delay(std::uniform_int_distribution<int64_t>(0, whole.count())(random));
    const int signal = i % 2 == 0 ? SIGINT : SIGKILL;
    InterruptAfter(pod, up, delay, signal);
    const Outcome next = pod.Run(up);
    const std::string what = "signal " + std::to_string(signal) + " after " +
                             std::to_string(delay.count()) + " of " +
                             std::to_string(whole.count()) + " us";
    ASSERT_EQ(next.code, 0) << what << "\n" << next.err;
    ExpectWhole(pod, what);
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(, InterruptedUpTest, ::testing::Values("one", "processes"),
                         [](const auto& info) { return info.param; });

// A client that finds the partition finds its IPUoF file, too.
TEST(InterruptedCreateTest, APartitionHasItsFile) {
  TestPod pod(4);
  const Words create = {"vipu", "create", "partition", "p", "--size", "4"};
  const std::string file = pod.home() + "/ipuof.conf.d/p.conf";
  const auto exists = [&] { return pod.Run({"vipu", "get", "partition", "p"}).code == 0; };
  auto begin = Clock::now();
  ASSERT_EQ(pod.Run(create).code, 0);
  const auto whole = std::chrono::duration_cast<microseconds>(Clock::now() - begin);
  ASSERT_EQ(pod.Run({"vipu", "remove", "partition", "p"}).code, 0);
  std::mt19937 random(std::random_device{}());
  int made = 0;
  for (int i = 0; i < 2 * Interruptions(); ++i) {
    const microseconds delay(std::uniform_int_distribution<int64_t>(0, whole.count())(random));
    InterruptAfter(pod, create, delay, SIGINT);
    ASSERT_EQ(exists(), std::filesystem::exists(file)) << delay.count() << " us";
    if (!exists()) continue;
    ++made;
    ASSERT_EQ(pod.Run({"vipu", "remove", "partition", "p"}).code, 0);
  }
  std::printf("%d of %d interrupted commands made the partition\n", made, 2 * Interruptions());
}

// Leaves the POD of an `up` that was interrupted before it made the cluster.
void MakeUnfinished(TestPod& pod) {
  ASSERT_EQ(pod.Run({"vipu-admin", "remove", "cluster", "c8"}).code, 0);
  ASSERT_EQ(pod.Run({"vipu-admin", "remove", "agent", "ag1"}).code, 0);
  const std::string path = pod.home() + "/pod.json";
  nlohmann::json shape = nlohmann::json::parse(std::ifstream(path));
  shape["unfinished"] = true;
  std::ofstream(path) << shape;
}

TEST(UnfinishedPodTest, StatusAndDoctorTellWhatIsMissing) {
  TestPod pod(8, {"--agents", "processes"});
  MakeUnfinished(pod);
  const Outcome status = pod.Run({"vpod", "status"});
  EXPECT_EQ(status.code, 1);
  EXPECT_NE(status.out.find("| in part: the POD has not been set up; 'vpod up' starts the rest"),
            std::string::npos)
      << status.out;
  const Outcome doctor = pod.Run({"vpod", "doctor"});
  EXPECT_EQ(doctor.code, 1);
  EXPECT_NE(doctor.out.find("FAIL the POD has not been set up - 'vpod up' finishes"),
            std::string::npos)
      << doctor.out;
  const int server = pod.ServerPid(), agent = pod.AgentPid();
  const Outcome up = pod.Run({"vpod", "up"});
  EXPECT_EQ(up.code, 0) << up.err;
  EXPECT_EQ(up.out.rfind("POD8 is up: 2 machines", 0), 0u) << up.out;
  EXPECT_EQ(pod.ServerPid(), server);
  EXPECT_EQ(pod.AgentPid(), agent);
  ExpectWhole(pod, "finished");
}

TEST(UnfinishedPodTest, AgentsThatAreStillNeededKeepTheirAddresses) {
  TestPod pod(8, {"--agents", "processes"});
  MakeUnfinished(pod);
  EXPECT_TRUE(EndProcess(pod.AgentPid(), SIGKILL));
  const Outcome up = pod.Run({"vpod", "up"});
  EXPECT_EQ(up.code, 0) << up.err;
  ExpectWhole(pod, "finished");
}

}  // namespace
}  // namespace vpod::testing
