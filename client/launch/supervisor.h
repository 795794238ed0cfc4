// The process around each instance: mpirun starts it on the instance's host, and it starts the
// program. It tells poprun how and when the program ended, which mpirun does not know reliably:
// mpirun learns of children by asking which have ended, in the order of their pids, and says
// nothing of one that ends while others are still being started.
#pragma once

namespace vpod::launch {

// Where to report: "<token>@<address>,…" with addresses host:port. Without it, or outside of a job,
// the program replaces this process.
inline constexpr char kSupervisorVariable[] = "VPOD_SUPERVISOR";
// A directory for named shared memory that poprun removes after mpirun's end. Used by programs on
// poprun's own host only, where it exists.
inline constexpr char kSharedMemoryVariable[] = "VPOD_JOB_SHM";

// Runs a program to its end and ends like it, with its exit code or by its signal. `program` ends
// with nullptr. It gets SIGKILL when this process ends, as this process does when mpirun or its
// daemon ends. Signals from mpirun go to the process group, and thus to the program; SIGTERM is
// reported, as the program may end because of it. poprun need not be reachable.
[[noreturn]] void Supervise(char** program);

}  // namespace vpod::launch
