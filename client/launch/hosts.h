// The hosts of a job: host lists, host files, Slurm's node list (spec/poprun.md 2, 5 and 10), and
// which of them is this machine.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::launch {

// "host0,host1", "host[0-2,4]", "rack[1-2]-node[01-16]": Slurm's syntax. Numbers keep their leading
// zeros. `source` begins the error text ("--host"). InvalidArgument: a bad range, a word that is
// not a host name or IPv4 address, a duplicate, more than 65,536 hosts.
absl::StatusOr<std::vector<std::string>> ParseHosts(const std::string& text,
                                                    const std::string& source);

// A file of host lists, one a line; blank lines and # comments are skipped. Errors name file and
// line. FailedPrecondition: the file cannot be read.
absl::StatusOr<std::vector<std::string>> ReadHostFile(const std::string& path);

// The nodes of the surrounding Slurm job; empty outside of one.
absl::StatusOr<std::vector<std::string>> SlurmHosts();

// Whether mpirun would take `host` for this machine: its name or an address of an interface. Other
// loopback addresses (127.0.0.2) count as other hosts. May ask the resolver.
bool IsThisHost(const std::string& host);

// Whether `host` (a name or an IPv4 or IPv6 address) can only be reached from the machine itself.
// May ask the resolver.
bool IsLoopback(const std::string& host);

}  // namespace vpod::launch
