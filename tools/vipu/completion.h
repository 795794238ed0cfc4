// Answers of vipu and vipu-admin to shells that complete their command lines.
#pragma once

#include <string>
#include <vector>

namespace vpod::tools {

// Returns the completions of the last word (it may be empty), one line each: the whole word, and
// after a tab its meaning. Errors give none; nor does a controller that is silent for two seconds.
std::string Complete(bool admin, const std::vector<std::string>& words);

}  // namespace vpod::tools
