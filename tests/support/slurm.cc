#include "tests/support/slurm.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <regex>

#include "device/base/file.h"

namespace vpod::testing {
namespace {

constexpr std::chrono::seconds kSlurmTakes(60);  // at most

namespace fs = std::filesystem;

constexpr char kInstalled[] = "/usr/share/virtual-ipu-pod/slurm/";
constexpr const char* kDaemons[] = {"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"};

void WriteFile(const std::string& path, const std::string& text, mode_t mode = 0644) {
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
}

std::string RandomKey() {
  std::random_device random;
  std::string key;
  while (key.size() < 1024) key += static_cast<char>(random());
  return key;
}

// Whether the directory has cgroups of version 2, or the tmpfs around those of version 1. Without
// them no slurmd starts, whatever its configuration.
bool HasCgroups(const std::string& directory) {
  struct statfs file_system;
  return statfs(directory.c_str(), &file_system) == 0 &&
         (file_system.f_type == CGROUP2_SUPER_MAGIC || file_system.f_type == TMPFS_MAGIC);
}

}  // namespace

std::string WhyNoSlurm(const std::string& cgroups) {
  for (const char* daemon : kDaemons) {
    if (access(daemon, X_OK) != 0)
      return std::string("there is no ") + daemon + "; see deploy/packages-test.txt";
  }
  if (!HasCgroups(cgroups)) return cgroups + " has no cgroup file system, which slurmd needs";
  return geteuid() == 0 ? "" : "slurmd starts jobs for their owners, which takes root";
}

SlurmSite::SlurmSite(TestPod& pod, const std::string& example, int hosts,
                     const std::string& host_options, const std::string& partition_options,
                     const std::string& cluster)
    : pod_(pod),
      directory_(pod.directory() + "/slurm-" + cluster),
      cluster_(cluster),
      hosts_(hosts) {
  for (const char* name : {"state", "spool", "scripts", "gres"})
    fs::create_directories(directory_ + "/" + name);
  WriteFiles(example, host_options, partition_options);
  StartDaemons();
}

void SlurmSite::WriteFiles(const std::string& example, const std::string& host_options,
                           const std::string& partition_options) {
  // The scripts, with settings of this site.
  WriteFile(directory_ + "/slurm.env", "export PATH='" + pod_.environment()["PATH"] +
                                           "'\nexport SLURM_CONF=" + directory_ +
                                           "/slurm.conf\nIPUOF_VIPU_API_HOST=127.0.0.1\n"
                                           "IPUOF_VIPU_API_PORT=" +
                                           std::to_string(pod_.port()) +
                                           "\nVIPU_IPUS_PER_HOST=2\n"
                                           "VIPU_CREATE_OPTIONS=--reconfigurable\n"
                                           "VIPU_CLI_API_USER_ID=$SLURM_JOB_USER\n");
  for (const char* name : {"prolog", "epilog", "task-prolog", "task-prolog-gres", "remove-orphans"})
    WriteScript(name);
  // Settings of the site's administrator, then those for a Slurm of its own on one machine.
  std::string text = std::regex_replace(base::ReadFile(Program("deploy/slurm/" + example)),
                                        std::regex(kInstalled), directory_ + "/scripts/");
  const auto set = [&](const std::string& name, const std::string& value) {
    text += name + "=" + value + "\n";
  };
  set("ClusterName", cluster_);
  set("SlurmctldHost", "localhost");
  set("SlurmctldPort", std::to_string(FreePort()));
  set("SlurmUser", "root");
  set("AuthType", "auth/munge");
  set("AuthInfo", "socket=" + directory_ + "/munge.socket");
  set("StateSaveLocation", directory_ + "/state");
  set("SlurmdSpoolDir", directory_ + "/spool/%n");
  set("SlurmctldPidFile", directory_ + "/slurmctld.pid");
  set("SlurmdPidFile", directory_ + "/slurmd-%n.pid");
  set("ProctrackType", "proctrack/linuxproc");
  set("TaskPlugin", "task/none");
  set("MpiDefault", "none");
  set("ReturnToService", "2");
  // By default waiting jobs are looked at each minute, and ended ones are forgotten after five.
  set("MinJobAge", "3600");
  set("SchedulerParameters",
      "sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1");
  for (int i = 1; i <= hosts_; ++i) {
    const std::string name = "n" + std::to_string(i);
    fs::create_directories(directory_ + "/spool/" + name);
    text += "NodeName=" + name +
            " NodeHostname=localhost NodeAddr=127.0.0.1 Port=" + std::to_string(FreePort()) +
            " CPUs=2 State=UNKNOWN " + host_options + "\n";
  }
  text += "PartitionName=ipu Nodes=ALL Default=YES MaxTime=INFINITE State=UP " + partition_options +
          "\n";
  WriteFile(directory_ + "/slurm.conf", text);
  WriteFile(directory_ + "/gres.conf",
            "NodeName=n1 Name=vipu Type=2 File=" + directory_ + "/gres/vipu2_[0-1]\n");
  for (const char* name : {"vipu2_0", "vipu2_1"}) WriteFile(directory_ + "/gres/" + name, "");
}

void SlurmSite::WriteScript(const std::string& name, const std::string& before) {
  WriteFile(directory_ + "/scripts/" + name,
            "#!/bin/sh\n" + before + "\nexport VIPU_SLURM_SETTINGS=" + directory_ +
                "/slurm.env\nexec " + Program("deploy/slurm/" + name) + "\n",
            0755);
}

std::unique_ptr<Command> SlurmSite::Start(const std::vector<std::string>& words) {
  std::vector<std::string> command = {"env", "SLURM_CONF=" + directory_ + "/slurm.conf"};
  command.insert(command.end(), words.begin(), words.end());
  return pod_.Start(command);
}

void SlurmSite::StartDaemons() {
  WriteFile(directory_ + "/munge.key", RandomKey(), 0600);
  daemons_.push_back(pod_.Start(
      {kDaemons[0], "--foreground", "--force", "--key-file", directory_ + "/munge.key", "--socket",
       directory_ + "/munge.socket", "--pid-file", directory_ + "/munge.pid", "--log-file",
       directory_ + "/munge.log", "--seed-file", directory_ + "/munge.seed"}));
  ASSERT_TRUE(Within(kSlurmTakes, [&] { return fs::exists(directory_ + "/munge.socket"); }))
      << daemons_[0]->Err();
  daemons_.push_back(Start({kDaemons[1], "-D"}));
  for (int i = 1; i <= hosts_; ++i)
    daemons_.push_back(Start({kDaemons[2], "-D", "-N", "n" + std::to_string(i)}));
  ASSERT_TRUE(
      Within(kSlurmTakes,
             [&] {
               const std::string states = Run({"sinfo", "--noheader", "--Node", "-o", "%T"}).out;
               std::string wanted;
               for (int i = 0; i < hosts_; ++i) wanted += "idle\n";
               return states == wanted;
             }))
      << Run({"sinfo"}).out << daemons_[1]->Err() << daemons_[2]->Err();
}

SlurmSite::~SlurmSite() {
  // slurmd's helpers of running jobs are in sessions of their own.
  Run({"scancel", "--user=root"});
  EXPECT_TRUE(Within(kSlurmTakes, [&] {
    return Run({"squeue", "--noheader"}).out.empty();
  })) << Run({"squeue"}).out;
  const bool failed = ::testing::Test::HasFailure();
  for (auto daemon = daemons_.rbegin(); daemon != daemons_.rend(); ++daemon) {
    (*daemon)->Signal(SIGTERM);
    const Outcome outcome = (*daemon)->Wait(std::chrono::seconds(30));
    if (failed) fprintf(stderr, "--- daemon of Slurm\n%s\n", outcome.err.c_str());
  }
}

Outcome SlurmSite::Run(const std::vector<std::string>& words) {
  return Start(words)->Wait(std::chrono::seconds(120));
}

std::string SlurmSite::Submit(const std::vector<std::string>& options, const std::string& script) {
  const std::string path = directory_ + "/job.sh";
  WriteFile(path, "#!/bin/bash\n" + script + "\n");
  std::vector<std::string> words = {"sbatch",   "--parsable", "--chdir",
                                    directory_, "--output",   directory_ + "/%j.out"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back(path);
  const Outcome outcome = Run(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.out.substr(0, outcome.out.find('\n'));
}

std::string SlurmSite::Output(const std::string& job) const {
  return base::ReadFile(directory_ + "/" + job + ".out");
}

std::string SlurmSite::Field(const std::string& job, const std::string& field) {
  const std::string text = Run({"scontrol", "show", "job", job}).out;
  std::smatch match;
  return std::regex_search(text, match,
                           std::regex("(^|\\s)" + field + "=(.*?)( [A-Za-z/:]+=|\\s*\\n)"))
             ? match[2].str()
             : "";
}

bool SlurmSite::Reaches(const std::string& job, const std::string& state) {
  return Within(std::chrono::seconds(120), [&] { return Field(job, "JobState") == state; });
}

Outcome SlurmSite::RunScript(const std::string& name, const std::string& job,
                             const std::string& user, int hosts) {
  return Run({"env", "SLURM_JOB_ID=" + job, "SLURM_JOB_USER=" + user,
              "SLURM_JOB_NUM_NODES=" + std::to_string(hosts), directory_ + "/scripts/" + name});
}

}  // namespace vpod::testing
