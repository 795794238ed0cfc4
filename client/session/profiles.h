// The profiles that POPLAR_ENGINE_OPTIONS asks for (docs/profiles.md).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/compiler/compiler.h"
#include "client/engine_options/engine_options.h"
#include "client/profile/profile.h"
#include "client/session/device.h"

namespace vpod::session {

// The facts that profiles state about the IPUs that a program is compiled for.
struct ProfiledTarget {
  bool is_model = false;
  double clock_hz = model::Topology().clock_hz;
  JobPart part;
};

// Writes the profiles of a program that is about to be loaded, and records its runs. Null if none
// are asked for, if another instance writes them, and, after a line in the log, if the disk is
// full. Other errors are Profiler::Create's.
absl::StatusOr<std::unique_ptr<profile::Profiler>> StartProfiles(const compiler::Compiled& compiled,
                                                                 const EngineOptions& options,
                                                                 const ProfiledTarget& target);

// The same of a program that is compiled only: what is known before the first run.
absl::Status WriteProfiles(const compiler::Compiled& compiled, const ProfiledTarget& target);

}  // namespace vpod::session
