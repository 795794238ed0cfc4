// Options of the engine that users set in the environment: POPLAR_ENGINE_OPTIONS, a JSON object of
// strings, which poprun hands on to its instances. "debug.checkFinite" and "vpod.sharing" have an
// effect, see LoadOptions; others are those of the real library and are ignored.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "client/session/device.h"

namespace vpod::session {

// InvalidArgument names the variable and the option.
absl::StatusOr<LoadOptions> ParseEngineOptions(const std::string& text);
// From this process's environment.
absl::StatusOr<LoadOptions> ReadEngineOptions();

}  // namespace vpod::session
