#include "client/profile/recording.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::profile {

using pva::Database;

absl::StatusOr<std::unique_ptr<Recording>> Recording::Open(const std::string& path,
                                                           absl::string_view session) {
  VPOD_ASSIGN_OR_RETURN(auto database, Database::Open(path, Database::Mode::kWrite));
  {
    pva::Statement found = database->Prepare("SELECT value FROM meta WHERE key = 'session'");
    if (found.Next() && found.Text() != session)
      return absl::FailedPreconditionError(absl::StrCat(path, " is another session's now"));
  }
  // Waiting for the disk would slow down runs, and a profile may be lost in a power failure.
  database->Execute("PRAGMA synchronous = OFF");
  VPOD_RETURN_IF_ERROR(database->status());
  return std::unique_ptr<Recording>(new Recording(std::move(database)));
}

absl::Status Recording::AddRuns(uint32_t first, absl::Span<const base::Cycles> cycles,
                                const std::function<void(Database&)>& more) {
  database_->Execute("BEGIN");
  if (more) more(*database_);
  for (const base::Cycles run : cycles) insert_.Bind(first++).Bind(run.value()).Run();
  database_->Execute("COMMIT");
  return database_->status();
}

}  // namespace vpod::profile
