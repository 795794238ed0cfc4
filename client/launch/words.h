// Words as a shell makes them of a text, and as the log shows them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::launch {

// Splits like a shell: blanks and line breaks separate, single and double quotes and backslashes
// protect. InvalidArgument: a quote that is not closed.
absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& text);

// A command as the log shows it: every word after the path in single quotes.
std::string QuotedCommand(const std::string& path, const std::vector<std::string>& arguments);

// For exec: the words, which have to outlive it, and nullptr.
std::vector<char*> ExecWords(const std::vector<std::string>& words);

}  // namespace vpod::launch
