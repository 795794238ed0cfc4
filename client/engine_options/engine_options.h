// Options of the engine that users set in the environment: POPLAR_ENGINE_OPTIONS, a JSON object of
// strings, which poprun hands on to its instances. Options of the real library that have no
// effect here are accepted; others are reported.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod {

inline constexpr uint32_t kMostRuns = 1 << 23;  // recorded of a program

// Which profiles are written, and where: client/profile.
struct ReportOptions {
  bool graph = false;           // autoReport.outputGraphProfile: memory, variables, program tree
  bool execution = false;       // autoReport.outputExecutionProfile: what runs did, too
  std::string directory = ".";  // autoReport.directory
  uint32_t runs = 2;            // autoReport.executionProfileProgramRunCount
};

struct EngineOptions {
  bool check_finite = false;         // debug.checkFinite
  bool sharing = true;               // vpod.sharing
  bool allow_out_of_memory = false;  // debug.allowOutOfMemory; true with a profile unless set
  ReportOptions report;
  std::map<std::string, std::string> all;  // as they were given
  std::vector<std::string> unknown;        // names that the real library does not have either
};

// InvalidArgument names the variable and the option.
absl::StatusOr<EngineOptions> ParseEngineOptions(const std::string& text);
// From this process's environment.
absl::StatusOr<EngineOptions> ReadEngineOptions();

}  // namespace vpod
