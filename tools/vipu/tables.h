// Output of the V-IPU tools: tables to the character (spec/vipu.md 8). Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tools/vipu/listing.h"

namespace vpod::tools {

// `admin` adds the two leading columns of vipu-admin; `without_user` drops the User column
// (VIPU_CLI_LIST_COMPAT=2021).
Listing PartitionsListing(const std::vector<vipuuser::Partition>& partitions, bool admin,
                          bool without_user = false);
// With all GCDs, or the one given, which the partition must have.
std::string PartitionText(const vipuuser::Partition& partition,
                          std::optional<uint32_t> only_gcd = std::nullopt);

// The allocations of vipu, and of vipu-admin.
Listing AllocationsListing(const std::vector<vipuuser::Allocation>& allocations);
Listing AllocationsListing(const std::vector<vipuadmin::Allocation>& allocations);
std::string AllocationText(const vipuuser::Allocation& allocation);
std::string AllocationText(const vipuadmin::Allocation& allocation);
Listing IpuAttributesListing(const std::vector<vipuuser::IpuAttributes>& ipus);

Listing AgentsListing(const std::vector<vipuadmin::Agent>& agents);
std::string AgentText(const vipuadmin::Agent& agent);
Listing DiscoveredListing(const std::vector<vipuadmin::DiscoveredAgent>& agents);

Listing ClustersListing(const std::vector<vipuadmin::Cluster>& clusters);
std::string ClusterText(const vipuadmin::GetClusterReply& reply);

Listing UsersListing(const std::vector<vipuadmin::User>& users);
std::string UserText(const vipuadmin::User& user);

// The results of `test cluster`, which arrive one by one; failures follow the table.
std::string TestHead(const std::string& cluster_id);
std::string TestRow(const vipuadmin::TestClusterReply& result);
std::string TestTail(const std::vector<vipuadmin::TestClusterReply>& results);

// Events that are there, and rows of those that follow.
Listing EventsListing(const std::vector<vipuadmin::Event>& events);
std::string EventHead();
std::string EventRow(const vipuadmin::Event& event);

}  // namespace vpod::tools
