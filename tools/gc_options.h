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

// Any other whole number, likewise. CheckRange, which every one of them needs, refuses words that
// are none: it knows the range.
struct NumberOption {
  uint32_t value = 0;
  std::string no_number = "";  // what was given in its place
};
void validate(boost::any& value, const std::vector<std::string>& words, NumberOption*, int);
std::ostream& operator<<(std::ostream& stream, const NumberOption& number);  // for --help
// InvalidArgument naming the option and the range.
absl::Status CheckRange(const std::string& option, NumberOption number, uint32_t low,
                        uint32_t high);

// InvalidArgument naming the option and the words it takes.
absl::Status CheckOneOf(const std::string& option, const std::string& word,
                        const std::vector<std::string>& allowed);

// "Poplar version: 3.2.0", which --version prints: public scripts read it.
std::string VersionLine();

// Answers a shell that completes a command line (client/render/completion.h); whether one asked.
bool AnswerCompletion(int argc, char** argv, const po::options_description& options);

// Parses; -1 to go on, else the exit status: 0 after --help and --version and an answer to a shell,
// 2 after wrong usage, which is reported. `hidden` options are understood, but --help leaves them
// out.
int ParseGcOptions(const std::string& tool, int argc, char** argv,
                   const po::options_description& options, po::variables_map& values,
                   const po::options_description& hidden = po::options_description());

// Reports wrong usage that the options alone do not show; the exit status, 2.
int UsageError(const std::string& tool, const std::string& what);

// One line on stderr: "gc-info: error: what"; the exit status, 1. With -j, which ParseGcOptions
// remembers, also {"error": "what"} on stdout, as after wrong usage, or `json` in its place.
int GcError(const std::string& tool, const absl::Status& status, const std::string& json = "");

}  // namespace vpod::tools
