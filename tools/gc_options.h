// Command lines and errors of the gc-* tools: Boost.Program_options' look and wording
// (spec/gc-tools.md 1).
#pragma once

#include <boost/program_options.hpp>
#include <string>

#include "absl/status/status.h"

namespace vpod::tools {

namespace po = boost::program_options;

// Parses; -1 to go on, else the exit status: 0 after --help, 2 after wrong usage, which is
// reported.
int ParseGcOptions(const std::string& tool, int argc, char** argv,
                   const po::options_description& options, po::variables_map& values);

// One line on stderr: "gc-info: error: what".
void GcError(const std::string& tool, const absl::Status& status);

}  // namespace vpod::tools
