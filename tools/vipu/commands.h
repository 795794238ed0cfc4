// The table of commands, from which parsing, help, completion and man pages follow.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/vipu/client.h"
#include "tools/vipu/arguments.h"

namespace vpod::tools {

struct Command;

// A command that runs.
struct Call {
  bool admin;  // of vipu-admin
  const Command& command;
  std::string id;  // empty for commands without one
  const Arguments& arguments;
  vipu::Client& client;
  std::ostream& out;
};

struct Command {
  const char* verb;
  const char* noun;  // singular; empty: the verb stands alone, and takes a file in place of an id
  bool admin_only;
  const char* summary;
  FlagList required;
  FlagList optional;
  absl::Status (*run)(const Call& call);
  std::string details = "";  // more text for --help

  bool TakesId() const;
  bool TakesFile() const { return *noun == '\0'; }
  // Position of the id or the file among the words.
  size_t IdPosition() const { return TakesFile() ? 1 : 2; }
  // "create partition <id> --size <n>"
  std::string Usage() const;
  std::string Name() const;  // "list partitions"
};

const std::vector<Command>& Commands();
// Flags of every command.
const FlagList& GlobalFlags();
// Flags of all commands of both tools.
FlagList AllFlags();

// "partition" from "partitions".
std::string Singular(const std::string& noun);
// `delete` is an alias of `remove`.
std::string CanonicalVerb(const std::string& verb);
// "--size <n>", or "-H, --api-host <host>" when `with_short`.
std::string FlagText(const Flag& flag, bool with_short = false);

// The command of the first two words. UsageError: there is none, or not of this tool.
absl::StatusOr<const Command*> FindCommand(bool admin, const std::vector<std::string>& words);
const char* ToolName(bool admin);
// Returns the flags that concern the controller.
vipu::ConfigFlags ServerFlags(const Arguments& arguments);

// Whether JSON is wanted by --showjson, or YAML or JSON by --output.
bool WantsJson(const Arguments& arguments);

// "create partition (p1): ", with which the command's answer begins.
std::string SubjectOf(const Command& command, const std::string& id);
// Prints "<verb> <noun> (<id>): success." and a new access key, if the status is OK; with
// --showjson an object of verb, noun, id, result and the key. Returns the status.
absl::Status Done(const Call& call, const absl::Status& status, const std::string& access_key = "");

// Faults for the help of `inject`: name, flags and meaning, a line each.
std::string FaultsText();

// Implementations of the commands, in one file a group of nouns.
// hardware.cc
absl::Status CreateAgent(const Call& call);
absl::Status ListAgents(const Call& call);
absl::Status GetAgent(const Call& call);
absl::Status UpdateAgent(const Call& call);
absl::Status ResetAgent(const Call& call);
absl::Status RemoveAgent(const Call& call);
absl::Status DiscoverAgents(const Call& call);
absl::Status CreateCluster(const Call& call);
absl::Status ListClusters(const Call& call);
absl::Status GetCluster(const Call& call);
absl::Status UpdateCluster(const Call& call);
absl::Status ResetCluster(const Call& call);
absl::Status RemoveCluster(const Call& call);
absl::Status ListIpuAttributes(const Call& call);
// access.cc
absl::Status CreateAllocation(const Call& call);
absl::Status ListAllocations(const Call& call);
absl::Status GetAllocation(const Call& call);
absl::Status UpdateAllocation(const Call& call);
absl::Status RemoveAllocation(const Call& call);
absl::Status CreateUser(const Call& call);
absl::Status ListUsers(const Call& call);
absl::Status GetUser(const Call& call);
absl::Status UpdateUser(const Call& call);
absl::Status RemoveUser(const Call& call);
// partitions.cc
absl::Status CreatePartition(const Call& call);
absl::Status ListPartitions(const Call& call);
absl::Status GetPartition(const Call& call);
absl::Status UpdatePartition(const Call& call);
absl::Status ResetPartition(const Call& call);
absl::Status RemovePartition(const Call& call);
absl::Status WaitPartition(const Call& call);
// diagnosis.cc
absl::Status TestCluster(const Call& call);
absl::Status ListEvents(const Call& call);
absl::Status InjectFault(const Call& call);
absl::Status BackUp(const Call& call);
// completion.cc
absl::Status PrintCompletion(const Call& call);

}  // namespace vpod::tools
