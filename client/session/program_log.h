// Entries of a session in the logs of Poplar and GCL (client/sdk_log/sdk_log.h).
#pragma once

#include "client/engine_options/engine_options.h"
#include "client/session/device.h"
#include "device/program/executable.h"

namespace vpod::session {

// The device, the executable that is loaded on it, and at level DEBUG its streams and collectives.
void LogExecutable(const Device& device, const program::Executable& executable);

// Options of POPLAR_ENGINE_OPTIONS that do not exist.
void WarnOfUnknown(const EngineOptions& options);

}  // namespace vpod::session
