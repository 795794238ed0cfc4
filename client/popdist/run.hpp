// Runs of a job's instances in step.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/session/session.h"

namespace popdist {

// Session::Run after all instances have come to the same program; without other instances, or with
// POPDIST_RUN_DISABLE_SYNC=1, at once. `debug_name` stands in the error. popdist_error, on all
// instances: they would run different programs.
absl::StatusOr<vpod::base::Cycles> run(vpod::session::Session& session, const std::string& program,
                                       const std::string& debug_name = "");

}  // namespace popdist
