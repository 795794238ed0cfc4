// Interface of a session to the IPUs it runs on. It has two implementations: the IPUModel in this
// process (ipu_model.h) and the IPUs of a POD (client/ipuof/ipuof_device.h).
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/units.h"
#include "device/program/executable.h"

namespace vpod::session {

struct LoadOptions {
  // Fails a run at the first operation that gives NaN or infinity, and names it. Slow.
  bool check_finite = false;
  // Replicas of a process share the variables that are equal on all of them. Changes no result.
  bool sharing = true;
};

// The part of a replicated job that a device has.
struct JobPart {
  uint32_t total_replicas = 1;
  uint32_t first_replica = 0;  // of this process
};

// The IPUs of one lease. Calls come from one thread at a time, except that stream slots other than
// the running one may be touched while Run blocks, and that Cancel may be called.
//
// A device is for the process that opened it. A child that is forked from the process has neither
// the threads nor the connections of a device: there all calls with a status fail as CheckProcess
// does, Cancel does nothing, and the destructor leaves the lease to the parent.
class Device {
 public:
  virtual ~Device() = default;

  // FailedPrecondition in another process than the one that opened the device. `what` is said to be
  // that process's, such as a session on the device.
  absl::Status CheckProcess(absl::string_view what = "device") const;

  // Replicas of this process, and the clock of their IPUs.
  virtual uint32_t local_replicas() const = 0;
  virtual double clock_hz() const = 0;
  virtual JobPart job_part() const = 0;
  // Whether the IPUs are in this process: an IPUModel.
  virtual bool is_model() const = 0;
  // For messages: "IPUModel", "device 24 of partition p16".
  virtual std::string name() const = 0;

  // Loads an executable for all local replicas.
  virtual absl::Status Load(std::shared_ptr<const program::Executable> executable,
                            const LoadOptions& options) = 0;
  // Stream buffer of a slot, laid out as program::StreamLayout says; valid until the next Load.
  virtual std::byte* Slot(uint32_t slot) = 0;
  // Runs a program once; blocks. Returns the virtual cycles it took.
  virtual absl::StatusOr<base::Cycles> Run(uint32_t program, uint32_t slot) = 0;
  // Ends a run that blocks, and all later ones: they fail. What the variables have then can still
  // be read. From any thread.
  virtual void Cancel() = 0;
  // Sets a variable on a local replica, or on all.
  virtual absl::Status WriteVariable(absl::string_view name, absl::string_view bytes,
                                     std::optional<uint32_t> replica = std::nullopt) = 0;
  virtual absl::StatusOr<std::string> ReadVariable(absl::string_view name, uint32_t replica) = 0;
  // Cycle counters, replica by replica, IPU by IPU.
  virtual absl::StatusOr<std::vector<base::Cycles>> Counters() = 0;

 private:
  const pid_t process_ = getpid();  // that opened it
};

}  // namespace vpod::session
