// Completion of command lines. The scripts for shells are small: they ask the tool itself what
// could follow, so that they know its commands and the objects that exist.
#pragma once

#include <string>
#include <vector>

namespace vpod::tools {

// The hidden first word by which shells ask.
inline constexpr char kCompleteWord[] = "__complete";
// Candidate that stands for the names of files.
inline constexpr char kFiles[] = ":files";

// What the last word (it may be empty) could become, one line each: the whole word, and after a tab
// what it is. Errors give nothing; a controller that does not answer, nothing after two seconds.
std::string Complete(bool admin, const std::vector<std::string>& words);

}  // namespace vpod::tools
