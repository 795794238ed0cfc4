// Brings databases of older formats to the present one.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace vpod::controller {

// Number of the present format. A change of state.proto that an older vipu-server would misread, or
// that this one would misread in an older database, raises it and adds a step to the upgrade.
inline constexpr int kStoreFormat = 2;

// Objects of a kind, serialised, by id.
using StoredObjects = std::map<std::string, std::string>;

// Format 1 to 2: partitions name their first IPU instead of every IPU. Returns the new partitions.
// DataLoss when an object cannot be read.
absl::StatusOr<StoredObjects> UpgradePartitions1To2(const StoredObjects& clusters,
                                                    const StoredObjects& partitions);

}  // namespace vpod::controller
