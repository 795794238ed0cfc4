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
  bool hosts_given = false;        // mpirun gets -H
  uint32_t instances = 1, replicas = 1, ipus_per_replica = 1, ilds = 1;

  uint32_t local_replicas() const { return replicas / instances; }
  uint32_t instances_per_host() const { return instances / static_cast<uint32_t>(hosts.size()); }
  uint32_t ipus_per_instance() const { return local_replicas() * ipus_per_replica; }
  uint32_t ipus() const { return replicas * ipus_per_replica; }
};

// "host0,host1", "host[0-2,4]"; InvalidArgument for a bad range or a duplicate.
absl::StatusOr<std::vector<std::string>> ParseHosts(const std::string& text);

// Checks and lays out; `warnings` receives lines for the log.
absl::StatusOr<Layout> MakeLayout(const Options& options, std::vector<std::string>& warnings);

// The topology table, with its line breaks.
std::string TopologyTable(const Layout& layout);

}  // namespace vpod::launch
