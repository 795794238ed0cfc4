// Declarations of processes about themselves, as an agent keeps them. Monitors, messages and logs
// of others show them, so they are printable, on one line and short.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/fabric/v1/fabric.pb.h"
#include "proto/ipuof/v1/ipuof.pb.h"

namespace vpod::agent {

// The request with the client's names made printable. InvalidArgument if a name that is compared
// rather than shown is longer than 256 bytes, or if a simulated error is none.
absl::StatusOr<ipuof::v1::AttachOpen> Declared(ipuof::v1::AttachOpen open);
// The same for the part of a job on another agent.
absl::StatusOr<fabric::v1::JobJoin> Declared(fabric::v1::JobJoin join);

// The process's id, for readers in the PID namespace of the agent (device/base/device_use.h).
std::string PidText(const ipuof::v1::ProcessInfo& process);

// The process as fields of a log line: user="…" pid=4711 host="…" program="…", with
// pid_namespace=other behind the id if it is not the agent's. `user` is the user whose fabric key
// the process showed; if that is empty, the field claimed_user has the name that the process gives
// itself.
std::string LogText(const ipuof::v1::ProcessInfo& process, absl::string_view user);

}  // namespace vpod::agent
