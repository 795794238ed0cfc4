// Fault table: poprun, or what it started, is killed. Its job ends on all hosts and the IPUs are
// free.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/system/fault_table.h"

namespace vpod::testing {
namespace {

std::string NameOf(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

// All that a process has started, and those in turn, by pid.
std::map<int, std::string> Descendants(int pid) {
  std::map<int, std::string> found;
  const std::string self = std::to_string(pid);
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  for (int child = 0; file >> child;) {
    found[child] = NameOf(child);
    found.merge(Descendants(child));
  }
  return found;
}

class FaultLauncherTest : public FaultTable {
 protected:
  FaultLauncherTest() { pod_.environment()["POPRUN_LAUNCH_AGENT"] = "local-launch-agent"; }
  // A test that fails leaves nothing behind either.
  ~FaultLauncherTest() override {
    for (const auto& [pid, name] : processes_) {
      if (NameOf(pid) == name) kill(pid, SIGKILL);
    }
  }

  // A job on "mine" by poprun with `options`: 2 instances.
  void StartJob(const std::vector<std::string>& options = {}) {
    std::vector<std::string> words = {"poprun", "--vipu-partition", "mine", "--num-instances",
                                      "2",      "--num-replicas",   "8"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"replica_job", "--runs", "1000000", "--pause-ms", "10"});
    job_ = pod_.Start(words);
    ASSERT_TRUE(job_->WaitForOutput("run 3 loss")) << job_->Err();
    processes_ = Descendants(job_->pid());
    ASSERT_EQ(PidsOf("replica_job").size(), 2u);
  }
  std::set<int> PidsOf(const std::string& name) {
    std::set<int> pids;
    for (const auto& [pid, its_name] : processes_) {
      if (its_name == name) pids.insert(pid);
    }
    return pids;
  }
  void Kill(const std::string& name, int signal = SIGKILL) {
    ASSERT_EQ(PidsOf(name).size(), 1u) << name;
    kill(*PidsOf(name).begin(), signal);
  }
  // Nothing of the job runs any more, and the next one does.
  void ExpectJobGone() {
    EXPECT_TRUE(Within(kSoon, [&] {
      for (const auto& [pid, name] : processes_) {
        if (NameOf(pid) == name) return false;
      }
      return true;
    })) << "processes of the job are left";
    ExpectMineWorks();
  }

  std::unique_ptr<Command> job_;
  std::map<int, std::string> processes_;  // of the job, without poprun
};

TEST_F(FaultLauncherTest, AKilledPoprunTakesItsJobWithIt) {
  StartJob();
  job_->Signal(SIGKILL);
  ExpectJobGone();
}

TEST_F(FaultLauncherTest, AKilledPoprunTakesItsJobWithItOnAllHosts) {
  StartJob({"--host=127.0.0.[2-3]"});
  ASSERT_EQ(PidsOf("orted").size(), 2u);
  job_->Signal(SIGKILL);
  ExpectJobGone();
}

TEST_F(FaultLauncherTest, AStoppedMpirunDoesNotOutliveAKilledPoprun) {
  StartJob();
  kill(*PidsOf("mpirun").begin(), SIGSTOP);
  job_->Signal(SIGKILL);
  ExpectJobGone();
}

TEST_F(FaultLauncherTest, PoprunAndItsWatchdogKilledTogether) {
  StartJob({"--host=127.0.0.[2-3]"});
  job_->Signal(SIGKILL);
  Kill("poprun_watchdog");
  ExpectJobGone();
}

TEST_F(FaultLauncherTest, AnMpirunThatIsToldToEndIsNamed) {
  for (const int signal : {SIGTERM, SIGINT}) {
    StartJob();
    Kill("mpirun", signal);
    const Outcome outcome = job_->Wait(kSoon);
    EXPECT_NE(outcome.code, 0);
    EXPECT_NE(outcome.err.find("poprun: error: mpirun was told to end, and ended all instances\n"),
              std::string::npos)
        << outcome.err;
    EXPECT_EQ(outcome.err.find("poprun: error: instance"), std::string::npos) << outcome.err;
    ExpectJobGone();
  }
}

TEST_F(FaultLauncherTest, AKilledMpirunIsNamedAndLeavesNothing) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"--host=127.0.0.[2-3]"}}) {
    StartJob(options);
    Kill("mpirun");
    const Outcome outcome = job_->Wait(kSoon);
    EXPECT_EQ(outcome.code, 137);
    EXPECT_NE(outcome.err.find("poprun: error: mpirun was killed by signal 9"), std::string::npos)
        << outcome.err;
    ExpectJobGone();
  }
}

TEST_F(FaultLauncherTest, AKilledWatchdogLeavesNoFiles) {
  StartJob();
  // The directories that mpirun and the instances were told to use.
  std::vector<std::string> directories;
  std::ifstream environment("/proc/" + std::to_string(*PidsOf("replica_job").begin()) + "/environ");
  for (std::string entry; std::getline(environment, entry, '\0');) {
    const std::string value = entry.substr(entry.find('=') + 1);
    if (value.find("/poprun-") != std::string::npos && std::filesystem::is_directory(value))
      directories.push_back(value);
  }
  EXPECT_GE(directories.size(), 2u);
  Kill("poprun_watchdog");
  EXPECT_EQ(job_->Wait(kSoon).code, 137);
  for (const std::string& directory : directories)
    EXPECT_FALSE(std::filesystem::exists(directory)) << directory;
  ExpectJobGone();
}

// An instance comes to attach after its poprun has died. A stopped mpirun leaves it ten seconds for
// that, otherwise it has one.
TEST_F(FaultLauncherTest, AnInstanceDoesNotAttachAfterItsPoprunDied) {
  const std::string folder = pod_.directory() + "/job";
  ASSERT_EQ(pod_.Shell("mkdir " + folder).code, 0);
  job_ =
      pod_.Start({"poprun", "--vipu-partition", "mine", "--num-instances", "2", "--num-replicas",
                  "8", "sh", "-c",
                  "cd " + folder + "; i=$OMPI_COMM_WORLD_RANK; echo $$ >pid.$i; " +
                      "until [ -e go ]; do sleep 0.02; done; " +
                      "replica_job --runs 1000000 --pause-ms 10 >out.$i 2>&1; echo $? >code.$i"});
  ASSERT_TRUE(Within(kSoon, [&] {
    return pod_.Shell("[ -s " + folder + "/pid.0 -a -s " + folder + "/pid.1 ]").code == 0;
  })) << job_->Err();
  processes_ = Descendants(job_->pid());
  kill(*PidsOf("mpirun").begin(), SIGSTOP);
  job_->Signal(SIGKILL);
  // Its children are another's then.
  ASSERT_TRUE(Within(kSoon, [&] { return Descendants(job_->pid()).empty(); }));
  ASSERT_EQ(pod_.Shell("touch " + folder + "/go").code, 0);
  for (const char* number : {"0", "1"}) {
    const std::string path = folder + "/code." + number;
    EXPECT_TRUE(Within(kSoon, [&] { return std::ifstream(path).peek() > 0; }));
    const Outcome said = pod_.Shell("cat " + folder + "/out." + number);
    EXPECT_NE(said.out.find("has ended"), std::string::npos) << said.out;
    EXPECT_EQ(said.out.find("run 0 loss"), std::string::npos) << said.out;
  }
  // Also while they are still there, they are in nobody's way.
  ExpectMineWorks();
  ExpectJobGone();
}

TEST_F(FaultLauncherTest, PoprunItsWatchdogAndMpirunKilledTogether) {
  StartJob();
  job_->Signal(SIGKILL);
  Kill("poprun_watchdog");
  Kill("mpirun");
  ExpectJobGone();
}

// Programs that use MPI: their shared memory has names.
TEST_F(FaultLauncherTest, AKilledMpirunLeavesNoNamedMemory) {
  job_ = pod_.Start({"poprun", "--vipu-partition", "mine", "--num-instances", "2", "--num-replicas",
                     "8", "replica_job", "--in-step", "--runs", "1000000", "--pause-ms", "10"});
  ASSERT_TRUE(job_->WaitForOutput("run 3 loss")) << job_->Err();
  processes_ = Descendants(job_->pid());
  std::set<std::string> files;
  for (const int pid : PidsOf("replica_job")) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      const size_t at = line.find("/dev/shm/");
      if (at != std::string::npos && line.find("(deleted)") == std::string::npos)
        files.insert(line.substr(at));
    }
  }
  ASSERT_FALSE(files.empty()) << "the program uses no named shared memory";
  Kill("mpirun");
  EXPECT_EQ(job_->Wait(kSoon).code, 137);
  for (const std::string& file : files) {
    EXPECT_TRUE(Within(kSoon, [&] { return !std::ifstream(file).good(); })) << file;
    const std::string folder = file.substr(0, file.rfind('/'));
    if (folder != "/dev/shm") {
      EXPECT_FALSE(std::ifstream(folder).good()) << folder;
    }
  }
  ExpectJobGone();
}

}  // namespace
}  // namespace vpod::testing
