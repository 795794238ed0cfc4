// Writes the event record of a program about the device it holds (event_record.h): Info when it
// attaches, Error when its job fails, Fatal when the device is lost.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/ipuof/event_record.h"
#include "client/vipu/ipuof_config.h"
#include "device/arch/device_id.h"
#include "device/base/mutex.h"

namespace vpod::ipuof {

// Thread-safe. Does nothing unless IPU_APP_EVENT_RECORD_PATH is set; what cannot be written is a
// warning on stderr and does not disturb the program.
class DeviceEvents {
 public:
  DeviceEvents(const vipu::ActivePartition& partition, arch::IpuRange ipus);

  void Attached(uint32_t device_id);
  // Unavailable means that the device is lost, any other error that the job failed. Asks the agents
  // which IPUs are the cause, for 4 s at most. Keeps the first of several failures of one severity.
  void Failed(const absl::Status& status);

 private:
  void Write(EventSeverity severity, EventRecord record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const vipu::ActivePartition partition_;
  const arch::IpuRange ipus_;
  base::Mutex mutex_;
  std::optional<EventSeverity> failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::ipuof
