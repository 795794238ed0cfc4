#include "client/session/leave_for_plan.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/compiler/executable_file.h"
#include "client/compiler/planned_program.h"
#include "device/base/sha256.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"

namespace vpod::session {

absl::Status LeaveForPlan(const program::Executable& executable) {
  const std::string key = base::Sha256Hex(executable.Bytes());
  VPOD_RETURN_IF_ERROR(
      compiler::WriteExecutableFile(absl::StrCat(std::getenv(compiler::kPlanDirectoryVariable), "/",
                                                 key, compiler::kExecutableFileEnd),
                                    key, executable));
  return absl::CancelledError(
      "planned: 'vpod plan' has the compiled program, which ends here instead of running");
}

absl::Status LeaveForPlanQuietly(const program::Executable& executable) {
  const absl::Status left = LeaveForPlan(executable);
  if (!absl::IsCancelled(left)) return left;
  const base::UniqueFd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (nowhere.valid()) dup2(nowhere.get(), STDERR_FILENO);
  return left;
}

}  // namespace vpod::session
