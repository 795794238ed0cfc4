// Fault table: an instance ends on its own. poprun names the one that ended first, whenever that
// was: before it had IPUs, before others had theirs, before its program ran at all, and in jobs
// without IPUs. Instances that mpirun ends afterwards are not taken for the cause.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

constexpr int kInstances = 4;

std::vector<int> ChildrenOf(int pid) {
  const std::string self = std::to_string(pid);
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  return {std::istream_iterator<int>(file), std::istream_iterator<int>()};
}

std::string NameOf(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// The first descendant of that name; 0 when there is none.
int FindDescendant(int pid, const std::string& name) {
  for (const int child : ChildrenOf(pid)) {
    if (NameOf(child) == name) return child;
    if (const int found = FindDescendant(child, name); found != 0) return found;
  }
  return 0;
}

class FaultInstanceTest : public FaultTable {
 protected:
  FaultInstanceTest() {
    pod_.environment()["POPRUN_LAUNCH_AGENT"] = "local-launch-agent";
    Run("mkdir " + folder_);
  }

  void Run(const std::string& script) { ASSERT_EQ(pod_.Shell(script).code, 0) << script; }

  // Four instances on "mine", two IPUs each. The instances are shells that run `script`, in which
  // $i is their number, and then the program. `go` in it waits for Go().
  std::unique_ptr<Command> Start(const std::string& script, const Words& options = {}) {
    const std::string number = std::to_string(kInstances);
    const std::string prologue = "i=$OMPI_COMM_WORLD_RANK; echo $$ >" + folder_ + "/pid.$i; " +
                                 "go() { until [ -e " + folder_ + "/go ]; do sleep 0.02; done; }; ";
    return pod_.Start(Words{"poprun"} + options + Words{"--num-instances", number} +
                      Words{"--num-replicas", "8", "sh", "-c", prologue + script});
  }
  static std::string Program() { return "exec replica_job --runs 1000000 --pause-ms 10"; }
  Words OnMine() { return {"--vipu-partition", "mine"}; }
  void Go() { std::ofstream(folder_ + "/go") << "\n"; }
  void TakeBack() { Run("rm -f " + folder_ + "/*"); }

  int PidOf(int instance) {
    int pid = 0;
    Within(kSoon, [&] {
      std::ifstream(folder_ + "/pid." + std::to_string(instance)) >> pid;
      return pid != 0;
    });
    return pid;
  }
  int AttachedOnMine() {
    const Outcome outcome = pod_.Run({"gc-monitor", "--all-partitions", "-j"});
    const auto json = nlohmann::json::parse(outcome.out, nullptr, false);
    if (!json.is_object()) return -1;
    int attached = 0;
    for (const auto& card : json["cards"]) {
      if (card["Partition"] != "mine") continue;
      for (const auto& ipu : card["ipus"]) attached += ipu.contains("PID");
    }
    return attached;
  }

  // poprun names that instance, and no other, in one line that ends as `how`.
  static void ExpectNamed(const Outcome& outcome, int instance, int pid, const std::string& how) {
    std::string named;
    std::istringstream lines(outcome.err);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("poprun: error: instance", 0) == 0) named += line + "\n";
    }
    const std::string begin = "poprun: error: instance " + std::to_string(instance) + " (" +
                              (pid == 0 ? "" : "pid " + std::to_string(pid) + ", ");
    EXPECT_EQ(named.rfind(begin, 0), 0u) << "named: " << named << "expected: " << begin << "\n"
                                         << outcome.err;
    EXPECT_EQ(std::count(named.begin(), named.end(), '\n'), 1) << named;
    if (!how.empty()) {
      EXPECT_NE(named.find(") " + how + "\n"), std::string::npos) << named;
    }
  }

  const std::string folder_ = pod_.directory() + "/job";
};

TEST_F(FaultInstanceTest, KilledBeforeItAttachesWhileOthersHaveIpus) {
  for (const Words& options : {OnMine(), OnMine() + Words{"--host=127.0.0.[2-3]"}}) {
    const auto job = Start("[ $i = 2 ] && { go; kill -9 $$; }; " + Program(), options);
    ASSERT_TRUE(Within(kSoon, [&] { return AttachedOnMine() == 6; })) << job->Err();
    const int pid = PidOf(2);
    Go();
    const Outcome outcome = job->Wait(kSoon);
    EXPECT_EQ(outcome.code, 137) << outcome.err;
    ExpectNamed(outcome, 2, pid, "was killed by signal 9");
    TakeBack();
  }
  ExpectMineWorks();
}

// mpirun lets the others go on, which wait for it.
TEST_F(FaultInstanceTest, EndsWithoutAnErrorBeforeItAttachesWhileOthersHaveIpus) {
  const auto job = Start("[ $i = 2 ] && { go; exit 0; }; " + Program(), OnMine());
  ASSERT_TRUE(Within(kSoon, [&] { return AttachedOnMine() == 6; })) << job->Err();
  const std::string name = "instance 2 (pid " + std::to_string(PidOf(2)) + " on ";
  Go();
  const Outcome outcome = job->Wait(kSoon);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find(name), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(") ended before it joined the job"), std::string::npos) << outcome.err;
  TakeBack();
  ExpectMineWorks();
}

TEST_F(FaultInstanceTest, EndsWithAnErrorBeforeItAttachesWhileOthersHaveIpus) {
  const auto job = Start("[ $i = 3 ] && { go; exit 3; }; " + Program(), OnMine());
  ASSERT_TRUE(Within(kSoon, [&] { return AttachedOnMine() == 6; })) << job->Err();
  const int pid = PidOf(3);
  Go();
  const Outcome outcome = job->Wait(kSoon);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  ExpectNamed(outcome, 3, pid, "ended with exit code 3");
  ExpectMineWorks();
}

TEST_F(FaultInstanceTest, KilledBeforeAnyInstanceAttaches) {
  const auto job = Start("[ $i = 1 ] && { go; kill -9 $$; }; sleep 60", OnMine());
  for (int i = 0; i < kInstances; ++i) ASSERT_NE(PidOf(i), 0) << job->Err();
  const int pid = PidOf(1);
  Go();
  const Outcome outcome = job->Wait(kSoon);
  EXPECT_EQ(outcome.code, 137) << outcome.err;
  ExpectNamed(outcome, 1, pid, "was killed by signal 9");
  ExpectMineWorks();
}

TEST_F(FaultInstanceTest, KilledInAJobWithoutIpus) {
  const auto job = Start("[ $i = 2 ] && { go; kill -11 $$; }; sleep 60", {"--offline-mode=yes"});
  for (int i = 0; i < kInstances; ++i) ASSERT_NE(PidOf(i), 0) << job->Err();
  const int pid = PidOf(2);
  Go();
  const Outcome outcome = job->Wait(kSoon);
  EXPECT_EQ(outcome.code, 139) << outcome.err;
  ExpectNamed(outcome, 2, pid, "was killed by signal 11");
}

// mpirun blames any of them: it asks the kernel which children have ended, and gets them by pid.
TEST_F(FaultInstanceTest, OthersThatLeaveBecauseOfItAreNotBlamed) {
  const std::string lock = folder_ + "/lock", held = folder_ + "/held";
  const auto job =
      Start("[ $i = 3 ] && { exec 9>" + lock + "; flock 9; echo >" + held +
                "; go; kill -9 $$; }; until [ -e " + held + " ]; do sleep 0.02; done; echo >" +
                folder_ + "/waits.$i; flock -s " + lock + " sleep 0.1; exit 5",
            {"--offline-mode=yes"});
  ASSERT_TRUE(Within(kSoon, [&] {
    return pod_.Shell("[ $(ls " + folder_ + "/waits.* | wc -l) = 3 ]").code == 0;
  })) << job->Err();
  const int pid = PidOf(3);
  Go();
  const Outcome outcome = job->Wait(kSoon);
  EXPECT_NE(outcome.code, 0);
  ExpectNamed(outcome, 3, pid, "was killed by signal 9");
}

// Kills the process that is there by then: mpirun's child, the supervisor or the program. mpirun
// does not name an instance that ends while others are still being started.
TEST_F(FaultInstanceTest, KilledAsSoonAsItIsThere) {
  for (int round = 0; round < 2 * kInstances; ++round) {
    const int instance = round % kInstances;
    const auto job = Start(Program(), OnMine());
    int pid = 0;
    const auto end = std::chrono::steady_clock::now() + kSoon;
    while (pid == 0 && std::chrono::steady_clock::now() < end) {
      const int mpirun = FindDescendant(job->pid(), "mpirun");
      if (mpirun == 0) continue;
      // They are started one after the other.
      const std::vector<int> children = ChildrenOf(mpirun);
      if (children.size() > static_cast<size_t>(instance)) pid = children[instance];
    }
    ASSERT_NE(pid, 0) << job->Err();
    kill(pid, SIGKILL);
    const Outcome outcome = job->Wait(kSoon);
    EXPECT_EQ(outcome.code, 137) << outcome.err;
    // The supervisors of several may be ended before they can say anything.
    if (outcome.err.find("an instance was lost before its program ran") == std::string::npos)
      ExpectNamed(outcome, instance, 0, "");
    TakeBack();
  }
  ExpectMineWorks();
}

// VPOD_KILLS=100 kills that many. VPOD_SEED repeats a run.
TEST_F(FaultInstanceTest, KilledAtARandomMoment) {
  const char* kills = std::getenv("VPOD_KILLS");
  const char* seed_text = std::getenv("VPOD_SEED");
  const unsigned seed = seed_text == nullptr ? std::random_device()() : std::stoul(seed_text);
  std::mt19937 random(seed);
  SCOPED_TRACE("VPOD_SEED=" + std::to_string(seed));
  for (int round = 0; round < (kills == nullptr ? 10 : std::stoi(kills)); ++round) {
    const int instance = static_cast<int>(random() % kInstances);
    const auto job = Start(Program(), OnMine());
    const int pid = PidOf(instance);
    ASSERT_NE(pid, 0) << job->Err();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 800000));
    kill(pid, SIGKILL);
    const Outcome outcome = job->Wait(kSoon);
    EXPECT_EQ(outcome.code, 137) << outcome.err;
    ExpectNamed(outcome, instance, pid, "was killed by signal 9");
    TakeBack();
  }
  ExpectMineWorks();
}

}  // namespace
}  // namespace vpod::testing
