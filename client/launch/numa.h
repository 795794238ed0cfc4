// NUMA nodes of this host and the share of them that an instance gets (--process-placement).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace vpod::launch {

struct NumaNode {
  uint32_t id = 0;
  std::vector<uint32_t> cpus;
};

// Nodes that have CPUs, by id, as the kernel's directory tells; empty where it tells nothing.
std::vector<NumaNode> ReadNumaNodes(const std::string& directory = "/sys/devices/system/node");

// The nodes of instance `index` of `instances` on a host: consecutive ones, divided evenly. With
// more instances than nodes, neighbours share one.
std::vector<NumaNode> ShareOfNodes(const std::vector<NumaNode>& nodes, uint32_t index,
                                   uint32_t instances);

// Binds this thread and all that it starts or becomes to the CPUs and the memory of `nodes`. The
// error is the operating system's refusal.
absl::Status BindTo(const std::vector<NumaNode>& nodes);

}  // namespace vpod::launch
