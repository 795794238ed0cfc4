#include "client/launch/launch.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/launch/layout.h"
#include "client/launch/log.h"
#include "client/launch/mpirun.h"
#include "client/launch/options.h"
#include "client/launch/partition.h"
#include "device/base/random_id.h"
#include "device/base/status.h"

namespace vpod::launch {
namespace {

namespace fs = std::filesystem;

int Fail(absl::string_view message, int code) {
  std::fprintf(stderr, "poprun: error: %s\n", std::string(message).c_str());
  return code;
}

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

absl::Status ExportConfig(const Options& options) {
  if (options.export_config.empty()) return absl::OkStatus();
  std::error_code error;
  if (fs::exists(options.export_config, error) && !options.overwrite_config) {
    return absl::InvalidArgumentError(
        absl::StrCat("--export-config: ", options.export_config,
                     " exists; allow to replace it with --overwrite-config=yes"));
  }
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, values] : options.given) {
    if (name == "export-config" || name == "import-config" || name == "overwrite-config") continue;
    if (values.size() == 1) {
      json[name] = values[0];
    } else {
      json[name] = values;
    }
  }
  std::ofstream file(options.export_config);
  file << json.dump(2) << "\n";
  file.close();
  if (!file)
    return absl::InvalidArgumentError(
        absl::StrCat("--export-config: cannot write ", options.export_config));
  return absl::OkStatus();
}

// Binding needs more than one NUMA node to have an effect.
bool NeedsNumaWrapper(const Options& options, const Layout& layout) {
  std::error_code error;
  return options.process_placement != "disabled" && layout.instances_per_host() > 1 &&
         fs::exists("/sys/devices/system/node/node1", error) &&
         !FindInPath("poprun_numa_wrapper").empty();
}

// Names the instance that died; mpirun's own banner often blames another.
void NameLostInstance(JobPartition& partition, int exit_code) {
  const auto lost = partition.lost_instance();
  if (!lost.has_value() || exit_code == 0) return;
  const std::string how =
      exit_code > 128 ? absl::StrCat("was killed by signal ", exit_code - 128) : "was lost";
  Fail(absl::StrCat("instance ", lost->index, " (pid ", lost->pid, ", ", lost->host, ") ", how), 1);
}

int Launch(const Options& options, Layout& layout, const Log& log) {
  const std::string job_id = base::RandomId();
  std::unique_ptr<JobPartition> partition;
  std::optional<MpiTarget> target;
  if (!options.offline_mode) {
    auto prepared = JobPartition::Prepare(options, layout, job_id, log);
    if (const int number = PendingSignal(); number != 0) return 128 + number;
    if (!prepared.ok()) return Fail(prepared.status().message(), 1);
    partition = *std::move(prepared);
  }
  if (options.print_topology || options.verbosity >= 2) {
    std::fputs(TopologyTable(layout).c_str(), stdout);
    std::fflush(stdout);
  }
  if (partition != nullptr) {
    target.emplace();
    if (partition->reconfigurable()) {
      const absl::Status reserved = partition->ReserveParent();
      if (!reserved.ok()) return Fail(reserved.message(), 1);
      target->node_device_id = partition->parent_device();
    }
    log.Debug(absl::StrCat("Using target options: ", partition->target_options()));
    target->server_host = partition->server().host;
    target->server_port = partition->server().port;
    target->partition_id = partition->id();
    target->target_options = partition->target_options();
  }
  if (!layout.hosts_given) {
    log.Debug("No hosts specified; ignoring host-subnet setting");
    log.Debug("Default network/RNIC for host communication: None");
  }
  const std::string named = vipu::Environment("POPRUN_MPIRUN");
  const std::string mpirun = named.empty() ? FindInPath("mpirun") : named;
  if (mpirun.empty()) return Fail("cannot start mpirun: not found in PATH", 1);
  Options with_job = options;
  // Instances of this host inherit the job's name; to other hosts it has to be sent.
  if (layout.hosts_given) {
    with_job.mpi_local_args.insert(with_job.mpi_local_args.end(), {"-x", "VPOD_JOB_ID"});
  }
  const auto arguments =
      MpirunArguments(with_job, layout, target, NeedsNumaWrapper(options, layout));
  log.Info(absl::StrCat("Running command: ", QuotedCommand(mpirun, arguments)));
  // The job's name travels in the environment, so that the command stays that of the real tool.
  std::vector<std::pair<std::string, std::string>> environment = {{"VPOD_JOB_ID", job_id}};
  if (const int number = PendingSignal(); number != 0) return 128 + number;
  int mpirun_pid = 0;
  const auto result =
      RunMpirun(mpirun, arguments, environment, options.only_output_from_instance, [&](int pid) {
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
  if (partition != nullptr) NameLostInstance(*partition, result->exit_code);
  return result->exit_code;
}

}  // namespace

int Poprun(const std::vector<std::string>& words) {
  BlockSignals();
  const auto options = ParseOptions(words);
  if (!options.ok()) return Fail(options.status().message(), 2);
  if (options->help) {
    std::fputs(options->help_text.c_str(), stdout);
    return 0;
  }
  if (options->version) {
    std::printf(
        "POPRUN version 3.3.0 (virtual IPU-POD)\nPOPDIST version 3.3.0 (virtual IPU-POD)\n");
    return 0;
  }
  const Log log(options->verbosity);
  std::vector<std::string> warnings;
  auto layout = MakeLayout(*options, warnings);
  if (!layout.ok()) return Fail(layout.status().message(), 2);
  const absl::Status exported = ExportConfig(*options);
  if (!exported.ok()) return Fail(exported.message(), 2);
  for (const std::string& warning : warnings) log.Warning(warning);
  if (!layout->hosts_given && FindInPath(options->program[0]).empty()) {
    return Fail(absl::StrCat("cannot find program '", options->program[0], "' in PATH"), 1);
  }
  return Launch(*options, *layout, log);
}

}  // namespace vpod::launch
