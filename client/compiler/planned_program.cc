#include "client/compiler/planned_program.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/executable_file.h"
#include "device/base/sha256.h"
#include "device/base/status.h"

namespace vpod::compiler {

bool IsPlannedProgram() { return std::getenv(kPlanDirectoryVariable) != nullptr; }

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

absl::Status LeaveForPlan(const program::Executable& executable) {
  const std::string key = base::Sha256Hex(executable.Bytes());
  VPOD_RETURN_IF_ERROR(WriteExecutableFile(
      absl::StrCat(std::getenv(kPlanDirectoryVariable), "/", key, kExecutableFileEnd), key,
      executable));
  // Others may be locked by threads that wait for input.
  std::fflush(stdout);
  std::fflush(stderr);
  // The program must not go on to its end, where it may save weights.
  _exit(0);
}

}  // namespace vpod::compiler
