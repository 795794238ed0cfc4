// Calls on a process of the same host by an abstract Unix socket, where descriptors are passed
// (segment.h).
#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/unique_fd.h"

namespace vpod::shm {

// Connects to the socket of that name. Neither this nor a single send or receive on the connection
// waits longer than `patience`. NotFound: it leads to nobody, or not for us; Unavailable: nobody
// accepts.
absl::StatusOr<base::UniqueFd> Connect(absl::string_view name, std::chrono::milliseconds patience);
// Unavailable: the peer does not take the request.
absl::Status Send(int connection, absl::string_view request);
// Both; the connection is returned for the answer.
absl::StatusOr<base::UniqueFd> SendRequest(absl::string_view name, absl::string_view request,
                                           std::chrono::milliseconds patience);

}  // namespace vpod::shm
