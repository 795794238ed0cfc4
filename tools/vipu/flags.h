// Every flag of vipu and vipu-admin, once: parsing, --help, completion and the man pages come from
// here. Which command takes which is in commands.cc.
#pragma once

#include <cstdint>

#include "device/arch/soc_error.h"

namespace vpod::tools {

// `value` is what --help shows and what completion offers: "a|b" is a choice, "<cluster>" an id of
// that noun, "<agent,…>" a list of them, "<file>" a file, empty a switch (given, =true or =false),
// "[=<s>]" a number that may be left out and is 1 then.
// Flags are told apart by address.
struct Flag {
  const char* name;  // without its dashes
  const char* value;
  const char* help;
  const char* aliases = "";  // comma-separated; one letter is a short flag
  uint32_t least = 0;        // of a whole number
};

// Flags of every command.
inline constexpr Flag kApiHost{"api-host", "<host>", "controller: host, or host:port (localhost)",
                               "H"};
inline constexpr Flag kApiPort{"api-port", "<n>", "port of the controller (8090)"};
inline constexpr Flag kApiUserId{"api-user-id", "<name>", "user id (the login name)"};
inline constexpr Flag kApiAccessKey{"api-access-key", "<key>", "access key of the user"};
inline constexpr Flag kConfig{"config", "<file>", "client configuration instead of ~/.vipu.hcl"};
inline constexpr Flag kTlsCa{"tls-ca", "<file>",
                             "authority of the POD's certificates, when it uses TLS"};
inline constexpr Flag kTlsCert{"tls-cert", "<file>", "our certificate"};
inline constexpr Flag kTlsKey{"tls-key", "<file>", "its key"};
inline constexpr Flag kTimeout{"timeout", "<s>",
                               "limit of an operation: seconds, or a time such as 2m (120)"};
inline constexpr Flag kShowJson{"showjson", "", "JSON instead of tables"};
inline constexpr Flag kVersion{"version", "", "version of this tool"};
inline constexpr Flag kServerVersion{"server-version", "", "version and address of the controller"};
inline constexpr Flag kHelp{"help", "", "this text; after a command, that command's", "h"};

// Flags of every list.
inline constexpr Flag kOutput{"output", "table|name|wide|csv|yaml|json", "form of the list (table)",
                              "o"};
inline constexpr Flag kSortBy{"sort-by", "<column>", "order of the rows"};
inline constexpr Flag kFilter{"filter", "<column=value,…>", "only rows that have all these values"};
inline constexpr Flag kNoHeaders{"no-headers", "", "no heading and no rules"};
inline constexpr Flag kWatch{"watch", "[=<s>]",
                             "print again at this interval in seconds (1), until interrupted"};

// Agents and clusters.
inline constexpr Flag kHost{"host", "<host>", "name or address of the machine's management"};
inline constexpr Flag kPort{"port", "<n>", "its port (8080)", "", 1};
inline constexpr Flag kAdd{"add", "", "add the machines that are not agents yet"};
inline constexpr Flag kAgents{"agents", "<agent,…>",
                              "agents in order: rack by rack, bottom to top"};
inline constexpr Flag kNumIpuLinkDomains{"num-ipulinkdomains", "<n>", "IPU-Link domains (1)", "",
                                         1};
inline constexpr Flag kTopology{"topology", "mesh|torus", "IPU-Links of a domain (mesh)"};
inline constexpr Flag kClusterTopology{"cluster-topology", "none|mesh|looped|switched",
                                       "GW-Links between domains (none; mesh with several)"};

// Allocations and users.
inline constexpr Flag kUsers{"users", "<user,…>", "users who may use it"};
inline constexpr Flag kAllocations{"allocations", "<allocation,…>",
                                   "the only allocations the user may use, '' for none (all)"};
inline constexpr Flag kAllAllocations{"all-allocations", "", "the user may use all allocations"};
inline constexpr Flag kAdmin{"admin", "", "an administrator"};
inline constexpr Flag kNewAccessKey{"new-access-key", "", "replace the user's access key"};
inline constexpr Flag kEndJobs{
    "end-jobs", "", "end the jobs of users who lose a right, and remove the partitions they lose"};
inline constexpr Flag kKeepJobs{
    "keep-jobs", "", "let jobs of users who lose a right go on; you become the partitions' owner"};

// Partitions.
inline constexpr Flag kSize{"size", "<n>", "IPUs, a power of two", "", 1};
inline constexpr Flag kNumGcds{
    "num-gcds", "<n>",
    "graph compilation domains: configurations and processes (1; one for each IPU-Link domain if "
    "there are several)",
    "gcds", 1};
inline constexpr Flag kReconfigurable{"reconfigurable", "",
                                      "programs choose sub-devices when they attach"};
inline constexpr Flag kGcdSyncReplicas{"gcd-sync-replicas", "<n>",
                                       "replicas that synchronise over the partition", "", 1};
inline constexpr Flag kTotalNumReplicas{"total-num-replicas", "<n>",
                                        "another name of --gcd-sync-replicas", "", 1};
inline constexpr Flag kRouting{"routing", "dnc|swnc|ringswnc|btnc",
                               "IPU-Link routing (fits size and topology)"};
inline constexpr Flag kGwRouting{"gw-routing", "default|ring", "GW-Link routing (default)"};
inline constexpr Flag kSyncType{"sync-type", "pod-native-default|c2-compatible",
                                "synchronisation (c2-compatible if reconfigurable)"};
inline constexpr Flag kCluster{"cluster", "<cluster>", "cluster to take IPUs of"};
inline constexpr Flag kAllocation{"allocation", "<allocation>",
                                  "allocation to take IPUs of (the first with room)"};
inline constexpr Flag kIndex{"index", "<k>",
                             "fixed position: begins at IPU k*size of the allocation"};
inline constexpr Flag kNumIlds{"num-ilds", "<n>", "number of IPU-Link domains to use", "", 1};
inline constexpr Flag kNoAutoReset{
    "no-auto-reset", "",
    "no recovery from ERROR when a lost agent returns, and no reset after the last client"};
inline constexpr Flag kRelocatable{"relocatable", "",
                                   "the controller may move it to other IPUs after a failure"};
inline constexpr Flag kShared{"shared", "", "users of its allocation may use its devices"};
inline constexpr Flag kNoWait{"no-wait", "", "do not wait until it is ACTIVE"};
inline constexpr Flag kFor{"for", "active|removed|pending|error", "state to wait for"};
inline constexpr Flag kGcd{"gcd", "<n>", "this GCD only"};
inline constexpr Flag kIpuofConfigs{"ipuof-configs", "", "IPUoF configuration as JSON",
                                    "ipu-configs,ipuof-config"};

// Tests of a cluster. The names are those of the API's test kinds.
inline constexpr Flag kTestVersions{"versions", "", "agents run the same version"};
inline constexpr Flag kTestCabling{"cabling", "", "cables lead where the topology says"};
inline constexpr Flag kTestSync{"sync", "", "Sync-Links toggle"};
inline constexpr Flag kTestLinks{"links", "", "IPU-Links train to full width and speed"};
inline constexpr Flag kTestTraffic{"traffic", "", "data moves between IPUs without errors"};
inline constexpr Flag kTestGwLinks{"gw-links", "", "GW-Links carry data"};
inline constexpr Flag kForce{"force", "",
                             "run even if partitions are ACTIVE; their jobs may be disturbed"};

// Events and faults.
inline constexpr Flag kFollow{"follow", "", "keep printing new events until interrupted", "f"};
inline constexpr Flag kObject{"object", "<noun/id>", "only of this object, e.g. partition/p1"};
inline constexpr Flag kLimit{"limit", "<n>", "at most this many, the newest (1000)", "", 1};
inline constexpr Flag kFault{
    "fault",
    "link-down|link-corrupts|link-errors|cable-swapped|ipu-error|over-temperature|"
    "memory-parity|agent-hang",
    "fault to inject, see below"};
inline constexpr Flag kClear{"clear", "", "end the faults of the agent, or only those of --link"};
inline constexpr Flag kLink{
    "link", "<link>", "link, e.g. IPU3.NLC_E_0A; 'vipu-admin test cluster' prints these names"};
inline constexpr Flag kIpu{"ipu", "<n>", "IPU by its PCIe id, 0 to 3"};
inline constexpr Flag kError{"error", arch::kSocErrors, "error in the IPU's status register"};
inline constexpr Flag kRate{"rate", "<x>", "correctable errors per GB"};
inline constexpr Flag kSeconds{"seconds", "<s>", "how long"};

}  // namespace vpod::tools
