// The process between poprun and mpirun. It outlives a poprun that is killed, and ends the job.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "client/launch/mpirun.h"

namespace vpod::launch {

// First record of the watchdog's report; if it has an error, nothing follows it.
struct MpirunStarted {
  pid_t pid = 0;  // of mpirun
  int error = 0;  // errno of its start
};                // then MpirunResult

struct WatchdogJob {
  pid_t poprun = 0;
  const char* path = "";           // of mpirun
  std::vector<char*> argv;         // of mpirun, ends with nullptr
  std::vector<char*> environment;  // likewise
  std::vector<char*> if_killed;    // likewise, of what is run when poprun is gone at the end
  int out = 1, error = 2;          // its stdout and stderr
  // Made at the start and removed at the end, unless empty. Without the first there is no job.
  const char *session_directory = "", *shared_memory_directory = "";
  int report = -1;   // where MpirunStarted and MpirunResult go
  sigset_t signals;  // the ones that poprun handles, blocked
};

// Runs mpirun in a process group of its own and reports. Call it in a child of `job.poprun`, right
// after fork; it never returns, and allocates nothing.
//
// Signals from poprun are forwarded to mpirun's group and followed by SIGKILL after 10 s; poprun's
// death counts as SIGTERM. Processes that a failed job leaves on this host are killed: instances
// whose mpirun was killed become children of the watchdog. It has one thread, because mpirun hears
// of its parent's death once for each thread, and gives up without ending its instances at the
// second signal.
[[noreturn]] void WatchMpirun(const WatchdogJob& job);

}  // namespace vpod::launch
