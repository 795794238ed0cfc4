// A real Slurm on this machine for a test: munged, slurmctld and slurmds of their own, with their
// own ports, key and directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/pod.h"

namespace vpod::testing {

// Empty when a SlurmSite can run here, else why not.
std::string WhyNoSlurm(const std::string& cgroups = "/sys/fs/cgroup");

class SlurmSite {
 public:
  // Hosts n1, n2, … of 2 CPUs in one partition, beside `pod`. `example` is the file of deploy/slurm
  // with the site's slurm.conf, `host_options` and `partition_options` are added to its lines; each
  // host has 2 IPUs. Sites beside one POD have `cluster` names of their own.
  SlurmSite(TestPod& pod, const std::string& example, int hosts,
            const std::string& host_options = "", const std::string& partition_options = "",
            const std::string& cluster = "test");
  // Cancels what runs and stops the daemons.
  ~SlurmSite();

  // Runs a command with Slurm's and the POD's environment.
  Outcome Run(const std::vector<std::string>& words);
  // Submits a job script; returns the job's id. Its output is in Output(id).
  std::string Submit(const std::vector<std::string>& options, const std::string& script);
  std::string Output(const std::string& job) const;
  // Name of the partition that the scripts make for a job.
  std::string PartitionOf(const std::string& job) const { return "slurm_" + cluster_ + "_" + job; }
  // Value of a field of `scontrol show job`, such as JobState.
  std::string Field(const std::string& job, const std::string& field);
  bool Reaches(const std::string& job, const std::string& state);
  // Runs one of the scripts of deploy/slurm the way Slurm does.
  Outcome RunScript(const std::string& name, const std::string& job, const std::string& user,
                    int hosts);
  // Has Slurm run a script of deploy/slurm after some lines of shell.
  void WriteScript(const std::string& name, const std::string& before = "");

 private:
  void WriteFiles(const std::string& example, const std::string& host_options,
                  const std::string& partition_options);
  void StartDaemons();
  std::unique_ptr<Command> Start(const std::vector<std::string>& words);

  TestPod& pod_;
  const std::string directory_, cluster_;
  const int hosts_;
  std::vector<std::unique_ptr<Command>> daemons_;
};

}  // namespace vpod::testing
