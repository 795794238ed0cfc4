#include "client/compiler/planned_program.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"

namespace vpod::compiler {

bool IsPlannedProgram() { return std::getenv(kPlanDirectoryVariable) != nullptr; }

bool IsExplainedProgram() {
  return IsPlannedProgram() && std::getenv(kPlanExplainVariable) != nullptr;
}

CompileOptions OptionsForPlan(CompileOptions options) {
  const char* replicas = std::getenv(kPlanReplicasVariable);
  if (replicas != nullptr) {
    if (!absl::SimpleAtoi(replicas, &options.total_replicas))
      options.total_replicas = 0;  // refused
  } else if (options.total_replicas == 1) {
    options.total_replicas = std::max(2u, options.tensor_shards);
  }
  options.allow_out_of_memory = true;
  return options;
}

}  // namespace vpod::compiler
