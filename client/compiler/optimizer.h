// The optimisers of compiler.h as instructions of an executable, and the names of their variables.
#pragma once

#include <limits>
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

// State of an optimiser for each variable.
struct OptimizerState {
  const char* prefix;    // of its name; the variable's name stands behind it
  bool float16 = false;  // its type, otherwise FLOAT32
  float initial = 0;     // its first value

  program::v1::DataType type() const {
    return float16 ? program::v1::FLOAT16 : program::v1::FLOAT32;
  }
};

// A number of updates after which nothing of the first one is left: beta^kManyUpdates is 0. It is
// finite, so that checks for results that are not let it pass.
inline constexpr float kManyUpdates = std::numeric_limits<float>::max();

struct OptimizerStep {
  program::v1::Instruction instruction;  // without operands
  std::vector<OptimizerState> state;     // in the order of the instruction's operands
  bool counts_updates = true;  // whether it reads the number of updates, otherwise kManyUpdates
};
OptimizerStep StepOf(const Optimizer& optimizer, float gradient_scale);

// InvalidArgument names the hyper-parameter that is out of its range, and the range.
absl::Status CheckHyperParameters(const Optimizer& optimizer);
absl::Status CheckLearningRate(float rate);

// The group of a variable, numbered from 1; 0 if it is in none.
size_t GroupOf(const ProgramSpec& spec, absl::string_view variable);

// Whether an update of a variable, or its accumulator, has float16 elements beside the variable.
bool HasFloat16State(const ProgramSpec& spec, absl::string_view variable);

}  // namespace vpod::compiler
