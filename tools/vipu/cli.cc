#include "tools/vipu/cli.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/vipu/client.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"
#include "tools/vipu/tables.h"

namespace vpod::tools {
namespace {

constexpr char kVersion[] = "1.18.0";
constexpr char kFooter[] =
    "Commands: <verb> <noun> [id]\n"
    "  create|get|remove  agent, cluster (vipu-admin)      list  agents, clusters, allocations, "
    "partitions\n"
    "  create|get|remove|reset|update  partition           get   allocation\n"
    "  discover  agents (vipu-admin)\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.";

// Every flag of every command; which of them a command takes is in its table row.
struct Flags {
  vipu::ConfigFlags config;
  std::string timeout = "120";
  bool showjson = false, version = false, server_version = false;
  std::string host, port, agents, num_ipulinkdomains, topology, cluster_topology;
  std::string size, num_gcds, gcd_sync_replicas, total_num_replicas, routing, gw_routing, sync_type,
      cluster, allocation, index, num_ilds, gcd;
  bool reconfigurable = false, no_auto_reset = false, relocatable = false, shared = false,
       no_wait = false, ipuof_configs = false;
};

absl::Status Usage(const std::string& message) { return absl::InvalidArgumentError(message); }

// A number flag; empty means absent.
absl::StatusOr<uint32_t> Number(const std::string& text, const char* flag, uint32_t absent) {
  if (text.empty()) return absent;
  uint32_t value;
  if (!absl::SimpleAtoi(text, &value))
    return Usage(absl::StrCat("Flag --", flag, " needs a number, not '", text, "'."));
  return value;
}

class Cli {
 public:
  Cli(bool admin, const Flags& flags, vipu::Client& client)
      : admin_(admin), flags_(flags), client_(client) {}

  absl::StatusOr<std::string> CreateAgent(const std::string& id) {
    if (flags_.host.empty()) return Usage("create agent needs --host.");
    VPOD_ASSIGN_OR_RETURN(const uint32_t port, Number(flags_.port, "port", 8080));
    VPOD_RETURN_IF_ERROR(client_.CreateAgent(id, flags_.host, port));
    return "";
  }
  absl::StatusOr<std::string> CreateCluster(const std::string& id) {
    if (flags_.agents.empty()) return Usage("create cluster needs --agents.");
    vipuadmin::Cluster cluster;
    cluster.set_id(id);
    for (absl::string_view agent : absl::StrSplit(flags_.agents, ','))
      cluster.add_agent_ids(std::string(agent));
    VPOD_ASSIGN_OR_RETURN(const uint32_t ilds,
                          Number(flags_.num_ipulinkdomains, "num-ipulinkdomains", 1));
    cluster.set_num_ipulinkdomains(ilds);
    cluster.set_topology(flags_.topology);
    cluster.set_cluster_topology(flags_.cluster_topology);
    VPOD_RETURN_IF_ERROR(client_.CreateCluster(cluster));
    return "";
  }
  absl::StatusOr<std::string> CreatePartition(const std::string& id) {
    vipuuser::CreatePartitionRequest request;
    VPOD_ASSIGN_OR_RETURN(*request.mutable_requirements(), Requirements(id));
    request.set_disable_auto_reset(flags_.no_auto_reset);
    request.set_relocatable(flags_.relocatable);
    VPOD_RETURN_IF_ERROR(client_.CreatePartition(request));
    return AwaitPartition(id);
  }
  absl::StatusOr<std::string> UpdatePartition(const std::string& id) {
    vipuuser::UpdatePartitionRequest request;
    VPOD_ASSIGN_OR_RETURN(*request.mutable_requirements(), Requirements(id));
    request.set_disable_auto_reset(flags_.no_auto_reset);
    request.set_relocatable(flags_.relocatable);
    VPOD_RETURN_IF_ERROR(client_.UpdatePartition(request));
    return AwaitPartition(id);
  }
  absl::StatusOr<std::string> ResetPartition(const std::string& id) {
    VPOD_RETURN_IF_ERROR(client_.ResetPartition(id));
    return AwaitPartition(id);
  }
  absl::StatusOr<std::string> RemovePartition(const std::string& id) {
    VPOD_RETURN_IF_ERROR(client_.RemovePartition(id));
    vipu::RemoveIpuofFiles(id);
    return "";
  }
  absl::StatusOr<std::string> RemoveAgent(const std::string& id) {
    VPOD_RETURN_IF_ERROR(client_.RemoveAgent(id));
    return "";
  }
  absl::StatusOr<std::string> RemoveCluster(const std::string& id) {
    VPOD_RETURN_IF_ERROR(client_.RemoveCluster(id));
    return "";
  }

  absl::StatusOr<std::string> ListAgents(const std::string&) {
    VPOD_ASSIGN_OR_RETURN(const auto agents, client_.ListAgents());
    return flags_.showjson ? MessagesJson(agents) : AgentsTable(agents);
  }
  absl::StatusOr<std::string> DiscoverAgents(const std::string&) {
    VPOD_ASSIGN_OR_RETURN(const auto agents, client_.DiscoverAgents(/*add=*/false));
    return flags_.showjson ? MessagesJson(agents) : DiscoveredTable(agents);
  }
  absl::StatusOr<std::string> GetAgent(const std::string& id) {
    VPOD_ASSIGN_OR_RETURN(const auto agent, client_.GetAgent(id));
    return flags_.showjson ? MessageJson(agent) + "\n" : AgentText(agent);
  }
  absl::StatusOr<std::string> ListClusters(const std::string&) {
    VPOD_ASSIGN_OR_RETURN(const auto clusters, client_.ListClusters());
    return flags_.showjson ? ClustersJson(clusters) : ClustersTable(clusters);
  }
  absl::StatusOr<std::string> GetCluster(const std::string& id) {
    VPOD_ASSIGN_OR_RETURN(const auto clusters, client_.ListClusters());
    for (const auto& cluster : clusters) {
      if (cluster.id() != id) continue;
      if (flags_.showjson) return ClusterJson(cluster);
      VPOD_ASSIGN_OR_RETURN(const auto agents, client_.ListAgents());
      return ClusterText(cluster, agents);
    }
    return absl::NotFoundError(absl::StrCat("Cluster ", id, " does not exist."));
  }
  absl::StatusOr<std::string> ListAllocations(const std::string&) {
    VPOD_ASSIGN_OR_RETURN(const auto allocations, client_.ListAllocations());
    return flags_.showjson ? MessagesJson(allocations) : AllocationsTable(allocations, admin_);
  }
  absl::StatusOr<std::string> GetAllocation(const std::string& id) {
    VPOD_ASSIGN_OR_RETURN(const auto allocations, client_.ListAllocations());
    for (const auto& allocation : allocations) {
      if (allocation.id() == id)
        return flags_.showjson ? MessageJson(allocation) + "\n" : AllocationText(allocation);
    }
    return absl::NotFoundError(absl::StrCat("Allocation ", id, " does not exist."));
  }
  absl::StatusOr<std::string> ListPartitions(const std::string&) {
    VPOD_ASSIGN_OR_RETURN(const auto partitions, client_.ListPartitions());
    if (flags_.showjson) return PartitionsJson(partitions);
    return PartitionsTable(partitions, admin_, vipu::Environment("VIPU_CLI_LIST_COMPAT") == "2021");
  }
  absl::StatusOr<std::string> GetPartition(const std::string& id) {
    if (flags_.ipuof_configs) return IpuofConfigs(id);
    if (!flags_.gcd.empty()) return Usage("Flag --gcd needs --ipuof-configs.");
    VPOD_ASSIGN_OR_RETURN(const auto partition, client_.GetPartition(id));
    return flags_.showjson ? PartitionJson(partition) : PartitionText(partition);
  }

 private:
  absl::StatusOr<std::string> IpuofConfigs(const std::string& id) {
    if (!flags_.gcd.empty()) {
      VPOD_ASSIGN_OR_RETURN(const uint32_t gcd, Number(flags_.gcd, "gcd", 0));
      VPOD_ASSIGN_OR_RETURN(const auto config, client_.GetPartitionConfig(id, gcd));
      return vipu::IpuofJson(config);
    }
    VPOD_ASSIGN_OR_RETURN(const auto partition, client_.GetPartition(id));
    std::string text;
    for (uint32_t gcd = 0; gcd < partition.requirements().num_gcds(); ++gcd) {
      VPOD_ASSIGN_OR_RETURN(const auto config, client_.GetPartitionConfig(id, gcd));
      absl::StrAppend(&text, "IPUoF configuration for GCD ", gcd, ":\n", vipu::IpuofJson(config));
    }
    return text;
  }

  absl::StatusOr<vipuuser::PartitionRequirements> Requirements(const std::string& id) {
    if (flags_.size.empty()) return Usage("A partition needs --size.");
    if (!flags_.gcd_sync_replicas.empty() && !flags_.total_num_replicas.empty() &&
        flags_.gcd_sync_replicas != flags_.total_num_replicas) {
      return Usage(
          "Flags --gcd-sync-replicas and --total-num-replicas are two names of one value.");
    }
    vipuuser::PartitionRequirements r;
    r.set_id(id);
    VPOD_ASSIGN_OR_RETURN(const uint32_t size, Number(flags_.size, "size", 0));
    VPOD_ASSIGN_OR_RETURN(const uint32_t gcds, Number(flags_.num_gcds, "num-gcds", 0));
    VPOD_ASSIGN_OR_RETURN(const uint32_t replicas,
                          Number(flags_.gcd_sync_replicas.empty() ? flags_.total_num_replicas
                                                                  : flags_.gcd_sync_replicas,
                                 "total-num-replicas", 0));
    VPOD_ASSIGN_OR_RETURN(const uint32_t ilds, Number(flags_.num_ilds, "num-ilds", 0));
    r.set_size(size);
    r.set_num_gcds(gcds);
    r.set_num_replicas(replicas);
    r.set_num_ilds(ilds);
    if (!flags_.index.empty()) {
      VPOD_ASSIGN_OR_RETURN(const uint32_t index, Number(flags_.index, "index", 0));
      r.mutable_index()->set_index(index);
    }
    r.set_allocation_id(flags_.allocation);
    r.set_cluster_id(flags_.cluster);
    r.set_reconfigurable(flags_.reconfigurable);
    r.set_sync_type(flags_.sync_type);
    r.set_ipu_link_routing(flags_.routing);
    r.set_gw_link_routing(flags_.gw_routing);
    r.set_shared(flags_.shared);
    return r;
  }

  // Waits for ACTIVE and leaves the IPUoF files for the caller.
  absl::StatusOr<std::string> AwaitPartition(const std::string& id) {
    if (flags_.no_wait) return "";
    VPOD_RETURN_IF_ERROR(client_.WaitUntilActive(id));
    VPOD_ASSIGN_OR_RETURN(const auto partition, client_.GetPartition(id));
    VPOD_RETURN_IF_ERROR(vipu::WriteIpuofFiles(partition, client_.config().address()));
    return "";
  }

  const bool admin_;
  const Flags& flags_;
  vipu::Client& client_;
};

using Handler = absl::StatusOr<std::string> (Cli::*)(const std::string& id);

const std::set<std::string>& PartitionFlags() {
  static const std::set<std::string> flags = {"--size",
                                              "--num-gcds",
                                              "--gcd-sync-replicas",
                                              "--total-num-replicas",
                                              "--routing",
                                              "--gw-routing",
                                              "--sync-type",
                                              "--cluster",
                                              "--allocation",
                                              "--index",
                                              "--num-ilds",
                                              "--reconfigurable",
                                              "--no-auto-reset",
                                              "--relocatable",
                                              "--shared",
                                              "--no-wait"};
  return flags;
}

struct Command {
  const char* verb;
  const char* noun;
  bool admin_only;
  bool has_id;
  Handler handler;
  std::set<std::string> flags;
};

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"create", "agent", true, true, &Cli::CreateAgent, {"--host", "--port"}},
      {"list", "agent", true, false, &Cli::ListAgents, {}},
      {"get", "agent", true, true, &Cli::GetAgent, {}},
      {"remove", "agent", true, true, &Cli::RemoveAgent, {}},
      {"discover", "agent", true, false, &Cli::DiscoverAgents, {}},
      {"create",
       "cluster",
       true,
       true,
       &Cli::CreateCluster,
       {"--agents", "--num-ipulinkdomains", "--topology", "--cluster-topology"}},
      {"list", "cluster", true, false, &Cli::ListClusters, {}},
      {"get", "cluster", true, true, &Cli::GetCluster, {}},
      {"remove", "cluster", true, true, &Cli::RemoveCluster, {}},
      {"list", "allocation", false, false, &Cli::ListAllocations, {}},
      {"get", "allocation", false, true, &Cli::GetAllocation, {}},
      {"create", "partition", false, true, &Cli::CreatePartition, PartitionFlags()},
      {"update", "partition", false, true, &Cli::UpdatePartition, PartitionFlags()},
      {"list", "partition", false, false, &Cli::ListPartitions, {}},
      {"get", "partition", false, true, &Cli::GetPartition, {"--gcd", "--ipuof-configs"}},
      {"remove", "partition", false, true, &Cli::RemovePartition, {}},
      {"reset", "partition", false, true, &Cli::ResetPartition, {"--no-wait"}},
  };
  return commands;
}

void AddOptions(CLI::App& app, Flags& f, std::vector<std::string>& words) {
  app.add_option("words", words, "verb, noun and id");
  app.add_option("-H,--api-host", f.config.host, "Controller host, or host:port");
  app.add_option("--api-port", f.config.port, "Controller port (8090)");
  app.add_option("--api-user-id", f.config.user_id, "User");
  app.add_option("--api-access-key", f.config.access_key, "Access key");
  app.add_option("--config", f.config.config_file, "Client configuration file");
  app.add_option("--timeout", f.timeout, "Limit of an operation in seconds (120)");
  app.add_flag("--showjson", f.showjson, "JSON instead of tables");
  app.add_flag("--version", f.version, "Version of this tool");
  app.add_flag("--server-version", f.server_version, "Version and address of the controller");
  app.add_option("--host", f.host, "Agent's host");
  app.add_option("--port", f.port, "Agent's port (8080)");
  app.add_option("--agents", f.agents, "Agents of a cluster, comma-separated, rack by rack");
  app.add_option("--num-ipulinkdomains", f.num_ipulinkdomains, "IPU-Link domains of a cluster (1)");
  app.add_option("--topology", f.topology, "mesh or torus");
  app.add_option("--cluster-topology", f.cluster_topology, "none, mesh, looped or switched");
  app.add_option("--size", f.size, "IPUs of a partition, a power of two");
  app.add_option("--num-gcds,--gcds", f.num_gcds, "Graph compilation domains (1)");
  app.add_option("--gcd-sync-replicas", f.gcd_sync_replicas, "Replicas over the partition");
  app.add_option("--total-num-replicas", f.total_num_replicas, "Replicas over the partition");
  app.add_option("--routing", f.routing, "dnc, swnc, ringswnc or btnc");
  app.add_option("--gw-routing", f.gw_routing, "default or ring");
  app.add_option("--sync-type", f.sync_type, "pod-native-default or c2-compatible");
  app.add_option("--cluster", f.cluster, "Cluster to create in");
  app.add_option("--allocation", f.allocation, "Allocation to create in");
  app.add_option("--index", f.index, "Position: IPUs index*size … of the allocation");
  app.add_option("--num-ilds", f.num_ilds, "IPU-Link domains of the partition");
  app.add_option("--gcd", f.gcd, "GCD of --ipuof-configs");
  app.add_flag("--reconfigurable", f.reconfigurable,
               "Programs choose sub-devices when they attach");
  app.add_flag("--no-auto-reset", f.no_auto_reset, "Do not return from ERROR by itself");
  app.add_flag("--relocatable", f.relocatable, "The controller may move the partition on errors");
  app.add_flag("--shared", f.shared, "Other users may use the devices");
  app.add_flag("--no-wait", f.no_wait, "Do not wait for ACTIVE");
  app.add_flag("--ipuof-configs,--ipu-configs,--ipuof-config", f.ipuof_configs,
               "IPUoF configurations as JSON");
}

const std::set<std::string>& GlobalFlags() {
  static const std::set<std::string> flags = {
      "words",    "--api-host", "--api-port", "--api-user-id", "--api-access-key",
      "--config", "--timeout",  "--showjson", "--version",     "--server-version",
      "--help"};
  return flags;
}

// Singular of a noun.
std::string Singular(const std::string& noun) {
  return noun.size() > 1 && noun.back() == 's' ? noun.substr(0, noun.size() - 1) : noun;
}

absl::StatusOr<const Command*> FindCommand(const std::string& tool, bool admin,
                                           const std::string& verb, const std::string& noun) {
  bool verb_known = false, noun_known = false;
  for (const Command& command : Commands()) {
    verb_known = verb_known || verb == command.verb;
    noun_known = noun_known || noun == command.noun;
    if (verb == command.verb && noun == command.noun && (admin || !command.admin_only))
      return &command;
  }
  if (!verb_known) return Usage(absl::StrCat("Unknown verb '", verb, "'."));
  if (!noun_known)
    return Usage(noun.empty() ? absl::StrCat("What to ", verb, "?")
                              : absl::StrCat("Unknown noun '", noun, "'."));
  return Usage(absl::StrCat("Cannot ", verb, " ", noun, " with ", tool, "."));
}

// Whether messages can carry it (valid UTF-8) and an answer about it is one line.
bool IsTextLine(absl::string_view text) {
  size_t continuation = 0;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) == 0x80) {
      if (continuation-- == 0) return false;
    } else if (continuation != 0 || byte < 0x20 || byte == 0x7f || byte >= 0xf8) {
      return false;
    } else {
      continuation = byte < 0xc0 ? 0 : byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    }
  }
  return continuation == 0;
}

int ServerVersion(const std::string& tool, vipu::Client& client) {
  const auto info = client.ServerInfo();
  if (!info.ok()) {
    std::fprintf(stderr, "%s: error: %s\n", tool.c_str(),
                 std::string(info.status().message()).c_str());
    return 1;
  }
  std::printf("version: %s\nhost: %s\n", info->version().c_str(),
              client.config().address().c_str());
  return 0;
}

}  // namespace

int VipuMain(int argc, char** argv, bool admin) {
  const std::string tool = admin ? "vipu-admin" : "vipu";
  const auto usage_error = [&](absl::string_view message) {
    std::fprintf(stderr, "%s: error: %s Try '%s --help'.\n", tool.c_str(),
                 std::string(message).c_str(), tool.c_str());
    return 2;
  };
  for (int i = 1; i < argc; ++i) {
    if (!IsTextLine(argv[i])) {
      return usage_error(
          absl::StrCat("Argument '", absl::CHexEscape(argv[i]), "' is no text of one line."));
    }
  }
  Flags flags;
  std::vector<std::string> words;
  CLI::App app(admin ? "Administers a virtual IPU-POD." : "Requests IPUs of a virtual IPU-POD.",
               tool);
  app.footer(kFooter);
  AddOptions(app, flags, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError& error) {
    const std::string text = error.what();
    return usage_error(
        absl::StrCat("Unknown flag: ", text.substr(text.find_last_of(' ') + 1), "."));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    const bool repeated = absl::StrContains(text, "At Most");
    return usage_error(absl::StrCat("Flag ", text.substr(0, text.find(':')),
                                    repeated ? " is given more than once." : " needs a value."));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return usage_error(absl::StrCat(error.what(), "."));
  }
  if (flags.version) {
    std::printf("version: %s\n", kVersion);
    return 0;
  }
  uint32_t timeout = 0;
  if (!absl::SimpleAtoi(flags.timeout, &timeout) || timeout < 1) {
    return usage_error(absl::StrCat("Flag --timeout needs a number of seconds of 1 or more, not '",
                                    flags.timeout, "'."));
  }
  // create agent has a --host and a --port of its own.
  const auto config = vipu::DiscoverConfig(flags.config);
  if (!config.ok()) return usage_error(absl::StrCat(config.status().message(), "."));
  vipu::Client client(*config, std::chrono::seconds(timeout));
  if (flags.server_version) return ServerVersion(tool, client);

  if (words.empty()) return usage_error("No command given.");
  std::string verb = words[0] == "delete" ? "remove" : words[0];
  const std::string noun = words.size() > 1 ? Singular(words[1]) : "";
  const auto command = FindCommand(tool, admin, verb, noun);
  if (!command.ok()) return usage_error(command.status().message());
  const size_t expected = (*command)->has_id ? 3 : 2;
  if (words.size() < expected) return usage_error(absl::StrCat(verb, " ", noun, " needs an id."));
  if (words.size() > expected)
    return usage_error(absl::StrCat("Unexpected argument '", words[expected], "'."));
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() > 0 && !GlobalFlags().contains(name) && !(*command)->flags.contains(name)) {
      return usage_error(absl::StrCat("Unknown flag: ", name, "."));
    }
  }
  const std::string id = (*command)->has_id ? words[2] : "";
  Cli cli(admin, flags, client);
  const auto result = (cli.*(*command)->handler)(id);
  const bool on_object = !id.empty();
  if (!result.ok()) {
    const std::string message(result.status().message());
    const bool usage = absl::IsInvalidArgument(result.status()) &&
                       (message.rfind("Flag", 0) == 0 || message.rfind("Invalid id", 0) == 0 ||
                        message.find(" needs --") != std::string::npos);
    if (usage) return usage_error(message);
    if (on_object) {
      std::fprintf(stderr, "%s %s (%s): failed. %s\n", verb.c_str(), noun.c_str(), id.c_str(),
                   message.c_str());
    } else {
      std::fprintf(stderr, "%s: error: %s\n", tool.c_str(), message.c_str());
    }
    return 1;
  }
  if (result->empty()) {
    std::printf("%s %s (%s): success.\n", verb.c_str(), noun.c_str(), id.c_str());
  } else {
    std::fputs(result->c_str(), stdout);
  }
  return 0;
}

}  // namespace vpod::tools
