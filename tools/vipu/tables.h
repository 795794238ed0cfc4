// What the V-IPU tools print: tables to the character (spec/vipu.md 8) and JSON. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::tools {

// `admin` adds the two leading columns of vipu-admin; `without_user` drops the User column
// (VIPU_CLI_LIST_COMPAT=2021).
std::string PartitionsTable(const std::vector<vipuuser::Partition>& partitions, bool admin,
                            bool without_user = false);
std::string PartitionText(const vipuuser::Partition& partition);
std::string PartitionsJson(const std::vector<vipuuser::Partition>& partitions);
std::string PartitionJson(const vipuuser::Partition& partition);

std::string AllocationsTable(const std::vector<vipuuser::Allocation>& allocations, bool admin);
std::string AllocationText(const vipuuser::Allocation& allocation);

std::string AgentsTable(const std::vector<vipuadmin::Agent>& agents);
std::string AgentText(const vipuadmin::Agent& agent);
std::string DiscoveredTable(const std::vector<vipuadmin::DiscoveredAgent>& agents);

std::string ClustersTable(const std::vector<vipuadmin::Cluster>& clusters);
std::string ClusterText(const vipuadmin::Cluster& cluster,
                        const std::vector<vipuadmin::Agent>& agents);
// Shape known from scripts: [ { "spec": { "ipu_link_domains": [ { "ipus": [ … ] } ] }, … } ].
std::string ClustersJson(const std::vector<vipuadmin::Cluster>& clusters);
std::string ClusterJson(const vipuadmin::Cluster& cluster);

// Any message with its proto names; a vector as an array.
std::string MessageJson(const google::protobuf::Message& message);
template <class Message>
std::string MessagesJson(const std::vector<Message>& messages) {
  std::string text = "[";
  for (const Message& message : messages)
    text += (text.size() > 1 ? ",\n" : "\n") + MessageJson(message);
  return text + (messages.empty() ? "]\n" : "\n]\n");
}

}  // namespace vpod::tools
