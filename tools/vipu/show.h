// What list and get commands have in common.
#pragma once

#include <ostream>

#include "absl/status/statusor.h"
#include "tools/vipu/commands.h"
#include "tools/vipu/json.h"

namespace vpod::tools {

// Prints a result as JSON with --showjson, else what `text` makes of it.
template <class Result, class Text>
absl::Status Show(const Call& call, const absl::StatusOr<Result>& result, const Text& text) {
  if (!result.ok()) return result.status();
  if (call.arguments.Switch(kShowJson)) {
    call.out << ToJson(*result).dump(2) << "\n";
  } else {
    call.out << text(*result);
  }
  return absl::OkStatus();
}

}  // namespace vpod::tools
