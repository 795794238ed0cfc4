// poprun's command line (spec/poprun.md 2): Boost.Program_options' rules and wording.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/launch/config_file.h"

namespace vpod::launch {

// The environment variable with the user's access key. poprun hides it from mpirun in jobs over
// several hosts, because mpirun's messages are not encrypted; instances read the key from a file.
inline constexpr char kAccessKeyVariable[] = "VIPU_CLI_API_ACCESS_KEY";

struct Options {
  bool help = false, version = false;
  std::string help_text, version_format = "text";
  std::string export_config;
  bool overwrite_config = false;
  bool debug = false;
  std::string host, hostfile, host_subnet;
  uint32_t num_replicas = 1, ipus_per_replica = 1, num_instances = 1;
  std::optional<uint32_t> num_ilds;
  std::string vipu_server_host;
  uint32_t vipu_server_port = 8090, vipu_server_timeout = 120;
  bool vipu_server_port_given = false;
  std::string vipu_partition, vipu_cluster, vipu_allocation;
  uint32_t vipu_partition_attempts = 1;
  bool update_partition = false;
  std::optional<bool> reset_partition;
  bool remove_partition = true;
  std::string sync_type, executable_cache_path;
  std::vector<std::string> mpi_global_args, mpi_local_args;              // split into words
  std::map<uint32_t, std::vector<std::string>> instance_mpi_local_args;  // by instance
  bool allow_run_as_root = true;
  std::string mpirun, launch_agent;      // options or environment; empty: the usual ones
  std::vector<std::string> unavailable;  // asked for, but nothing is copied to other hosts
  std::string process_placement = "spreadnuma";
  bool print_topology = false;
  std::optional<uint32_t> only_output_from_instance;
  bool offline_mode = false;
  int verbosity = 0;                 // 0 warnings, 1 info, 2 debug, 3 trace
  std::vector<std::string> program;  // with its arguments

  GivenOptions given;  // for --export-config
};

// Parses argv[1…]. Parsing ends at the first word that is no option, or at "--". InvalidArgument
// and, if a file of options cannot be read, FailedPrecondition carry the text after
// "poprun: error: ".
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& words);

// Returns the completions of the last word, as shells ask for them (client/render/completion.h).
std::string CompleteOptions(const std::vector<std::string>& words);

}  // namespace vpod::launch
