#include "client/launch/options.h"

#include <arpa/inet.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "client/launch/words.h"
#include "client/render/option_completion.h"
#include "client/vipu/config.h"
#include "device/arch/hardware.h"
#include "device/base/object_id.h"
#include "device/base/status.h"

namespace vpod::launch {
namespace {

namespace po = boost::program_options;

constexpr char kMissingProgram[] =
    "no program given; usage: poprun [options] program [program args]";

const std::set<std::string>& BooleanNames() {
  static const std::set<std::string> names = {"help",
                                              "version",
                                              "overwrite-config",
                                              "debug",
                                              "update-partition",
                                              "reset-partition",
                                              "remove-partition",
                                              "allow-run-as-root",
                                              "numa-aware",
                                              "print-topology",
                                              "offline-mode",
                                              "verbose",
                                              "vv",
                                              "synchronise-python-venv",
                                              "synchronise-poplar-sdk",
                                              "distribute-ssh-key"};
  return names;
}

po::options_description Description() {
  po::options_description all("Allowed options");
  const auto value = [] { return po::value<std::vector<std::string>>()->composing(); };
  const auto add = [&](const char* name, const char* help) {
    all.add_options()(name, value(), help);
  };
  // The parser is ours: these take no value, though a following yes or no is theirs.
  const auto add_bare = [&](const char* name, const char* help) { all.add_options()(name, help); };
  add_bare("help", "help");
  add_bare("version", "versions of PopRun and PopDist");
  add("version-format", "text, json, full-text or full-json (text)");
  add("import-config", "read options from a file; the command line wins");
  add("export-config", "write the options to a file");
  add("overwrite-config", "allow --export-config to replace a file (0)");
  add("debug", "log level TRACE and mpirun's --display-allocation --display-map (0)");
  add("host,H", "hosts: host0,host1 or host[0-2,4] (the nodes of a Slurm job, else this host)");
  add("hostfile", "file with hosts, one or a range a line, # comments");
  add("host-subnet", "network for host communication; ignored without hosts");
  add("num-replicas", "replicas in total (1)");
  add("ipus-per-replica", "IPUs of each replica (1)");
  add("num-instances", "processes (1)");
  add("num-ilds", "IPU-Link domains (decided by the V-IPU server)");
  add("vipu-server-host", "V-IPU server (that of vipu)");
  add("vipu-server-port", "its port (8090)");
  add("vipu-server-timeout", "seconds per request (120)");
  add("vipu-partition", "use or create this partition");
  add("vipu-partition-attempts", "tries while the partition does not end in ACTIVE (1)");
  add("update-partition", "may change a partition that does not fit (0)");
  add("reset-partition", "reset before the run (yes for non-reconfigurable partitions)");
  add("remove-partition", "remove afterwards what was created (1)");
  add("vipu-cluster", "cluster to create in (deprecated)");
  add("vipu-allocation", "allocation to create in");
  add("sync-type", "ST_POD_NATIVE_DEFAULT or ST_C2_COMPATIBLE");
  add("executable-cache-path",
      "directory of compiled executables, passed to instances as POPDIST_EXECUTABLE_CACHE_PATH");
  add("mpi-global-args", "words for mpirun's global part; repeatable");
  add("mpi-local-args", "words for every application context; repeatable");
  add("instance-mpi-local-args",
      "INSTANCE:WORDS, words for the application context of one instance; repeatable");
  add("allow-run-as-root", "pass mpirun's flag (1)");
  add("mpirun", "mpirun to start (POPRUN_MPIRUN, else that of PATH)");
  add("launch-agent",
      "command in place of ssh that gets a host and what to run there "
      "(POPRUN_LAUNCH_AGENT)");
  add("synchronise-python-venv", "accepted; nothing is copied");
  add("synchronise-poplar-sdk", "accepted; nothing is copied");
  add("distribute-ssh-key", "accepted; nothing is copied");
  add("numa-aware", "older: yes is --process-placement=spreadnuma, no is disabled");
  add("process-placement",
      "spreadnuma, a share of its host's NUMA nodes for each instance, or disabled (spreadnuma)");
  add("print-topology", "print the topology table (0)");
  add("only-output-from-instance", "hide the output of all other instances");
  add("offline-mode", "run without IPUs (0)");
  add_bare("verbose,v", "verbose");
  add_bare("vv", "very verbose");
  return all;
}

std::optional<bool> ParseBoolean(std::string text) {
  absl::AsciiStrToLower(&text);
  if (text == "yes" || text == "1" || text == "on" || text == "true") return true;
  if (text == "no" || text == "0" || text == "off" || text == "false") return false;
  return std::nullopt;
}

// Options with their values, and the words of the program behind them.
struct Split {
  GivenOptions given;
  std::vector<std::string> program;
};

// "option '--vipu-server' is ambiguous and matches '--vipu-server-host', '--vipu-server-port', and
// '--vipu-server-timeout'"
std::string AmbiguousText(const std::string& written, std::vector<std::string> matches) {
  std::sort(matches.begin(), matches.end());
  std::string text = absl::StrCat("option '--", written, "' is ambiguous and matches ");
  for (size_t i = 0; i < matches.size(); ++i) {
    absl::StrAppend(&text,
                    i == 0                    ? ""
                    : i + 1 == matches.size() ? ", and "
                                              : ", ",
                    "'--", matches[i], "'");
  }
  return text;
}

// Finds where the options end and joins options with their values.
absl::StatusOr<Split> SplitCommandLine(const po::options_description& all,
                                       const std::vector<std::string>& words) {
  Split split;
  size_t i = 0;
  std::string written;
  try {
    while (i < words.size() && words[i].size() > 1 && words[i][0] == '-') {
      std::string word = words[i++];
      if (word == "--") break;
      if (word == "-vv") word = "--vv";
      const bool is_long = word[1] == '-';
      const size_t equals = is_long ? word.find('=') : std::string::npos;
      written = is_long ? word.substr(2, equals == std::string::npos ? equals : equals - 2)
                        : word.substr(0, 2);
      const po::option_description* option =
          is_long ? all.find_nothrow(written, /*approx=*/true) : all.find_nothrow(written, false);
      if (option == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("unrecognised option '", is_long ? "--" + written : word, "'"));
      }
      const std::string name = option->long_name();
      std::string value;
      if (equals != std::string::npos) {
        value = word.substr(equals + 1);
      } else if (!is_long && word.size() > 2) {
        value = word.substr(2);
      } else if (BooleanNames().contains(name)) {
        // A bare boolean means yes. A following word of a boolean's spelling is its value, unless
        // it is the last one: then it is the program (`poprun --offline-mode true`).
        const bool takes_next = name != "help" && name != "verbose" && name != "vv" &&
                                name != "version" && i + 1 < words.size() &&
                                ParseBoolean(words[i]).has_value();
        value = takes_next ? words[i++] : "1";
      } else if (i < words.size()) {
        value = words[i++];
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("the required argument for option '--", name, "' is missing"));
      }
      std::vector<std::string>& values = split.given[name];
      // The last one wins; the MPI lists append.
      if (!absl::StrContains(name, "mpi-")) values.clear();
      values.push_back(value);
    }
  } catch (const po::ambiguous_option& error) {
    return absl::InvalidArgumentError(AmbiguousText(written, error.alternatives()));
  } catch (const po::error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  split.program.assign(words.begin() + static_cast<int64_t>(i), words.end());
  return split;
}

absl::Status InvalidArgument(const std::string& value, const char* name, const std::string& give) {
  return absl::InvalidArgumentError(
      absl::StrCat("the argument ('", value, "') for option '--", name, "' is invalid. ", give));
}

class Reader {
 public:
  explicit Reader(const GivenOptions& given) : given_(given) {}

  void Text(const char* name, std::string& into) const {
    if (const std::string* value = Find(name)) into = *value;
  }
  absl::Status Boolean(const char* name, bool& into) const {
    const std::string* value = Find(name);
    if (value == nullptr) return absl::OkStatus();
    const auto parsed = ParseBoolean(*value);
    if (!parsed.has_value()) {
      return InvalidArgument(*value, name,
                             "Valid choices are 'on|off', 'yes|no', '1|0' and 'true|false'");
    }
    into = *parsed;
    return absl::OkStatus();
  }
  absl::Status Number(const char* name, uint32_t& into, uint32_t least = 1,
                      uint32_t most = UINT32_MAX) const {
    const std::string* value = Find(name);
    if (value == nullptr) return absl::OkStatus();
    const bool digits =
        !value->empty() && value->find_first_not_of("0123456789") == std::string::npos;
    if (!digits || !absl::SimpleAtoi(*value, &into) || into < least || into > most) {
      return InvalidArgument(*value, name,
                             absl::StrCat("Give an integer from ", least, " to ", most));
    }
    return absl::OkStatus();
  }
  absl::Status Choice(const char* name, absl::Span<const absl::string_view> choices,
                      std::string& into) const {
    Text(name, into);
    if (!Has(name) || absl::c_linear_search(choices, into)) return absl::OkStatus();
    return InvalidArgument(
        into, name, absl::StrCat("Valid choices are '", absl::StrJoin(choices, "' and '"), "'"));
  }
  // The name of an interface, or an IPv4 network: mpirun takes anything for the former.
  absl::Status Network(const char* name, std::string& into) const {
    Text(name, into);
    const auto [address, prefix] =
        std::pair<std::string, std::string>(absl::StrSplit(into, absl::MaxSplits('/', 1)));
    in_addr parsed;
    uint32_t bits = 0;
    if (!absl::StrContains(into, '/') || (inet_pton(AF_INET, address.c_str(), &parsed) == 1 &&
                                          absl::SimpleAtoi(prefix, &bits) && bits <= 32)) {
      return absl::OkStatus();
    }
    return InvalidArgument(into, name,
                           "Give an interface (eth0) or a network (10.5.0.0/16, at most /32)");
  }
  absl::Status Words(const char* name, std::vector<std::string>& into) const {
    const auto it = given_.find(name);
    if (it == given_.end()) return absl::OkStatus();
    for (const std::string& text : it->second) {
      VPOD_ASSIGN_OR_RETURN(const auto words, SplitWords(text));
      into.insert(into.end(), words.begin(), words.end());
    }
    return absl::OkStatus();
  }
  // Launchers that use no shell leave quotes around the words.
  absl::Status InstanceWords(uint32_t instances,
                             std::map<uint32_t, std::vector<std::string>>& into) const {
    constexpr char kName[] = "instance-mpi-local-args";
    const auto it = given_.find(kName);
    if (it == given_.end()) return absl::OkStatus();
    for (const std::string& text : it->second) {
      auto [number, words] = std::pair<absl::string_view, absl::string_view>(
          absl::StrSplit(text, absl::MaxSplits(':', 1)));
      const bool quoted =
          words.size() >= 2 && (words[0] == '"' || words[0] == '\'') && words.back() == words[0];
      if (quoted) words = words.substr(1, words.size() - 2);
      uint32_t instance = 0;
      if (!absl::SimpleAtoi(number, &instance) || instance >= instances || words.empty()) {
        return InvalidArgument(
            text, kName, absl::StrCat("Give INSTANCE:WORDS with an instance below ", instances));
      }
      VPOD_ASSIGN_OR_RETURN(const auto split, SplitWords(std::string(words)));
      into[instance].insert(into[instance].end(), split.begin(), split.end());
    }
    return absl::OkStatus();
  }
  bool Has(const char* name) const { return given_.contains(name); }

 private:
  const std::string* Find(const char* name) const {
    const auto it = given_.find(name);
    return it == given_.end() || it->second.empty() ? nullptr : &it->second.back();
  }
  const GivenOptions& given_;
};

absl::Status VerbosityFromEnvironment(int& verbosity) {
  static const std::map<std::string, int> levels = {{"TRACE", 3}, {"DEBUG", 2},  {"INFO", 1},
                                                    {"WARN", 0},  {"ERROR", -1}, {"OFF", -2}};
  const std::string level = vipu::Environment("POPRUN_LOG_LEVEL");
  if (level.empty()) return absl::OkStatus();
  const auto it = levels.find(level);
  if (it == levels.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "POPRUN_LOG_LEVEL is '", level, "'; give TRACE, DEBUG, INFO, WARN, ERROR or OFF"));
  }
  verbosity = it->second;
  return absl::OkStatus();
}

// mpirun would show the access key to all users of this host, and send it to other hosts in clear.
absl::Status CheckNoAccessKey(const Options& options) {
  std::vector<std::string> words = options.mpi_global_args;
  absl::c_copy(options.mpi_local_args, std::back_inserter(words));
  for (const auto& [instance, own] : options.instance_mpi_local_args)
    absl::c_copy(own, std::back_inserter(words));
  if (absl::c_none_of(words, [](const std::string& word) {
        return absl::StrContains(word, kAccessKeyVariable);
      })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(kAccessKeyVariable,
                   " cannot be an argument of mpirun, which does not keep it secret; instances on "
                   "other hosts read the access key from ~/.vipu.hcl there"));
}

absl::Status CheckId(absl::string_view source, const std::string& id) {
  const absl::Status good = id.empty() ? absl::OkStatus() : base::CheckObjectId(id);
  if (good.ok()) return good;
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", good.message()));
}

// The ids that are named; a partition that poprun finds has one.
absl::Status CheckIds(const Options& options) {
  VPOD_RETURN_IF_ERROR(CheckId("--vipu-partition", options.vipu_partition));
  VPOD_RETURN_IF_ERROR(CheckId("--vipu-allocation", options.vipu_allocation));
  VPOD_RETURN_IF_ERROR(CheckId("--vipu-cluster", options.vipu_cluster));
  if (!options.vipu_partition.empty() || options.offline_mode) return absl::OkStatus();
  constexpr char kVariable[] = "IPUOF_VIPU_API_PARTITION_ID";
  return CheckId(kVariable, vipu::Environment(kVariable));
}

absl::Status Fill(const Reader& read, Options& o) {
  read.Text("host", o.host);
  read.Text("hostfile", o.hostfile);
  read.Text("vipu-server-host", o.vipu_server_host);
  read.Text("vipu-partition", o.vipu_partition);
  read.Text("vipu-cluster", o.vipu_cluster);
  read.Text("vipu-allocation", o.vipu_allocation);
  read.Text("executable-cache-path", o.executable_cache_path);
  read.Text("export-config", o.export_config);
  o.mpirun = vipu::Environment("POPRUN_MPIRUN");
  o.launch_agent = vipu::Environment("POPRUN_LAUNCH_AGENT");
  read.Text("mpirun", o.mpirun);
  read.Text("launch-agent", o.launch_agent);
  VPOD_RETURN_IF_ERROR(read.Network("host-subnet", o.host_subnet));
  VPOD_RETURN_IF_ERROR(read.Number("num-replicas", o.num_replicas, 1, arch::kMaxIpusPerPod));
  VPOD_RETURN_IF_ERROR(
      read.Number("ipus-per-replica", o.ipus_per_replica, 1, arch::kMaxIpusPerPod));
  VPOD_RETURN_IF_ERROR(read.Number("num-instances", o.num_instances, 1, arch::kMaxIpusPerPod));
  VPOD_RETURN_IF_ERROR(read.Number("vipu-server-port", o.vipu_server_port, 1, 65535));
  o.vipu_server_port_given = read.Has("vipu-server-port");
  VPOD_RETURN_IF_ERROR(read.Number("vipu-server-timeout", o.vipu_server_timeout));
  VPOD_RETURN_IF_ERROR(read.Number("vipu-partition-attempts", o.vipu_partition_attempts));
  if (read.Has("num-ilds")) VPOD_RETURN_IF_ERROR(read.Number("num-ilds", o.num_ilds.emplace(1)));
  if (read.Has("only-output-from-instance")) {
    VPOD_RETURN_IF_ERROR(
        read.Number("only-output-from-instance", o.only_output_from_instance.emplace(0), 0));
  }
  VPOD_RETURN_IF_ERROR(read.Boolean("overwrite-config", o.overwrite_config));
  VPOD_RETURN_IF_ERROR(read.Boolean("debug", o.debug));
  VPOD_RETURN_IF_ERROR(read.Boolean("update-partition", o.update_partition));
  VPOD_RETURN_IF_ERROR(read.Boolean("remove-partition", o.remove_partition));
  VPOD_RETURN_IF_ERROR(read.Boolean("allow-run-as-root", o.allow_run_as_root));
  VPOD_RETURN_IF_ERROR(read.Boolean("print-topology", o.print_topology));
  VPOD_RETURN_IF_ERROR(read.Boolean("offline-mode", o.offline_mode));
  VPOD_RETURN_IF_ERROR(CheckIds(o));
  if (read.Has("reset-partition")) {
    VPOD_RETURN_IF_ERROR(read.Boolean("reset-partition", o.reset_partition.emplace(false)));
  }
  bool numa_aware = true;
  VPOD_RETURN_IF_ERROR(read.Boolean("numa-aware", numa_aware));
  if (!numa_aware) o.process_placement = "disabled";
  VPOD_RETURN_IF_ERROR(
      read.Choice("process-placement", {"spreadnuma", "disabled"}, o.process_placement));
  VPOD_RETURN_IF_ERROR(
      read.Choice("sync-type", {"ST_POD_NATIVE_DEFAULT", "ST_C2_COMPATIBLE"}, o.sync_type));
  for (const char* name :
       {"synchronise-python-venv", "synchronise-poplar-sdk", "distribute-ssh-key"}) {
    bool wanted = false;
    VPOD_RETURN_IF_ERROR(read.Boolean(name, wanted));
    if (wanted) o.unavailable.push_back(name);
  }
  VPOD_RETURN_IF_ERROR(read.Words("mpi-global-args", o.mpi_global_args));
  VPOD_RETURN_IF_ERROR(read.Words("mpi-local-args", o.mpi_local_args));
  VPOD_RETURN_IF_ERROR(read.InstanceWords(o.num_instances, o.instance_mpi_local_args));
  VPOD_RETURN_IF_ERROR(CheckNoAccessKey(o));
  VPOD_RETURN_IF_ERROR(VerbosityFromEnvironment(o.verbosity));
  bool verbose = false, very_verbose = false;
  VPOD_RETURN_IF_ERROR(read.Boolean("verbose", verbose));
  VPOD_RETURN_IF_ERROR(read.Boolean("vv", very_verbose));
  if (verbose) o.verbosity = 1;
  if (very_verbose) o.verbosity = 2;
  if (o.debug) o.verbosity = 3;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& words) {
  const po::options_description all = Description();
  VPOD_ASSIGN_OR_RETURN(Split split, SplitCommandLine(all, words));
  Options options;
  options.help = split.given.contains("help");
  options.version = split.given.contains("version");
  if (options.help) {
    std::ostringstream text;
    text << "Usage: poprun [options] program [program args]\n\n" << all;
    options.help_text = text.str();
    return options;
  }
  if (options.version) {
    VPOD_RETURN_IF_ERROR(Reader(split.given)
                             .Choice("version-format", {"text", "json", "full-text", "full-json"},
                                     options.version_format));
    return options;
  }
  if (split.given.contains("import-config")) {
    const auto is_option = [&](const std::string& name) {
      return all.find_nothrow(name, false) != nullptr;
    };
    VPOD_RETURN_IF_ERROR(
        ImportConfig(split.given.at("import-config").back(), is_option, split.given));
  }
  VPOD_RETURN_IF_ERROR(Fill(Reader(split.given), options));
  options.program = std::move(split.program);
  if (options.program.empty()) return absl::InvalidArgumentError(kMissingProgram);
  options.given = std::move(split.given);
  return options;
}

std::string CompleteOptions(const std::vector<std::string>& words) {
  const auto values = [](const std::string& option) -> render::Candidates {
    if (BooleanNames().contains(option)) return {{"yes", ""}, {"no", ""}};
    if (option == "process-placement") return {{"spreadnuma", ""}, {"disabled", ""}};
    if (option == "sync-type") return {{"ST_POD_NATIVE_DEFAULT", ""}, {"ST_C2_COMPATIBLE", ""}};
    return {};
  };
  return render::CompletionText(render::CompleteOptions(Description(), words, values),
                                words.empty() ? "" : words.back());
}

}  // namespace vpod::launch
