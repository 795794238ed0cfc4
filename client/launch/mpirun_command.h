// The mpirun command of a job (spec/poprun.md 6).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/launch/layout.h"

namespace vpod::launch {

// Facts about the partition that the command needs; absent in offline mode.
struct MpiTarget {
  std::string server_host;
  uint32_t server_port = 8090;
  std::string partition_id;
  std::optional<uint32_t> node_device_id;  // reconfigurable partitions
  std::string target_options;
};

// Words after mpirun's path, in the order of the real tool. Reads the environment for what is
// forwarded: instances on other hosts do not inherit it.
std::vector<std::string> MpirunArguments(const Options& options, const Layout& layout,
                                         const std::optional<MpiTarget>& target, bool numa_wrapper);

}  // namespace vpod::launch
