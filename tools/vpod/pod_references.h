// Whether the ids by which objects of a POD's file name each other lead anywhere.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "tools/vpod/pod_file.h"

namespace vpod::tools {

// Ids of what a POD has.
struct KnownIds {
  std::set<std::string> agents, clusters, allocations;
};

// NotFound: an id is that of no object, neither in the file nor in the POD. The message names the
// line, and the ids that there are: "pod.yaml:7: partition p4: there is no allocation a9; there is
// a1".
absl::Status CheckReferences(const PodDescription& description, const KnownIds& of_pod);

}  // namespace vpod::tools
