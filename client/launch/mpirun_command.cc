#include "client/launch/mpirun_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "client/vipu/config.h"
#include "client/vipu/pod_home.h"

namespace vpod::launch {
namespace {

// `-x` words of a context: each name once, at its first place and with its last value.
class ExportList {
 public:
  void Add(const std::string& name, const std::optional<std::string>& value) {
    if (values_.insert_or_assign(name, value).second) order_.push_back(name);
  }
  void AppendTo(std::vector<std::string>& words) const {
    for (const std::string& name : order_) {
      const auto& value = values_.at(name);
      words.push_back("-x");
      words.push_back(value.has_value() ? absl::StrCat(name, "=", *value) : name);
    }
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::optional<std::string>> values_;
};

// The POD's own variables. Instances on other hosts do not inherit them. A directory of this host
// means nothing there, and the access key must not travel in mpirun's messages.
std::vector<std::string> PodVariables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    const bool ours = absl::StartsWith(name, "VPOD_") || absl::StartsWith(name, "VIPU_CLI_");
    const bool stays =
        name == "VPOD_HOME" || name == vipu::kEnvironmentHome || name == kAccessKeyVariable;
    if (ours && !stays) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "-H a:4,b:4"
void AddHosts(absl::Span<const std::string> hosts, uint32_t slots,
              std::vector<std::string>& words) {
  words.push_back("-H");
  words.push_back(absl::StrJoin(hosts, ",", [&](std::string* out, const std::string& host) {
    absl::StrAppend(out, host, ":", slots);
  }));
}

void AddContext(const Options& options, const Layout& layout,
                const std::optional<MpiTarget>& target, bool numa_wrapper, uint32_t instance,
                std::vector<std::string>& words) {
  words.insert(words.end(), {"-np", "1"});
  if (layout.this_host_follows) {
    AddHosts({layout.hosts[layout.host_of(instance)]}, layout.instances_per_host(), words);
  }
  ExportList exports;
  const auto number = [&](const char* name, uint32_t value) {
    exports.Add(name, absl::StrCat(value));
  };
  number("POPDIST_NUM_TOTAL_REPLICAS", layout.replicas);
  number("POPDIST_NUM_IPUS_PER_REPLICA", layout.ipus_per_replica);
  number("POPDIST_NUM_LOCAL_REPLICAS", layout.local_replicas());
  number("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", 1);
  if (target.has_value() && target->node_device_id.has_value()) {
    number("POPDIST_NODE_DEVICE_ID", *target->node_device_id);
  }
  if (!options.executable_cache_path.empty()) {
    exports.Add("POPDIST_EXECUTABLE_CACHE_PATH", options.executable_cache_path);
  }
  number("POPDIST_REPLICA_INDEX_OFFSET", instance * layout.local_replicas());
  number("POPDIST_LOCAL_INSTANCE_INDEX", layout.local_index(instance));
  if (target.has_value()) {
    exports.Add("IPUOF_VIPU_API_HOST", target->server_host);
    number("IPUOF_VIPU_API_PORT", target->server_port);
    exports.Add("IPUOF_VIPU_API_PARTITION_ID", target->partition_id);
    number("IPUOF_VIPU_API_TIMEOUT", options.vipu_server_timeout);
    if (!target->node_device_id.has_value()) number("IPUOF_VIPU_API_GCD_ID", instance);
  }
  const std::string log_level = vipu::Environment("IPUOF_LOG_LEVEL");
  exports.Add("IPUOF_LOG_LEVEL", log_level.empty() ? "WARN" : log_level);
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"})
    exports.Add(name, std::nullopt);
  if (!vipu::Environment("POPLAR_ENGINE_OPTIONS").empty())
    exports.Add("POPLAR_ENGINE_OPTIONS", std::nullopt);
  std::vector<std::string> given = options.mpi_local_args, other_words;
  if (const auto own = options.instance_mpi_local_args.find(instance);
      own != options.instance_mpi_local_args.end()) {
    given.insert(given.end(), own->second.begin(), own->second.end());
  }
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string& word = given[i];
    if (word != "-x" || i + 1 == given.size()) {
      other_words.push_back(word);
      continue;
    }
    const std::string& entry = given[++i];
    const size_t equals = entry.find('=');
    exports.Add(entry.substr(0, equals),
                equals == std::string::npos ? std::nullopt
                                            : std::optional<std::string>(entry.substr(equals + 1)));
  }
  if (layout.hosts_given) {
    for (const std::string& name : PodVariables()) exports.Add(name, std::nullopt);
  }
  if (target.has_value()) exports.Add("POPLAR_TARGET_OPTIONS", target->target_options);
  exports.AppendTo(words);
  words.insert(words.end(), other_words.begin(), other_words.end());
  if (numa_wrapper) words.push_back("poprun_numa_wrapper");
  words.insert(words.end(), options.program.begin(), options.program.end());
}

}  // namespace

std::vector<std::string> MpirunArguments(const Options& options, const Layout& layout,
                                         const std::optional<MpiTarget>& target,
                                         bool numa_wrapper) {
  std::vector<std::string> words = options.mpi_global_args;
  if (layout.hosts_given && !options.host_subnet.empty()) {
    for (const char* parameter : {"btl_tcp_if_include", "oob_tcp_if_include"}) {
      words.insert(words.end(), {"--mca", parameter, options.host_subnet});
    }
  }
  // Named together, because inside a Slurm job mpirun would rather use srun.
  if (layout.hosts_given && !options.launch_agent.empty()) {
    words.insert(words.end(),
                 {"--mca", "plm", "rsh", "--mca", "plm_rsh_agent", options.launch_agent});
  }
  if (options.debug) words.insert(words.end(), {"--display-allocation", "--display-map"});
  words.insert(words.end(), {"--bind-to", "none", "--tag-output"});
  if (options.allow_run_as_root) words.push_back("--allow-run-as-root");
  if (!layout.hosts_given) {
    words.push_back("--oversubscribe");  // Open MPI counts one slot a core
  } else if (!layout.this_host_follows) {
    AddHosts(layout.hosts, layout.instances_per_host(), words);
  }
  for (uint32_t instance = 0; instance < layout.instances; ++instance) {
    if (instance > 0) words.push_back(":");
    AddContext(options, layout, target, numa_wrapper, instance, words);
  }
  return words;
}

}  // namespace vpod::launch
