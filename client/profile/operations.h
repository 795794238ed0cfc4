// The instructions that a program executes, numbered for its profile.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "device/model/liveness.h"
#include "device/program/executable.h"

namespace vpod::profile {

struct ProgramOperation {
  uint32_t ipu;
  model::InstructionPlace place;
  uint64_t executions;  // in a run; of an If both sides, of a While all rounds
};

class ProgramOperations {
 public:
  ProgramOperations(const program::v1::Executable& executable, uint32_t program);

  // By IPU, function and index.
  const std::vector<ProgramOperation>& all() const { return all_; }
  // The position in `all`; none for an instruction that the program does not execute.
  std::optional<uint32_t> NumberOf(uint32_t ipu, model::InstructionPlace place) const;
  // How often functions of an IPU are executed in a run.
  const std::vector<uint64_t>& ExecutionsOn(uint32_t ipu) const { return executions_[ipu]; }

 private:
  std::vector<ProgramOperation> all_;
  std::vector<std::vector<uint64_t>> executions_;            // [ipu][function]
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> first_;  // of (IPU, function)
};

}  // namespace vpod::profile
