// The file of a profile: where it is, and how it is opened for reading.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/pva/database.h"

namespace vpod::pva {

// The file that `path` names, or the profile.pop in the directory that it names. NotFound: there is
// none. PermissionDenied: it cannot be read. InvalidArgument: it is a pipe, a device or the like.
// Messages name the file or the directory.
absl::StatusOr<std::string> FindProfile(const std::string& path);

// Opens what FindProfile returned. Where a process was killed while it added a run, SQLite takes
// the half of it back, which is a change of the file: the first statement fails with
// FailedPrecondition if the user may not write there. InvalidArgument: a file beside it, which
// SQLite would use, is none that a writer of profiles makes.
absl::StatusOr<std::unique_ptr<Database>> OpenProfile(const std::string& file);

}  // namespace vpod::pva
