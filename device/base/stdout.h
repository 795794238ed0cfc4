// For programs whose output people keep.
#pragma once

namespace vpod::base {

// At the end of the program, says on stderr when some of what was printed could not be written (a
// full disk), and makes the exit status 1.
void CheckStdoutAtExit();

}  // namespace vpod::base
