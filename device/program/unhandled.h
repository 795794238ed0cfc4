// The end of a switch over operators of an executable.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace vpod::program {

// Ends the process: the type rules allow an operator that is not implemented here, which is a
// mistake of ours. A wrong result would not be noticed.
[[noreturn]] inline void Unhandled(const char* what, int number) {
  std::fprintf(stderr, "%s %d is not implemented\n", what, number);
  std::abort();
}

}  // namespace vpod::program
