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
  // In a planned run, in which conditions hold: 0 on the other side of an If; all rounds of a
  // While.
  uint64_t executions;
};

class ProgramOperations {
 public:
  ProgramOperations(const program::v1::Executable& executable, uint32_t program);

  // By IPU, function and index; those of both sides of an If.
  const std::vector<ProgramOperation>& all() const { return all_; }
  // The position in `all`; none for an instruction that is not of the program.
  std::optional<uint32_t> NumberOf(uint32_t ipu, model::InstructionPlace place) const;
  // How often functions of an IPU are executed in a planned run; none for those that are not of the
  // program.
  const std::vector<std::optional<uint64_t>>& ExecutionsOn(uint32_t ipu) const {
    return executions_[ipu];
  }

 private:
  std::vector<ProgramOperation> all_;
  std::vector<std::vector<std::optional<uint64_t>>> executions_;  // [ipu][function]
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> first_;       // of (IPU, function)
};

}  // namespace vpod::profile
