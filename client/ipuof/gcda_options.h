// Runtime options that users set in the environment: GCDA_OPTIONS, a JSON object of strings, and
// the variables of single options (spec/gc-tools.md 1.7).
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/ipuof/v1/ipuof.pb.h"

namespace vpod::ipuof {

// The options that have an effect here; others of the real runtime are accepted and ignored.
struct GcdaOptions {
  bool enable_monitoring = false;   // temperature and power become visible to monitors
  bool monitor_utilisation = true;  // utilisation does
  v1::SimulatedSocError simulated_error;
};

// From these variables; the ones of single options go before GCDA_OPTIONS. InvalidArgument names
// the variable and the option.
absl::StatusOr<GcdaOptions> ParseGcdaOptions(const std::map<std::string, std::string>& environment);
// From this process's environment.
absl::StatusOr<GcdaOptions> ReadGcdaOptions();

}  // namespace vpod::ipuof
