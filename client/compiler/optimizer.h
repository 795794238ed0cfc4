// The optimisers of compiler.h as instructions of an executable, and the names of their variables.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/compiler/compiler.h"
#include "device/program/executable.h"

namespace vpod::compiler {

// "SGD", "Adam" …
const char* NameOf(const Optimizer& optimizer);
// The same of an instruction; empty if it updates no weights.
const char* OptimizerName(const program::v1::Instruction& instruction);

struct OptimizerStep {
  program::v1::Instruction instruction;  // without operands
  // Prefixes of the names of its state, behind which the variable's name stands, in the order of
  // the instruction's operands.
  std::vector<const char*> state;
};
OptimizerStep StepOf(const Optimizer& optimizer, float gradient_scale);

// InvalidArgument names the hyper-parameter that is out of its range, and the range.
absl::Status CheckHyperParameters(const Optimizer& optimizer);
absl::Status CheckLearningRate(float rate);

// The group of a variable, numbered from 1; 0 if it is in none.
size_t GroupOf(const ProgramSpec& spec, absl::string_view variable);

}  // namespace vpod::compiler
