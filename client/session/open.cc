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
absl::StatusOr<std::unique_ptr<Device>> Attach(const OpenOptions& asked_for) {
  const uint32_t ipus = asked_for.ipus_per_replica;
  if (!popdist::checkNumIpusPerReplica(ipus)) {
    return absl::FailedPreconditionError(absl::StrCat("the program needs --ipus-per-replica ", ipus,
                                                      ", and poprun was started with ",
                                                      popdist::getNumIpusPerReplica()));
  }
  VPOD_ASSIGN_OR_RETURN(const vipu::ActivePartition partition, vipu::FindActivePartition());
  ipuof::DeviceOptions options{.job = popdist::ThisJobMember(asked_for.replicas, ipus),
                               .wait = asked_for.wait,
                               .stopped = asked_for.stopped};
  std::optional<uint32_t> device_id = asked_for.device_id;
  if (popdist::isPopdistEnvSet()) {
    const auto given = static_cast<uint32_t>(
        popdist::getDeviceId(static_cast<uint32_t>(partition.config.devices_size()), ipus));
    if (device_id.value_or(given) != given) {
      return absl::FailedPreconditionError(absl::StrCat("the program needs device ", *device_id,
                                                        ", and poprun gave it device ", given));
    }
    device_id = given;
  }
  if (device_id) options.device_id = static_cast<int>(*device_id);
  return ipuof::AttachDevice(partition, options);
}

absl::StatusOr<std::unique_ptr<Device>> Model(const OpenOptions& options) {
  return CreateIpuModel({.replicas = options.replicas,
                         .ipus_per_replica = options.ipus_per_replica,
                         .machine_type = options.machine_type});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  if (popdist::isPopdistEnvSet()) return AttachDevice(options);
  return Model(options);
}

absl::StatusOr<std::unique_ptr<Device>> AttachDevice(const OpenOptions& options) {
  if (compiler::IsPlannedProgram()) return Model(options);
  try {
    return Attach(options);
  } catch (const popdist::popdist_error& error) {
    return absl::FailedPreconditionError(error.what());
  }
}

}  // namespace vpod::session
