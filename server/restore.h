// Offline work on a storage that no controller uses: `--restore FILE` replaces it with a backup,
// `--salvage OUT` saves what is intact of a damaged one, `--check` says whether one is.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace vpod {

// Returns what was restored, in lines for people. The backup is verified and tried before anything
// is changed; from then on until the end the file `running` beside the storage has every start
// refused, and a restore that was interrupted is completed by running it again. The storage from
// before is kept as <storage>.before-restore-<number>.
//
// FailedPrecondition when a controller runs on the storage, InvalidArgument and DataLoss when the
// file is not a backup, or is damaged.
absl::StatusOr<std::string> Restore(const std::string& file, const std::string& storage);

// Writes what is intact of a storage as a backup to a new file, and says what is uncertain, in
// lines for people. The storage is only read. FailedPrecondition when a controller runs on it,
// DataLoss when nothing can be saved.
absl::StatusOr<std::string> Salvage(const std::string& storage, const std::string& out);

// Whether a controller would start on a storage. It is only read. DataLoss when it is damaged,
// FailedPrecondition when a controller runs on it or a restore was interrupted, NotFound when there
// is none.
absl::Status CheckStorage(const std::string& storage);

}  // namespace vpod
