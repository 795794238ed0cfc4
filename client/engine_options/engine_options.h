// Options of the engine: users set them in the environment, in POPLAR_ENGINE_OPTIONS, a JSON object
// of strings that poprun hands on to its instances, and programs may give others in its place.
// Options of the real library that have no effect here are accepted; others are reported.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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
  std::string source = "engine options";   // what messages say has given them
};

// From names and values. InvalidArgument names the source and the option.
absl::StatusOr<EngineOptions> MakeEngineOptions(const std::map<std::string, std::string>& options,
                                                absl::string_view source = "engine options");
// From a JSON object, as the environment has it.
absl::StatusOr<EngineOptions> ParseEngineOptions(const std::string& text);
// From this process's environment.
absl::StatusOr<EngineOptions> ReadEngineOptions();

}  // namespace vpod
