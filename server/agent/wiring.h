// How the IPUs of one partition are wired, as its configuration tells it: only what has both ends
// in the partition is known here. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "device/arch/topology.h"
#include "proto/vipu/v1/vipuagent.pb.h"

namespace vpod::agent {

class Wiring {
 public:
  // InvalidArgument when the IPU-Link domains are not equally large or a word is unknown.
  static absl::StatusOr<Wiring> Create(const vipuagent::AgentPartition& partition);

  // The partition's machines as a cluster of their own.
  const arch::ClusterShape& shape() const { return shape_; }
  // Management addresses by machine of `shape`.
  const std::vector<std::string>& hosts() const { return hosts_; }
  // IPUs of the partition by GCD, then routing id, as 4 × machine + position.
  const std::vector<uint32_t>& ipus() const { return ipus_; }
  uint32_t ipus_per_domain() const { return static_cast<uint32_t>(ipus_.size()) / shape_.ilds; }
  bool Contains(uint32_t ipu) const { return contained_[ipu]; }
  // Ports of `machine` that join two IPUs of the partition, and its GW-Links.
  std::vector<arch::Link> LinksOf(uint32_t machine) const;
  // The ports on the way between any two IPUs.
  std::set<uint32_t> RoutedPorts(uint32_t machine) const;
  absl::StatusOr<std::vector<arch::Hop>> Route(uint32_t from_ipu, uint32_t to_ipu) const {
    return arch::Route(shape_, routing_, from_ipu, to_ipu);
  }

 private:
  arch::ClusterShape shape_;
  arch::Routing routing_ = arch::Routing::kDnc;
  std::vector<std::string> hosts_;
  std::vector<uint32_t> ipus_;
  std::vector<bool> contained_;
};

}  // namespace vpod::agent
