// Ids of V-IPU objects: agents, clusters, allocations, partitions and users.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace vpod::base {

inline constexpr size_t kMaxObjectId = 63;

// InvalidArgument with the rule unless the text matches [A-Za-z0-9][A-Za-z0-9._-]{0,62}: no blank
// and no bar, since scripts cut columns.
absl::Status CheckObjectId(absl::string_view id);

}  // namespace vpod::base
