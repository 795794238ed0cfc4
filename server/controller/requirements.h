// Requirements of partitions: rules between size, GCDs, replicas, routing and sync (spec/vipu.md 6,
// 9), and the defaults. Pure.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::controller {

// Facts about a cluster that the rules need.
struct ClusterFacts {
  std::string id;
  uint32_t ipus_per_ild = 0;
  bool is_torus = false;
  bool has_gw_links = false;
  uint32_t looped_ilds = 0;  // all ILDs of the cluster, when GW-Links close them to a ring
};

// Checks the requirements against a cluster and fills in every default but allocation and cluster.
// InvalidArgument says what is allowed. `r` is undefined after an error.
absl::Status CompleteRequirements(const ClusterFacts& cluster, vipuuser::PartitionRequirements& r);

// Poplar target options of a partition with completed requirements.
std::map<std::string, std::string> TargetOptions(const vipuuser::PartitionRequirements& r);

// "PENDING" of PS_PENDING.
std::string StateText(vipuuser::PartitionState state);

}  // namespace vpod::controller
