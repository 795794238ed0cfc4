// How instances and replicas are laid out over hosts, and the checks that need no server
// (spec/poprun.md 3, 5 and 8).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/launch/options.h"

namespace vpod::launch {

struct Layout {
  std::vector<std::string> hosts;  // as shown; {"localhost"} without --host
  bool hosts_given = false;        // mpirun gets the hosts
  // This machine is one of the hosts, but not the first. mpirun deals to it first, so that the
  // hosts have to be named instance by instance. Set by code that knows the machine.
  bool this_host_follows = false;
  uint32_t instances = 1, replicas = 1, ipus_per_replica = 1, ilds = 1;

  uint32_t local_replicas() const { return replicas / instances; }
  uint32_t instances_per_host() const { return instances / static_cast<uint32_t>(hosts.size()); }
  uint32_t ipus_per_instance() const { return local_replicas() * ipus_per_replica; }
  uint32_t ipus() const { return replicas * ipus_per_replica; }
  // Instances are dealt to the hosts in order, the same number to each.
  uint32_t host_of(uint32_t instance) const { return instance / instances_per_host(); }
  uint32_t local_index(uint32_t instance) const { return instance % instances_per_host(); }
};

// Checks and lays out; `warnings` receives lines for the log.
absl::StatusOr<Layout> MakeLayout(const Options& options, std::vector<std::string>& warnings);

// Whether instances and replicas divide over the IPU-Link domains; again when the V-IPU server has
// said how many there are.
absl::Status CheckIlds(const Layout& layout);

// The topology table, with its line breaks.
std::string TopologyTable(const Layout& layout);

}  // namespace vpod::launch
