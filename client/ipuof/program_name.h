// The name of the program that a process runs, as monitors show it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace vpod::ipuof {

// `executable` is the path of the file that runs, `called` the first word of the command line. The
// name is that of the file, or the name by which it was called if the file's begins with that: a
// process of python3, which is a link to python3.11, is shown as python3.
std::string ProgramName(absl::string_view executable, absl::string_view called);

// The name of this process's program.
std::string ThisProgramName();

}  // namespace vpod::ipuof
