// Completion of command lines. The scripts for shells are small: they ask the tool itself what
// could follow, so that they know its options and the objects that exist.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace vpod::render {

// The hidden first word by which shells ask; the words of the command line follow, of which the
// last one, which may be empty, is to be completed.
inline constexpr char kCompleteWord[] = "__complete";
// Candidate that stands for the names of files.
inline constexpr char kFiles[] = ":files";

using Candidates = std::vector<std::pair<std::string, std::string>>;  // word, what it is

// The answer to a shell: the candidates that begin as the last word does, a line each, and after a
// tab what they are.
std::string CompletionText(const Candidates& candidates, absl::string_view last_word);

// The script for a tool. Shells: bash, zsh, fish.
inline constexpr const char* kShells[] = {"bash", "zsh", "fish"};
std::string CompletionScript(absl::string_view shell, absl::string_view tool);

}  // namespace vpod::render
