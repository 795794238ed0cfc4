// How messages name the process that uses a device, and what may be done about it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace vpod::base {

// The link text of /proc/self/ns/pid: the same for processes to which the same ids mean the same
// processes. Empty if it cannot be read.
const std::string& PidNamespace();

// Whether the ids of a process, such as one in a container, mean nothing to a reader. An empty
// namespace is not known, and taken for the same.
bool IsOtherPidNamespace(absl::string_view pid_namespace, absl::string_view readers_namespace);

// "4711", or "4711 of another PID namespace" if it is another one than the reader's.
std::string PidText(uint32_t pid, absl::string_view pid_namespace,
                    absl::string_view readers_namespace);

// A device that somebody asks for and somebody else has.
struct DeviceUse {
  uint32_t device_id = 0;
  std::string pid;                  // by PidText
  std::string program, user, host;  // as the process says; left out where they are empty
  const char* since = "attached";   // what it did `seconds` ago
  int64_t seconds = 0;
  // "partition p16", with what its IPUs are, if not all. Empty: no other device would do.
  std::string partition;
  uint32_t free_ipus = 0, ipus = 0;  // of the partition
};

// "device 14 is in use by process 4711 (train) of alice on host1, attached 4m1s ago; 3 of 16 IPUs
// of partition p16 are free. Wait, or …". Names with other characters than those of words are
// quoted.
std::string DeviceInUse(const DeviceUse& use);

}  // namespace vpod::base
