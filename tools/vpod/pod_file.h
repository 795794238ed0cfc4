// A POD described in a file: `vpod up -f pod.yaml`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/vipu/v1/vipuadmin.pb.h"
#include "proto/vipu/v1/vipuuser.pb.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

// Contents of the file. Values that it omits are not set in the messages; their defaults hold.
struct PodDescription {
  std::string name;  // empty: none
  PodRequest request;
  std::vector<vipuadmin::Cluster> clusters;  // none: one of all machines, as without a file
  std::vector<vipuadmin::Allocation> allocations;
  std::vector<vipuadmin::User> users;
  std::vector<vipuuser::CreatePartitionRequest> partitions;
};

// InvalidArgument: "pod.yaml:7: …", what is wrong there and what is allowed; NotFound: the file
// cannot be read. The controller knows more rules, such as sizes that fit.
absl::StatusOr<PodDescription> ReadPodFile(const std::string& path);
absl::StatusOr<PodDescription> ParsePodFile(const std::string& path, const std::string& text);

}  // namespace vpod::tools
