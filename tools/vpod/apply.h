// Gives a POD the objects of its description.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tools/vpod/pod.h"
#include "tools/vpod/pod_file.h"

namespace vpod::tools {

// Makes the clusters, allocations, users and partitions that the POD does not have yet, and waits
// until the partitions are ACTIVE. `made` hears of each. Other objects are left alone.
// FailedPrecondition: objects that are there differ from their description; NotFound: an id in it
// leads to nothing. Then nothing is made. After other errors, which name the object and its line, a
// further call goes on where this one ended.
absl::Status ApplyDescription(const Pod& pod, const PodShape& shape,
                              const PodDescription& description,
                              const std::function<void(const std::string&)>& made);

}  // namespace vpod::tools
