// The values that records of a tape read.
#pragma once

#include <variant>
#include <vector>

#include "client/poptorch/program.h"

namespace vpod::poptorch {

// Calls `visit(ValueId)` for each value that the record reads.
template <class Visit>
void ForEachUse(const Record& record, const Visit& visit) {
  for (const Argument& argument : record.arguments) {
    if (const auto* use = std::get_if<Use>(&argument)) visit(use->value);
    const auto* uses = std::get_if<std::vector<Use>>(&argument);
    if (uses == nullptr) continue;
    for (const Use& use : *uses) {
      if (use.value != kNoValue) visit(use.value);
    }
  }
}

}  // namespace vpod::poptorch
