#include "client/session/open.h"

#include "absl/strings/str_cat.h"
#include "client/compiler/planned_program.h"
#include "client/ipuof/ipuof_device.h"
#include "client/popdist/context.hpp"
#include "client/popdist/job.h"
#include "client/session/ipu_model.h"
#include "client/vipu/ipuof_config.h"
#include "device/base/status.h"

namespace vpod::session {
namespace {

// Throws what popdist throws.
absl::StatusOr<std::unique_ptr<Device>> Attach(uint32_t replicas, uint32_t ipus) {
  if (!popdist::checkNumIpusPerReplica(ipus)) {
    return absl::FailedPreconditionError(absl::StrCat("the program needs --ipus-per-replica ", ipus,
                                                      ", and poprun was started with ",
                                                      popdist::getNumIpusPerReplica()));
  }
  VPOD_ASSIGN_OR_RETURN(const vipu::ActivePartition partition, vipu::FindActivePartition());
  ipuof::DeviceOptions options{.job = popdist::ThisJobMember(replicas, ipus)};
  if (popdist::isPopdistEnvSet()) {
    options.device_id = static_cast<int>(
        popdist::getDeviceId(static_cast<uint32_t>(partition.config.devices_size()), ipus));
  }
  return ipuof::AttachDevice(partition, options);
}

absl::StatusOr<std::unique_ptr<Device>> Model(const OpenOptions& options) {
  return CreateIpuModel(
      {.replicas = options.replicas, .ipus_per_replica = options.ipus_per_replica});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  if (popdist::isPopdistEnvSet()) return AttachDevice(options);
  return Model(options);
}

absl::StatusOr<std::unique_ptr<Device>> AttachDevice(const OpenOptions& options) {
  if (compiler::IsPlannedProgram()) return Model(options);
  try {
    return Attach(options.replicas, options.ipus_per_replica);
  } catch (const popdist::popdist_error& error) {
    return absl::FailedPreconditionError(error.what());
  }
}

}  // namespace vpod::session
