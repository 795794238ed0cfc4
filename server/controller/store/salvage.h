// What can be saved of a store whose log of changes is damaged (wal.h): the longest intact prefix,
// as it was after the last change that is certain, and a list of what lies behind the damage.
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

// Of the bytes of both files, and of what is known to have been acknowledged. DataLoss when the
// database itself is damaged.
absl::StatusOr<Salvaged> Salvage(absl::string_view database, absl::string_view log,
                                 const std::optional<WalPosition>& acknowledged);

}  // namespace vpod::controller
