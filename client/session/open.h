// The devices of this process in one call.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "client/session/device.h"

namespace vpod::session {

struct OpenOptions {
  uint32_t replicas = 1;  // without poprun, which knows them otherwise
  uint32_t ipus_per_replica = 1;
};

// The IPUs that poprun gave to this process; without poprun, an IPUModel. Errors as below.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options = {});

// The IPUs that poprun gave to this process; without poprun, the first free ones of the active
// partition. In a program that `vpod plan` runs, an IPUModel. FailedPrecondition: poprun gave other
// IPUs per replica, or its environment is damaged. NotFound if there is no partition;
// ResourceExhausted if no device is free.
absl::StatusOr<std::unique_ptr<Device>> AttachDevice(const OpenOptions& options = {});

}  // namespace vpod::session
