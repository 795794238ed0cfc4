#include "client/plan/phases.h"

#include "device/model/op_plans.h"
#include "device/program/origins.h"

namespace vpod::plan {
namespace {

using program::v1::Origin;

model::Cycles& CyclesOf(const Origin* origin, PhaseCycles& phases) {
  const auto phase = program::PhaseOf(origin);
  if (!phase) return phases.other;
  switch (*phase) {
    case Origin::FORWARD:
      return phases.forward;
    case Origin::BACKWARD:
      return phases.backward;
    case Origin::RECOMPUTE:
      return phases.recomputation;
    case Origin::UPDATE:
      return phases.update;
    default:
      return phases.other;
  }
}

}  // namespace

std::vector<PhaseCycles> PhasesOf(const program::Executable& executable, uint32_t program,
                                  const model::Topology& topology) {
  std::vector<PhaseCycles> of_ipus(executable.ipus_per_replica());
  for (uint32_t ipu = 0; ipu < executable.ipus_per_replica(); ++ipu) {
    const auto& text = executable.proto().ipus(static_cast<int>(ipu));
    const model::PlanContext context(executable.proto(), ipu, topology);
    const std::vector<uint64_t> executions =
        program::PlannedExecutions(text, executable.EntryOf(program, ipu));
    for (uint32_t f = 0; f < executions.size(); ++f) {
      if (executions[f] == 0) continue;
      const auto& instructions = text.functions(static_cast<int>(f)).instructions();
      for (uint32_t i = 0; i < static_cast<uint32_t>(instructions.size()); ++i) {
        CyclesOf(executable.OriginOf(ipu, f, i), of_ipus[ipu]) +=
            model::Price(instructions[static_cast<int>(i)], context).total() * executions[f];
      }
    }
  }
  return of_ipus;
}

}  // namespace vpod::plan
