// Salvage of a store whose log of changes is damaged (wal.h): the longest intact prefix, as it was
// after the last change that is certain, and a list of the changes behind the damage.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/controller/store/wal.h"

namespace vpod::controller {

struct Salvaged {
  std::string database;   // without a log
  std::string uncertain;  // lines for people; empty: nothing is lost
};

// Salvages the bytes of both files, given the position known to have been acknowledged. DataLoss if
// the database itself is damaged.
absl::StatusOr<Salvaged> Salvage(absl::string_view database, absl::string_view log,
                                 const std::optional<WalPosition>& acknowledged);

}  // namespace vpod::controller
