#include "client/profile/operations.h"

namespace vpod::profile {

ProgramOperations::ProgramOperations(const program::v1::Executable& executable, uint32_t program) {
  const auto& entry = executable.programs(static_cast<int>(program));
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    const auto& text = executable.ipus(static_cast<int>(ipu));
    const uint32_t function = entry.functions(static_cast<int>(ipu));
    const std::vector<uint64_t> possible = program::Executions(text, function),
                                planned = program::PlannedExecutions(text, function);
    executions_.emplace_back(possible.size());
    for (uint32_t f = 0; f < possible.size(); ++f) {
      if (possible[f] == 0) continue;
      executions_[ipu][f] = planned[f];
      first_[{ipu, f}] = static_cast<uint32_t>(all_.size());
      const auto& instructions = text.functions(static_cast<int>(f)).instructions();
      for (uint32_t i = 0; i < static_cast<uint32_t>(instructions.size()); ++i)
        all_.push_back({ipu, {f, i}, planned[f]});
    }
  }
}

std::optional<uint32_t> ProgramOperations::NumberOf(uint32_t ipu,
                                                    model::InstructionPlace place) const {
  const auto first = first_.find({ipu, place.function});
  if (first == first_.end()) return std::nullopt;
  return first->second + place.index;
}

}  // namespace vpod::profile
