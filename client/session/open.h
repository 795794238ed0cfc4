// The devices of this process in one call.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/device.h"

namespace vpod::session {

struct OpenOptions {
  uint32_t replicas = 1;  // without poprun, which knows them otherwise
  uint32_t ipus_per_replica = 1;
  // The device to attach to; poprun's instances accept the device that poprun gave only. None: a
  // free device is chosen.
  std::optional<uint32_t> device_id;
  // How long to wait while others use the IPUs, max() for ever; `stopped` ends the wait.
  std::chrono::milliseconds wait{0};
  std::stop_token stopped;
  std::string machine_type = "m2000";  // of an IPUModel
};

// The IPUs that poprun gave to this process; without poprun, an IPUModel. Errors as below.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options = {});

// The IPUs that poprun gave to this process; without poprun, the first free ones of the active
// partition. In a program that `vpod plan` runs, an IPUModel. FailedPrecondition: poprun gave other
// IPUs per replica or another device, or its environment is damaged. NotFound if there is no
// partition; OutOfRange names the ids of devices there are. ResourceExhausted if no device is free
// in time; Cancelled if the wait was ended.
absl::StatusOr<std::unique_ptr<Device>> AttachDevice(const OpenOptions& options = {});

}  // namespace vpod::session
