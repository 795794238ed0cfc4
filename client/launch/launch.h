// Runs poprun, from its words to its exit status.
#pragma once

#include <string>
#include <vector>

namespace vpod::launch {

// 0 done; 2 wrong usage; 1 what needs the outside world failed; else mpirun's code, or 128 + signal
// after SIGINT, SIGTERM, SIGHUP.
int Poprun(const std::vector<std::string>& words);

}  // namespace vpod::launch
