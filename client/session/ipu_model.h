// The IPUModel: the same engine as in a POD, in this process, without any daemon. For unit tests
// and for trying a program out; it takes no part in jobs of several instances.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/device.h"

namespace vpod::session {

struct IpuModelOptions {
  uint32_t replicas = 1;
  uint32_t ipus_per_replica = 1;
  std::string machine_type = "m2000";
  int compute_threads = 0;                    // 0: one a core
  uint64_t memory_limit_bytes = 16ull << 30;  // of the emulated IPUs together
};

// InvalidArgument: unknown machine type, or replicas or IPUs that no POD has. FailedPrecondition:
// this process is one of several instances started by poprun (the refusal names their number).
absl::StatusOr<std::unique_ptr<Device>> CreateIpuModel(const IpuModelOptions& options);

}  // namespace vpod::session
