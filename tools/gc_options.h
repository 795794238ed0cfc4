// Command lines and errors of the gc-* tools: Boost.Program_options' look and wording
// (spec/gc-tools.md 1).
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace vpod::tools {

namespace po = boost::program_options;

// A device id on a command line. Boost's own unsigned numbers take "-1" for 4294967295.
struct DeviceOption {
  uint32_t id = 0;
};
void validate(boost::any& value, const std::vector<std::string>& words, DeviceOption*, int);

// Parses; -1 to go on, else the exit status: 0 after --help, 2 after wrong usage, which is
// reported.
int ParseGcOptions(const std::string& tool, int argc, char** argv,
                   const po::options_description& options, po::variables_map& values);

// One line on stderr: "gc-info: error: what".
void GcError(const std::string& tool, const absl::Status& status);

}  // namespace vpod::tools
