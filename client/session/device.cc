#include "client/session/device.h"

#include "absl/strings/str_cat.h"

namespace vpod::session {

absl::Status Device::CheckProcess(absl::string_view what) const {
  if (getpid() == process_) return absl::OkStatus();
  // gRPC does not work in a child of a process that uses it.
  return absl::FailedPreconditionError(
      absl::StrCat("the ", what, " is of process ", process_,
                   " and cannot be used in a process forked from it: open one ",
                   is_model() ? "there" : "in a process that is not forked"));
}

}  // namespace vpod::session
