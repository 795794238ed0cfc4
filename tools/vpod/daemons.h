// Background processes of a local POD: started, recognised by their pid files or, where these were
// lost, by what they were started with, and stopped.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"

namespace vpod::tools {

// A program beside this one, else in PATH; NotFound says what was looked for.
absl::StatusOr<std::string> FindProgram(const std::string& name);

// Starts a program in a session of its own, output appended to `log`, and writes its pid to
// `pid_file`.
absl::StatusOr<int> StartDaemon(const std::vector<std::string>& command, const std::string& log,
                                const std::string& pid_file);

// Processes that run a program of this name and may be looked into.
std::vector<int> ProcessesOf(const std::string& program);

// The pid file that StartDaemon gave a process of this host, also when the file is lost; empty: it
// was started otherwise, or in a container.
std::string PidFileOf(int pid);

// Pid of the running daemon that was started with `pid_file`, or 0. A file whose process has gone,
// is another program or another POD's counts as stale.
int RunningDaemon(const std::string& pid_file, const std::string& program);

// Whether a signal has stopped the process: it lives, but does not answer until SIGCONT.
bool IsStopped(int pid);

// Whether the process is told to end: a signal that ends it is pending, or it has taken one and
// ignores SIGTERM since, as our daemons do. It may still answer for some seconds.
bool IsEnding(int pid);

// Pid files of a program's daemons in a directory, including lost files of daemons that live.
std::set<std::string> PidFiles(const std::string& directory, const std::string& program);

// SIGTERM, then SIGKILL after ten seconds; removes the pid file. False when nothing ran.
bool StopDaemon(const std::string& pid_file, const std::string& program);

// Whether nobody listens on a port of 127.0.0.1.
bool PortIsFree(uint32_t port);

// Keeps such a port for a daemon that will listen there, until the descriptor is closed: no other
// vpod of this host takes it meanwhile. Invalid: somebody listens, or another vpod keeps it.
base::UniqueFd KeepPort(uint32_t port);

}  // namespace vpod::tools
