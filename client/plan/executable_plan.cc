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
    uint64_t transfers = 0;  // another program may make more of them
    program::ForEachInstruction(executable.proto().ipus(static_cast<int>(stream.ipu())),
                                executable.EntryOf(program, stream.ipu()),
                                [&](const program::v1::Instruction& step, uint64_t times) {
                                  if (step.has_stream_in() && step.stream_in().stream() == index)
                                    transfers += times;
                                });
    return transfers * (stream.dims_size() == 0 ? 1 : static_cast<uint64_t>(stream.dims(0)));
  }
  return 0;
}

}  // namespace

absl::StatusOr<ExecutablePlan> PlanExecutable(const program::Executable& executable, uint32_t pod,
                                              const std::string& machine_type) {
  const uint32_t ipus = executable.ipus_per_replica();
  if (pod == 0 || pod % ipus != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a POD of ", pod, " IPUs has no whole number of replicas of ", ipus));
  }
  VPOD_ASSIGN_OR_RETURN(const arch::MachineType machine, arch::FindMachineType(machine_type));
  ExecutablePlan plan{.replicas = pod / ipus};
  const absl::Status meet = program::CheckReplicas(executable.proto(), plan.replicas);
  if (!meet.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a POD of ", pod, " IPUs has ", plan.replicas, " replicas: ", meet.message()));
  }
  const model::Topology topology{
      .clock_hz = machine.clock_hz, .num_replicas = plan.replicas, .ipus_per_replica = ipus};
  plan.fits = model::CheckMemory(executable, topology, &plan.memory);
  for (int i = 0; i < executable.proto().programs_size(); ++i) {
    const auto program = static_cast<uint32_t>(i);
    RunPlan run{.program = executable.proto().programs(i).name(),
                .timeline = model::TimelineOf(executable.proto(), program, topology),
                .items = plan.replicas * ItemsOf(executable, program),
                .has_collectives = executable.has_collectives(program)};
    run.seconds = static_cast<double>(run.timeline.end().value()) / machine.clock_hz;
    for (const model::IpuTime& ipu : run.timeline.ipus) {
      run.over_ipu_links = std::max(run.over_ipu_links, ipu.cost.over_ipu_links);
      run.over_gw_links = std::max(run.over_gw_links, ipu.cost.over_gw_links);
    }
    plan.runs.push_back(std::move(run));
  }
  return plan;
}

}  // namespace vpod::plan
