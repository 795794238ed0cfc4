// A POD described in a file: `vpod up -f pod.yaml`.
#pragma once

#include <map>
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

  // Lines of the file, from 1: of an object, such as "partition p4", of a value of it, such as
  // "partition p4 allocation", and of an id in a list, such as "user alice allocations a1".
  std::map<std::string, int> lines;
  std::string path;  // of the file; empty: there is none
  // Returns "pod.yaml:7: " for one of these; empty: the file does not have it.
  std::string PlaceOf(const std::string& what) const;
};

// InvalidArgument: "pod.yaml:7: …", what is wrong there and what is allowed; NotFound and
// FailedPrecondition: the file cannot be read. The controller knows more rules, such as sizes that
// fit.
absl::StatusOr<PodDescription> ReadPodFile(const std::string& path);
absl::StatusOr<PodDescription> ParsePodFile(const std::string& path, const std::string& text);

}  // namespace vpod::tools
