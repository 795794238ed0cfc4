#include "client/launch/launch.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/launch/hosts.h"
#include "client/launch/instance_reports.h"
#include "client/launch/job_failure.h"
#include "client/launch/layout.h"
#include "client/launch/log.h"
#include "client/launch/mpirun.h"
#include "client/launch/mpirun_command.h"
#include "client/launch/numa.h"
#include "client/launch/options.h"
#include "client/launch/partition.h"
#include "client/launch/supervisor.h"
#include "client/launch/version.h"
#include "client/launch/words.h"
#include "client/render/completion.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/exit_code.h"
#include "device/base/interruption.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::launch {
namespace {

namespace fs = std::filesystem;

constexpr char kNumaWrapper[] = "poprun_numa_wrapper";

int Fail(absl::string_view message, int code) {
  std::fprintf(stderr, "poprun: error: %s\n", base::OneLine(message).c_str());
  return code;
}

int Fail(const absl::Status& status) { return Fail(status.message(), base::ExitCode(status)); }

// As the shell would find it.
std::string FindInPath(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    std::error_code error;
    return access(program.c_str(), X_OK) == 0 && !fs::is_directory(program, error) ? program : "";
  }
  for (absl::string_view directory : absl::StrSplit(vipu::Environment("PATH"), ':')) {
    const std::string path = absl::StrCat(directory.empty() ? "." : directory, "/", program);
    std::error_code error;
    if (access(path.c_str(), X_OK) == 0 && !fs::is_directory(path, error)) return path;
  }
  return "";
}

// Binding needs more than one NUMA node to have an effect; of other hosts their wrapper knows.
bool NeedsNumaWrapper(const Options& options, const Layout& layout, const Log& log) {
  if (options.process_placement == "disabled" || layout.instances_per_host() == 1 ||
      (!layout.hosts_given && ReadNumaNodes().size() < 2)) {
    return false;
  }
  if (!FindInPath(kNumaWrapper).empty()) return true;
  log.Warning(absl::StrCat(kNumaWrapper, " is not in PATH; instances are not bound to NUMA nodes"));
  return false;
}

// Lets instances find the access key. Instances on this host inherit it, since it may come from a
// file that they do not read; the environment keeps it out of command lines and logs. Instances on
// other hosts read it from the user's file on their host, because mpirun's messages are not
// encrypted.
void PassAccessKeyOn(const Layout& layout, const vipu::ClientConfig& server, const Log& log) {
  const std::string file = vipu::Environment("VIPU_CLI_CONFIG");
  if (server.access_key.empty() || file.empty() || !layout.hosts_given) {
    unsetenv("VIPU_CLI_CONFIG");  // not needed; other hosts may not have it
  } else {
    setenv("VIPU_CLI_CONFIG", fs::absolute(file).c_str(), 1);
  }
  if (server.access_key.empty()) return;
  if (!layout.hosts_given) {
    setenv(kAccessKeyVariable, server.access_key.c_str(), 1);
  } else if (!vipu::Environment(kAccessKeyVariable).empty()) {
    log.Warning(absl::StrCat(kAccessKeyVariable,
                             " is not passed on to hosts; instances read the access key from "
                             "~/.vipu.hcl, or the file that VIPU_CLI_CONFIG names, on their host"));
  }
}

// Sets the variables that instances here inherit and MpirunArguments sends to other hosts. poprun
// chooses the partition, not a file in the caller's environment.
void SetJobEnvironment(const std::string& job_id, const vipu::ClientConfig& server) {
  setenv("VPOD_JOB_ID", job_id.c_str(), 1);
  unsetenv("IPUOF_CONFIG_PATH");
  unsetenv(vipu::kOfflineVariable);
  setenv("VIPU_CLI_API_USER_ID", server.user_id.c_str(), 1);
  if (server.tls.has_value()) {
    const base::TlsFiles& files = server.tls->files;
    for (const auto& [name, path] : {std::pair("VIPU_CLI_TLS_CA", files.ca),
                                     {"VIPU_CLI_TLS_CERT", files.certificate},
                                     {"VIPU_CLI_TLS_KEY", files.key}}) {
      setenv(name, std::filesystem::absolute(path).c_str(), 1);
    }
  }
}

// Has mpirun and its daemons exchange heartbeats, so that a host that is cut off ends the job
// within seconds. TCP sends none while data is on its way, but tries again for many minutes; then
// the loss of IPUs ends the job (kDeviceLostSignal). Values set by the caller stay.
void WatchHosts() {
  for (const auto& [name, value] : {std::make_pair("time", "2"), {"intvl", "1"}, {"probes", "3"}}) {
    setenv(absl::StrCat("OMPI_MCA_oob_tcp_keepalive_", name).c_str(), value, 0);
  }
}

// The same for a job without IPUs, which has no variables of a partition.
void SetOfflineEnvironment(const std::string& job_id) {
  setenv("VPOD_JOB_ID", job_id.c_str(), 1);
  setenv(vipu::kOfflineVariable, "1", 1);
  unsetenv("IPUOF_CONFIG_PATH");
  for (const char* name : {"HOST", "PORT", "PARTITION_ID", "GCD_ID", "TIMEOUT"})
    unsetenv(absl::StrCat("IPUOF_VIPU_API_", name).c_str());
}

// mpirun takes all names of this machine for one host, and deals to it first, wherever the list has
// it.
absl::Status FindThisHost(Layout& layout) {
  if (!layout.hosts_given) return absl::OkStatus();
  std::vector<std::string> here;
  absl::c_copy_if(layout.hosts, std::back_inserter(here), IsThisHost);
  if (here.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("hosts '", here[0], "' and '", here[1], "' are both this machine"));
  }
  layout.this_host_follows = !here.empty() && here[0] != layout.hosts[0];
  return absl::OkStatus();
}

// mpirun and its instances put files there.
absl::Status CheckTmpdir() {
  const std::string directory = vipu::Environment("TMPDIR");
  std::error_code error;
  if (directory.empty()) return absl::OkStatus();
  if (!fs::is_directory(directory, error)) {
    return absl::NotFoundError(absl::StrCat("TMPDIR is ", directory,
                                            ", which is not a directory; make it or unset TMPDIR"));
  }
  if (access(directory.c_str(), W_OK) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("TMPDIR is ", directory, ", which cannot be written: ", std::strerror(errno)));
}

// The programs that have to be there before anything is touched. Returns mpirun's path.
absl::StatusOr<std::string> FindPrograms(const Options& options, const Layout& layout) {
  if (!layout.hosts_given && FindInPath(options.program[0]).empty()) {
    const bool named = options.program[0].find('/') != std::string::npos;
    return absl::NotFoundError(
        named ? absl::StrCat("program '", options.program[0], "' is not executable")
              : absl::StrCat("cannot find program '", options.program[0], "' in PATH"));
  }
  const std::string name = options.mpirun.empty() ? "mpirun" : options.mpirun;
  const std::string mpirun = FindInPath(name);
  if (mpirun.empty()) {
    const bool exists = name.find('/') != std::string::npos && access(name.c_str(), F_OK) == 0;
    return absl::NotFoundError(
        exists ? absl::StrCat("cannot start mpirun: '", name, "' is not executable")
               : absl::StrCat("cannot start mpirun: cannot find '", name, "'"));
  }
  if (layout.hosts_given && !options.launch_agent.empty()) {
    const std::vector<std::string> words =
        absl::StrSplit(options.launch_agent, ' ', absl::SkipEmpty());
    if (words.empty() || FindInPath(words[0]).empty()) {
      return absl::NotFoundError(
          absl::StrCat("cannot find launch agent '", options.launch_agent, "'"));
    }
  }
  return mpirun;
}

// Says which IPUs were lost, or else which instance ended first.
void SayWhyItFailed(const Layout& layout, JobPartition* partition, InstanceReports* reports,
                    const MpirunResult& result) {
  if (result.exit_code == 0) return;
  if (partition != nullptr && !partition->lost_device().ok()) {
    Fail(absl::StrCat("IPUs of the job were lost: ", partition->lost_device().message()), 1);
    // Instances that end because of it are not to blame; one that died of a signal may be.
    if (result.killed_by != 0 || result.exit_code <= 128) return;
  }
  if (result.killed_by != 0) return;  // all instances end with an mpirun that is killed
  JobEnd end{.lost = partition == nullptr ? std::nullopt : partition->lost_instance(),
             .exit_code = result.exit_code};
  if (reports != nullptr) end.reports = reports->Finish();
  if (const std::string first = DescribeFirstEnd(end, layout); !first.empty()) Fail(first, 1);
}

// Keeps the IPUs for the job. Returns what the instances are told of them.
absl::StatusOr<MpiTarget> TakeTarget(JobPartition& partition, const Log& log) {
  VPOD_RETURN_IF_ERROR(partition.ComputeTargetOptions());
  MpiTarget target;
  if (partition.reconfigurable()) {
    VPOD_RETURN_IF_ERROR(partition.ReserveParent());
    target.node_device_id = partition.parent_device();
  } else {
    VPOD_RETURN_IF_ERROR(partition.ReserveGcds());
  }
  log.Debug(absl::StrCat("Using target options: ", partition.target_options()));
  target.server_host = partition.server().host;
  target.server_port = partition.server().port;
  target.partition_id = partition.id();
  target.target_options = partition.target_options();
  return target;
}

// Returns "" if there are other hosts, where nobody would remove it, or if the caller has set one.
std::string SessionDirectory(const Layout& layout, const std::string& job_id) {
  if (layout.hosts_given || !vipu::Environment(kSessionDirectory).empty()) return "";
  const std::string parent = vipu::Environment("TMPDIR");
  return absl::StrCat(parent.empty() ? "/tmp" : parent, "/poprun-", job_id);
}

// The program between mpirun and each instance: where the shell finds it, which is
// where instances on other hosts find it too, or beside poprun.
std::string FindSupervisor(const Layout& layout) {
  constexpr char kName[] = "poprun_supervisor";
  const std::string found = FindInPath(kName);
  if (!found.empty()) return layout.hosts_given ? absl::StrCat("/usr/bin/env ", kName) : found;
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / kName;
  return access(beside.c_str(), X_OK) == 0 ? beside.string() : "";
}

// Makes mpirun start the instances through supervisors. Without supervisors the job runs all the
// same.
std::unique_ptr<InstanceReports> WatchInstances(const Options& options, const Layout& layout,
                                                JobPartition* partition, const Log& log) {
  const std::string supervisor = FindSupervisor(layout);
  if (supervisor.empty()) {
    log.Info("poprun_supervisor is not in PATH; an instance that fails may not be named");
    return nullptr;
  }
  auto reports = InstanceReports::Listen({.instances = static_cast<int>(layout.instances),
                                          .other_hosts = layout.hosts_given,
                                          .subnet = options.host_subnet,
                                          .on_success = [partition](const InstanceReport& report) {
                                            if (partition != nullptr) partition->TellEnded(report);
                                          }});
  if (!reports.ok()) {
    log.Warning(absl::StrCat("an instance that fails may not be named: poprun ",
                             reports.status().message()));
    return nullptr;
  }
  const std::string agent = vipu::Environment(kForkAgentVariable);
  setenv(kForkAgentVariable, absl::StrCat(supervisor, agent.empty() ? "" : " ", agent).c_str(), 1);
  setenv(kSupervisorVariable, (*reports)->where().c_str(), 1);
  return *std::move(reports);
}

// mpirun from its start to its end. Returns poprun's exit status.
int RunJob(const MpirunCommand& command, const Layout& layout, JobPartition* partition,
           InstanceReports* reports, const Log& log) {
  log.Info(absl::StrCat("Running command: ", QuotedCommand(command.path, command.arguments)));
  if (const int number = base::PendingEndSignal(); number != 0) return 128 + number;
  int mpirun_pid = 0;
  const auto result = RunMpirun(command, [&](int pid) {
    mpirun_pid = pid;
    log.Info(absl::StrCat("Waiting for mpirun (PID ", pid, ")"));
  });
  if (!result.ok())
    return Fail(absl::StrCat("cannot start mpirun: ", result.status().message()), 1);
  log.Info(
      absl::StrCat("mpirun (PID ", mpirun_pid, ") terminated with exit code ", result->exit_code));
  if (result->signal != 0) return 128 + result->signal;
  if (result->killed_by != 0)
    Fail(absl::StrCat("mpirun was killed by signal ", result->killed_by), 1);
  SayWhyItFailed(layout, partition, reports, *result);
  return result->given_up ? 1 : result->exit_code;
}

int Launch(const Options& options, Layout& layout, const std::string& mpirun, const Log& log) {
  const std::string job_id = base::RandomId();
  base::Interruption interruption("poprun");
  std::unique_ptr<JobPartition> partition;
  std::optional<MpiTarget> target;
  if (!options.offline_mode) {
    auto prepared = JobPartition::Prepare(options, layout, job_id, log, interruption);
    if (const int number = base::PendingEndSignal(); number != 0) return 128 + number;
    if (!prepared.ok()) return Fail(prepared.status().message(), 1);
    partition = *std::move(prepared);
  }
  if (options.print_topology || options.verbosity >= 2) {
    std::fputs(TopologyTable(layout).c_str(), stdout);
    std::fflush(stdout);
  }
  if (partition != nullptr) {
    auto taken = TakeTarget(*partition, log);
    if (const int number = base::PendingEndSignal(); number != 0) return 128 + number;
    if (!taken.ok()) return Fail(taken.status().message(), 1);
    target = *std::move(taken);
    SetJobEnvironment(job_id, partition->server());
    PassAccessKeyOn(layout, partition->server(), log);
  } else {
    SetOfflineEnvironment(job_id);
  }
  WatchHosts();
  const std::unique_ptr<InstanceReports> reports =
      WatchInstances(options, layout, partition.get(), log);
  if (!layout.hosts_given) {
    log.Debug("No hosts specified; ignoring host-subnet setting");
    log.Debug("Default network/RNIC for host communication: None");
  }
  const bool located = options.mpirun.find('/') != std::string::npos;  // with its installation
  const std::string shared_memory = absl::StrCat("/dev/shm/poprun-", job_id);
  setenv(kSharedMemoryVariable, shared_memory.c_str(), 1);
  const MpirunCommand command{
      mpirun,
      MpirunArguments(options, layout, target, NeedsNumaWrapper(options, layout, log)),
      options.only_output_from_instance,
      SessionDirectory(layout, job_id),
      shared_memory,
      partition == nullptr ? std::vector<std::string>() : partition->RemovalCommand(),
      layout.hosts_given ? std::vector<std::string>{kAccessKeyVariable}
                         : std::vector<std::string>(),
      located ? mpirun : fs::path(mpirun).filename().string()};
  interruption.End();  // from here on signals are mpirun's
  return RunJob(command, layout, partition.get(), reports.get(), log);
}

}  // namespace

int Poprun(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == render::kCompleteWord) {
    std::fputs(CompleteOptions({words.begin() + 1, words.end()}).c_str(), stdout);
    return 0;
  }
  BlockSignals();
  const auto options = ParseOptions(words);
  if (!options.ok()) return Fail(options.status());
  if (options->help) {
    std::fputs(options->help_text.c_str(), stdout);
    return 0;
  }
  if (options->version) {
    std::fputs(VersionText(options->version_format).c_str(), stdout);
    return 0;
  }
  const Log log(options->verbosity);
  std::vector<std::string> warnings;
  auto layout = MakeLayout(*options, warnings);
  if (!layout.ok()) return Fail(layout.status());
  const absl::Status found = FindThisHost(*layout);
  if (!found.ok()) return Fail(found);
  if (!options->export_config.empty()) {
    const absl::Status exported =
        ExportConfig(options->export_config, options->overwrite_config, options->given);
    if (!exported.ok()) return Fail(exported);
  }
  for (const std::string& warning : warnings) log.Warning(warning);
  if (const absl::Status tmpdir = CheckTmpdir(); !tmpdir.ok()) return Fail(tmpdir.message(), 1);
  const auto mpirun = FindPrograms(*options, *layout);
  if (!mpirun.ok()) return Fail(mpirun.status().message(), 1);
  return Launch(*options, *layout, *mpirun, log);
}

}  // namespace vpod::launch
