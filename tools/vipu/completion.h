// What vipu and vipu-admin answer to shells that complete their command lines.
#pragma once

#include <string>
#include <vector>

namespace vpod::tools {

// What the last word (it may be empty) could become, one line each: the whole word, and after a tab
// what it is. Errors give nothing; a controller that does not answer, nothing after two seconds.
std::string Complete(bool admin, const std::vector<std::string>& words);

}  // namespace vpod::tools
