#include "client/poptorch/losses.h"

#include <set>
#include <vector>

#include "client/poptorch/uses.h"

namespace vpod::poptorch {

absl::StatusOr<ValueId> FindLoss(const Tape& tape) {
  std::set<ValueId> marked;
  for (const LossMark& loss : tape.losses) marked.insert(loss.value);
  // Losses that each value depends on, itself included. Few values depend on any.
  std::vector<std::set<ValueId>> losses(tape.values.size());
  std::set<ValueId> inner;  // losses that feed another one
  for (const Record& record : tape.records) {
    std::set<ValueId> read;
    ForEachUse(record, [&](ValueId value) {
      const auto& of_value = losses[static_cast<size_t>(value)];
      read.insert(of_value.begin(), of_value.end());
    });
    for (ValueId output : record.outputs) {
      if (output == kNoValue) continue;
      losses[static_cast<size_t>(output)] = read;
      if (!marked.contains(output)) continue;
      losses[static_cast<size_t>(output)].insert(output);
      inner.insert(read.begin(), read.end());
    }
  }
  std::vector<ValueId> final_losses;
  for (ValueId loss : marked) {
    if (!inner.contains(loss)) final_losses.push_back(loss);
  }
  if (final_losses.empty()) return absl::InvalidArgumentError("Couldn't find a loss in graph!");
  if (final_losses.size() > 1) {
    return absl::InvalidArgumentError(
        "Multiple independent losses found in graph. Graph must have one final loss. Wrap final "
        "graph loss in poptorch.identity_loss.");
  }
  return final_losses.front();
}

}  // namespace vpod::poptorch
