// The IPUs of a POD as a session's device.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/device.h"
#include "client/vipu/ipuof_config.h"
#include "proto/ipuof/v1/ipuof.pb.h"

namespace vpod::ipuof {

struct DeviceOptions {
  v1::JobMember job;        // replicas, IPUs per replica and place in the job
  int device_id = -1;       // negative: the first free device of the right size
  bool monitoring = false;  // as LeaseOptions::monitoring
  // How long AttachDevice waits while others use the devices; `stopped` ends the wait.
  std::chrono::milliseconds wait{0};
  std::stop_token stopped;
};

// Attaches. ResourceExhausted when no device is free ("Failed to acquire 4 IPU(s): …") and none
// becomes free in time; at once if the partition has no such device. Cancelled: the wait was ended.
absl::StatusOr<std::unique_ptr<session::Device>> AttachDevice(
    const vipu::ActivePartition& partition, const DeviceOptions& options);

}  // namespace vpod::ipuof
