// The profile of a program while runs are added to it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/pva/database.h"
#include "device/base/units.h"

namespace vpod::profile {

// An open file: opening it takes longer than adding runs. No lock is held between runs, so that
// others may read. A process that forks must not go on in the child.
class Recording {
 public:
  // FailedPrecondition: another session has replaced the profile. Otherwise as the database says.
  static absl::StatusOr<std::unique_ptr<Recording>> Open(const std::string& path,
                                                         absl::string_view session);

  // Whether the file was removed or replaced: its path leads elsewhere.
  bool HasMoved() { return database_->HasMoved(); }
  // Adds runs, the first of which has this number, and what `more` writes, if there is one, in one
  // transaction.
  absl::Status AddRuns(uint32_t first, absl::Span<const base::Cycles> cycles,
                       const std::function<void(pva::Database&)>& more = nullptr);

 private:
  explicit Recording(std::unique_ptr<pva::Database> database)
      : database_(std::move(database)),
        insert_(database_->Prepare("INSERT INTO run VALUES(?,?)")) {}

  const std::unique_ptr<pva::Database> database_;
  pva::Statement insert_;
};

}  // namespace vpod::profile
