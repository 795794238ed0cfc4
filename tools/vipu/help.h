// The texts of --help, made of the table of commands. Man pages are made of these texts
// (deploy/man).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::tools {

// Help of the tool, of a verb, or of a command, by the words before --help.
absl::StatusOr<std::string> Help(bool admin, const std::vector<std::string>& words);

// The command line whose help comes closest to the words: "vipu create partition --help".
std::string HelpCommand(bool admin, const std::vector<std::string>& words);

}  // namespace vpod::tools
