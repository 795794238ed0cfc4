#include "tools/vipu/commands.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/vipu/flags.h"
#include "tools/vipu/json.h"

namespace vpod::tools {
namespace {

const FlagList kPartitionFlags = {
    &kNumGcds,   &kReconfigurable, &kGcdSyncReplicas, &kTotalNumReplicas, &kRouting,
    &kGwRouting, &kSyncType,       &kCluster,         &kAllocation,       &kIndex,
    &kNumIlds,   &kShared,         &kNoAutoReset,     &kRelocatable,      &kNoWait,
};

FlagList WithSize(FlagList flags) {
  flags.insert(flags.begin(), &kSize);
  return flags;
}

const FlagList kListFlags = {&kOutput, &kSortBy, &kFilter, &kNoHeaders, &kWatch};

FlagList WithListFlags(FlagList flags) {
  flags.insert(flags.end(), kListFlags.begin(), kListFlags.end());
  return flags;
}

constexpr char kListDetails[] =
    "COLUMN is a heading of '-o wide', in any case, with blanks or dashes; values are compared "
    "with\n"
    "what the table shows, in any case. Names sort as people count: ag2 before ag10. '-o name' is\n"
    "an id a line, '-o csv' has all columns of '-o wide'. JSON and YAML are the objects whose "
    "rows\n"
    "remain, as with --showjson; with --watch, JSON is one line each time.";

constexpr char kUpdatePartitionDetails[] =
    "Omitted flags keep their values, except for what follows from a changed one: after a change "
    "of size\n"
    "or cluster, routing, IPU-Link domains and position are chosen again, and after one of\n"
    "--reconfigurable the synchronisation. =false turns a switch off. Devices, generation and "
    "IPUoF\n"
    "files are new; jobs end.";

constexpr char kWaitDetails[] =
    "Waits for --timeout at most; after that it fails and says in which state the partition is.\n"
    "'--for removed' succeeds also if the partition never existed. A partition in ERROR may "
    "become\n"
    "ACTIVE by itself, so '--for active' goes on waiting then.";

constexpr char kTestDetails[] =
    "Without a flag that selects tests, all run. A row is printed as its test ends; failures "
    "follow\n"
    "below the table. Exit status 1 when something failed.";

constexpr char kJobsDetails[] =
    "A change that takes a user's right to a partition needs --end-jobs or --keep-jobs, and so\n"
    "does a new access key of a user who has such a right. Either way the IPUoF files that the\n"
    "user has fetched are void at once.\n"
    "--end-jobs ends the user's jobs and no others. Partitions that the user created and has no\n"
    "right to any more are removed; shared ones become yours, because others may have jobs there.\n"
    "--keep-jobs lets the jobs go on until they end by themselves, but they cannot attach again;\n"
    "such partitions become yours.";

constexpr char kBackupDetails[] =
    "The file holds the keys of partitions and the hashes of access keys; it has mode 0600.\n"
    "'vipu-server --restore <file>' replaces a storage with it.";

constexpr char kCompletionDetails[] =
    "For this shell:  source <(TOOL completion SHELL), with fish TOOL completion fish | source\n"
    "Installed files of the package do the same for all shells.";

}  // namespace

const std::vector<Command>& Commands() {
  constexpr bool kBoth = false, kAdminOnly = true;
  // clang-format off
  // verb, noun, tools, summary,
  //   required flags, optional flags, function, details
  static const std::vector<Command> commands = {
      {"create", "partition", kBoth, "take IPUs and wait until they are usable",
       {&kSize}, kPartitionFlags, CreatePartition},
      {"list", "partition", kBoth, "partitions and their states",
       {}, kListFlags, ListPartitions, kListDetails},
      {"get", "partition", kBoth, "one partition with its devices, or its IPUoF configuration",
       {}, {&kGcd, &kIpuofConfigs}, GetPartition},
      {"update", "partition", kBoth, "rebuild a partition under its id",
       {}, WithSize(kPartitionFlags), UpdatePartition, kUpdatePartitionDetails},
      {"reset", "partition", kBoth, "end its jobs and configure it again",
       {}, {&kNoWait}, ResetPartition},
      {"remove", "partition", kBoth, "return its IPUs",
       {}, {}, RemovePartition},
      {"wait", "partition", kBoth, "wait until it is in a state",
       {&kFor}, {}, WaitPartition, kWaitDetails},

      {"create", "allocation", kAdminOnly, "make agents of a cluster visible to users",
       {&kCluster, &kAgents}, {&kUsers}, CreateAllocation},
      {"list", "allocation", kBoth, "allocations and their agents",
       {}, kListFlags, ListAllocations, kListDetails},
      {"get", "allocation", kBoth, "one allocation",
       {}, {}, GetAllocation},
      {"update", "allocation", kAdminOnly, "change its agents or users",
       {}, {&kAgents, &kUsers, &kEndJobs, &kKeepJobs}, UpdateAllocation, kJobsDetails},
      {"remove", "allocation", kAdminOnly, "return its agents to the cluster",
       {}, {}, RemoveAllocation},

      {"list", "ipu-attr", kBoth, "attributes of all IPUs, as gc-info shows them",
       {}, kListFlags, ListIpuAttributes, kListDetails},

      {"create", "agent", kAdminOnly, "add an IPU-Machine",
       {&kHost}, {&kPort}, CreateAgent},
      {"list", "agent", kAdminOnly, "IPU-Machines and whether they answer",
       {}, kListFlags, ListAgents, kListDetails},
      {"get", "agent", kAdminOnly, "one IPU-Machine and its IPUs",
       {}, {}, GetAgent},
      {"update", "agent", kAdminOnly, "change its address",
       {}, {&kHost, &kPort}, UpdateAgent},
      {"reset", "agent", kAdminOnly, "restart it and clear its errors",
       {}, {}, ResetAgent},
      {"remove", "agent", kAdminOnly, "forget an IPU-Machine",
       {}, {}, RemoveAgent},
      {"discover", "agent", kAdminOnly, "machines that have registered; --add makes them agents",
       {}, WithListFlags({&kAdd}), DiscoverAgents, kListDetails},
      {"inject", "agent", kAdminOnly, "inject a fault, to test other software",
       {}, {&kFault, &kLink, &kIpu, &kError, &kRate, &kSeconds, &kClear},
       InjectFault, FaultsText()},

      {"create", "cluster", kAdminOnly, "make a cluster of agents, in the order of their cabling",
       {&kAgents}, {&kNumIpuLinkDomains, &kTopology, &kClusterTopology}, CreateCluster},
      {"list", "cluster", kAdminOnly, "clusters and their free IPUs",
       {}, kListFlags, ListClusters, kListDetails},
      {"get", "cluster", kAdminOnly, "one cluster and its agents",
       {}, {}, GetCluster},
      {"update", "cluster", kAdminOnly, "change its agents",
       {&kAgents}, {}, UpdateCluster},
      {"reset", "cluster", kAdminOnly, "retrain all links of a cluster without partitions",
       {}, {}, ResetCluster},
      {"remove", "cluster", kAdminOnly, "remove a cluster; its agents stay",
       {}, {}, RemoveCluster},
      {"test", "cluster", kAdminOnly, "test versions, cabling and links",
       {}, {&kTestVersions, &kTestCabling, &kTestSync, &kTestLinks, &kTestTraffic, &kTestGwLinks,
            &kForce},
       TestCluster, kTestDetails},

      {"create", "user", kAdminOnly, "add a user and write the user's configuration file",
       {}, {&kAdmin, &kAllocations}, CreateUser},
      {"list", "user", kAdminOnly, "users, roles and allocations",
       {}, kListFlags, ListUsers, kListDetails},
      {"get", "user", kAdminOnly, "one user",
       {}, {}, GetUser},
      {"update", "user", kAdminOnly, "change what a user may use, or the access key",
       {}, {&kAllocations, &kAllAllocations, &kNewAccessKey, &kEndJobs, &kKeepJobs}, UpdateUser,
       kJobsDetails},
      {"remove", "user", kAdminOnly, "forget a user",
       {}, {&kEndJobs, &kKeepJobs}, RemoveUser, kJobsDetails},

      {"list", "event", kAdminOnly, "what happened",
       {}, WithListFlags({&kFollow, &kObject, &kLimit}), ListEvents, kListDetails},

      {"backup", "", kAdminOnly, "copy the controller's storage, while it runs, to a new file",
       {}, {}, BackUp, kBackupDetails},

      {"completion", "bash", kBoth, "completion script for bash",
       {}, {}, PrintCompletion, kCompletionDetails},
      {"completion", "zsh", kBoth, "completion script for zsh",
       {}, {}, PrintCompletion, kCompletionDetails},
      {"completion", "fish", kBoth, "completion script for fish",
       {}, {}, PrintCompletion, kCompletionDetails},
  };
  // clang-format on
  return commands;
}

const FlagList& GlobalFlags() {
  static const FlagList flags = {
      &kApiHost, &kApiPort, &kApiUserId, &kApiAccessKey, &kConfig,        &kTlsCa, &kTlsCert,
      &kTlsKey,  &kTimeout, &kShowJson,  &kVersion,      &kServerVersion, &kHelp};
  return flags;
}

FlagList AllFlags() {
  FlagList flags = GlobalFlags();
  for (const Command& command : Commands()) {
    for (const FlagList* list : {&command.required, &command.optional}) {
      for (const Flag* flag : *list) {
        if (std::find(flags.begin(), flags.end(), flag) == flags.end()) flags.push_back(flag);
      }
    }
  }
  return flags;
}

bool Command::TakesId() const {
  const absl::string_view word = verb;
  return word != "list" && word != "discover" && word != "completion";
}

std::string Command::Name() const {
  const absl::string_view word = verb;
  if (TakesFile()) return verb;
  return absl::StrCat(verb, " ", noun, word == "list" || word == "discover" ? "s" : "");
}

std::string Command::Usage() const {
  std::string text = absl::StrCat(Name(), TakesFile() ? " <file>" : TakesId() ? " <id>" : "");
  for (const Flag* flag : required) absl::StrAppend(&text, " ", FlagText(*flag));
  return text;
}

std::string Singular(const std::string& noun) {
  return noun.size() > 1 && noun.back() == 's' ? noun.substr(0, noun.size() - 1) : noun;
}

std::string CanonicalVerb(const std::string& verb) { return verb == "delete" ? "remove" : verb; }

std::string FlagText(const Flag& flag, bool with_short) {
  std::string text;
  for (absl::string_view alias : absl::StrSplit(flag.aliases, ',', absl::SkipEmpty())) {
    if (with_short && alias.size() == 1) absl::StrAppend(&text, "-", alias, ", ");
  }
  return absl::StrCat(text, "--", flag.name, TakesWord(flag) ? " " : "", flag.value);
}

const char* ToolName(bool admin) { return admin ? "vipu-admin" : "vipu"; }

absl::StatusOr<const Command*> FindCommand(bool admin, const std::vector<std::string>& words) {
  if (words.empty()) return UsageError("No command given.");
  const std::string verb = CanonicalVerb(words[0]);
  const std::string noun = words.size() > 1 ? Singular(words[1]) : "";
  const Command* verb_known = nullptr;
  bool noun_known = false;
  for (const Command& command : Commands()) {
    if (verb_known == nullptr && verb == command.verb) verb_known = &command;
    noun_known = noun_known || noun == command.noun;
    const bool is_named = verb == command.verb && (command.TakesFile() || noun == command.noun);
    if (is_named && (admin || !command.admin_only)) return &command;
  }
  if (verb_known == nullptr) return UsageError(absl::StrCat("Unknown verb '", verb, "'."));
  if (noun.empty()) {
    return UsageError(absl::StrCat("'", verb, "' needs a noun, e.g. '", verb_known->Name(), "'."));
  }
  if (!noun_known) return UsageError(absl::StrCat("Unknown noun '", noun, "'."));
  return UsageError(absl::StrCat("Cannot ", verb, " ", noun, " with ", ToolName(admin), "."));
}

vipu::ConfigFlags ServerFlags(const Arguments& arguments) {
  return {.host = arguments.Text(kApiHost),
          .port = arguments.Text(kApiPort),
          .user_id = arguments.Text(kApiUserId),
          .access_key = arguments.Text(kApiAccessKey),
          .config_file = arguments.Text(kConfig),
          .tls = {.ca = arguments.Text(kTlsCa),
                  .certificate = arguments.Text(kTlsCert),
                  .key = arguments.Text(kTlsKey)}};
}

bool WantsJson(const Arguments& arguments) {
  const std::string format = arguments.Text(kOutput);
  return arguments.Switch(kShowJson) || format == "json" || format == "yaml";
}

std::string SubjectOf(const Command& command, const std::string& id) {
  return absl::StrCat(command.verb, command.TakesFile() ? "" : " ", command.noun, " (", id, "): ");
}

absl::Status Done(const Call& call, const absl::Status& status, const std::string& access_key) {
  if (!status.ok()) return status;
  if (call.arguments.Switch(kShowJson)) {
    Json object = {{"verb", call.command.verb}};
    if (!call.command.TakesFile()) object["noun"] = call.command.noun;
    object[call.command.TakesFile() ? "file" : "id"] = call.id;
    object["result"] = "success";
    if (!access_key.empty()) object["access_key"] = access_key;
    call.out << object.dump(2) << "\n";
    return absl::OkStatus();
  }
  call.out << SubjectOf(call.command, call.id) << "success.";
  if (!access_key.empty()) call.out << " Access key is '" << access_key << "'.";
  call.out << "\n";
  return absl::OkStatus();
}

}  // namespace vpod::tools
