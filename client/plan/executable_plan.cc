#include "client/plan/executable_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "device/program/ops/collective.h"

namespace vpod::plan {
namespace {

// Rows that a replica reads in a run.
uint64_t ItemsOf(const program::Executable& executable, uint32_t program) {
  for (const uint32_t index : executable.streams(program)) {
    const auto& stream = executable.proto().streams(static_cast<int>(index));
    if (!stream.to_device()) continue;
    return program::TransfersOf(executable, program, index) *
           (stream.dims_size() == 0 ? 1 : static_cast<uint64_t>(stream.dims(0)));
  }
  return 0;
}

}  // namespace

uint32_t ShardsOf(const program::Executable& executable) {
  uint32_t shards = 1;
  for (const program::HostTensor& tensor : executable.host_tensors())
    shards = std::max(shards, tensor.shards);
  return shards;
}

absl::StatusOr<uint32_t> ReplicasOf(uint32_t pod, uint32_t ipus_per_replica) {
  if (pod != 0 && ipus_per_replica != 0 && pod % ipus_per_replica == 0)
    return pod / ipus_per_replica;
  return absl::InvalidArgumentError(absl::StrCat(
      "a POD of ", pod, " IPUs has no whole number of replicas of ", ipus_per_replica));
}

absl::Status CheckPod(const program::Executable& executable, uint32_t pod) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t replicas, ReplicasOf(pod, executable.ipus_per_replica()));
  const std::string what = absl::StrCat("a POD of ", pod, " IPUs has ", replicas,
                                        replicas == 1 ? " replica" : " replicas");
  const uint32_t shards = ShardsOf(executable), compiled_for = executable.total_replicas();
  if (replicas % shards != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ", but ", shards, " share the state of the optimiser"));
  }
  if (compiled_for != 0 && compiled_for != replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ", but the executable is for ", compiled_for));
  }
  const absl::Status meet = program::CheckReplicas(executable.proto(), replicas);
  if (meet.ok()) return meet;
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", meet.message()));
}

absl::StatusOr<ExecutablePlan> PlanExecutable(const program::Executable& executable, uint32_t pod,
                                              const std::string& machine_type,
                                              const VisitEvent& visit) {
  VPOD_RETURN_IF_ERROR(CheckPod(executable, pod));
  VPOD_ASSIGN_OR_RETURN(const arch::MachineType machine, arch::FindMachineType(machine_type));
  const uint32_t ipus = executable.ipus_per_replica();
  ExecutablePlan plan;
  plan.replicas = pod / ipus;
  plan.topology = {
      .clock_hz = machine.clock_hz, .num_replicas = plan.replicas, .ipus_per_replica = ipus};
  plan.fits = model::CheckMemory(executable, plan.topology, &plan.memory);
  for (int i = 0; i < executable.proto().programs_size(); ++i) {
    const auto program = static_cast<uint32_t>(i);
    std::function<void(const model::TimelineEvent&)> visit_event;
    if (visit) visit_event = [&](const model::TimelineEvent& event) { visit(program, event); };
    RunPlan run{
        .program = executable.proto().programs(i).name(),
        .timeline = model::TimelineOf(executable.proto(), program, plan.topology, visit_event),
        .items = plan.replicas * ItemsOf(executable, program),
        .has_collectives = executable.has_collectives(program)};
    run.seconds = static_cast<double>(run.timeline.end().value()) / machine.clock_hz;
    plan.runs.push_back(std::move(run));
  }
  return plan;
}

}  // namespace vpod::plan
