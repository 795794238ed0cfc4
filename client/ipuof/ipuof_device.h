// The IPUs of a POD as a session's device.
#pragma once

#include <memory>
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
};

// Attaches. ResourceExhausted when no device is free ("Failed to acquire 4 IPU(s): …").
absl::StatusOr<std::unique_ptr<session::Device>> AttachDevice(
    const vipu::ActivePartition& partition, const DeviceOptions& options);

}  // namespace vpod::ipuof
