#include "client/compiler/make_executable.h"

#include <utility>
#include <vector>

#include "client/compiler/assembly.h"
#include "client/compiler/backward.h"
#include "client/compiler/checks.h"
#include "client/compiler/dead_code.h"
#include "client/compiler/executable_file.h"
#include "client/compiler/fusion.h"
#include "client/compiler/lowering.h"
#include "client/compiler/offload.h"
#include "client/compiler/passes.h"
#include "client/compiler/pipeline.h"
#include "client/compiler/planned_program.h"
#include "client/compiler/recompute.h"
#include "device/base/status.h"
#include "device/model/memory_options.h"

namespace vpod::compiler {

using program::Form;

namespace {

// Runs the passes from gradients to lowering on a checked graph.
absl::StatusOr<LoweredProgram> RunPasses(const graph::Graph& graph, const ProgramSpec& spec,
                                         const CompileOptions& options, const BeforeStep& before,
                                         PassDump& dump) {
  VPOD_RETURN_IF_ERROR(before("Adding gradients"));
  VPOD_ASSIGN_OR_RETURN(GraphProgram program, AddGradients(graph, spec, options));
  const auto finish = [&](absl::string_view pass, Form form) {
    const absl::Status status = CheckForm(pass, form, program.graph.nodes());
    return status.ok() ? dump.Add(spec.name, pass, program) : status;
  };
  VPOD_RETURN_IF_ERROR(finish("gradients", Form::kGraph));
  VPOD_RETURN_IF_ERROR(before("Removing dead code"));
  RemoveDeadCode(program);
  VPOD_RETURN_IF_ERROR(finish("dead-code", Form::kGraph));
  if (options.recomputation != Recomputation::kNone && program.trains()) {
    Recompute(options.recomputation, program);
    VPOD_RETURN_IF_ERROR(finish("recompute", Form::kGraph));
  }
  VPOD_RETURN_IF_ERROR(before("Fusing operations"));
  if (options.fusion && program.rounding.empty()) {
    Fuse(program);
    VPOD_RETURN_IF_ERROR(finish("fusion", Form::kFused));
  }
  VPOD_RETURN_IF_ERROR(before("Lowering"));
  LoweredProgram lowered = Lower(program);
  VPOD_RETURN_IF_ERROR(CheckForm("lowering", lowered));
  VPOD_RETURN_IF_ERROR(dump.Add(spec.name, "lowering", lowered));
  VPOD_RETURN_IF_ERROR(before("Scheduling"));
  VPOD_RETURN_IF_ERROR(
      MakePipeline(program, options.schedule, options.off_chip_activations, lowered));
  if (lowered.pipeline.period > 0) {
    VPOD_RETURN_IF_ERROR(dump.Add(spec.name, "pipeline", lowered));
  } else if (options.off_chip_activations && program.trains()) {
    OffloadActivations(lowered);
    VPOD_RETURN_IF_ERROR(dump.Add(spec.name, "offload", lowered));
  }
  if (options.off_chip_weights) {
    OffloadWeights(program, lowered);
    VPOD_RETURN_IF_ERROR(dump.Add(spec.name, "offload-weights", lowered));
  }
  if (options.off_chip_accumulators && program.trains()) {
    OffloadAccumulators(lowered);
    VPOD_RETURN_IF_ERROR(dump.Add(spec.name, "offload-accumulators", lowered));
  }
  return lowered;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const program::Executable>> MakeExecutable(
    const graph::Graph& graph, CompileOptions options, const BeforeStep& before) {
  if (options.schedule == Schedule::kPhased) {
    options.off_chip_weights = options.off_chip_activations = true;
    options.off_chip_optimizer_state = options.off_chip_accumulators = true;
  }
  VPOD_RETURN_IF_ERROR(graph.status());
  VPOD_RETURN_IF_ERROR(CheckOptions(options));
  VPOD_RETURN_IF_ERROR(CheckGraph(graph, options));
  PassDump dump(options);
  std::vector<LoweredProgram> programs;
  // The programs of a plan are planned for PODs of any size, unless their replicas share out state.
  const bool any_replicas = IsPlannedProgram() && options.tensor_shards == 1;
  Assembler assembler(options.ipus_per_replica, any_replicas ? 0 : ReplicasOf(graph, options));
  for (const ProgramSpec& spec : options.programs) {
    VPOD_ASSIGN_OR_RETURN(LoweredProgram program, RunPasses(graph, spec, options, before, dump));
    assembler.AddState(program);
    programs.push_back(std::move(program));
  }
  for (LoweredProgram& program : programs) {
    VPOD_RETURN_IF_ERROR(before("Placing tensors"));
    assembler.AddProgram(std::move(program));
  }
  VPOD_RETURN_IF_ERROR(before("Validating"));
  VPOD_ASSIGN_OR_RETURN(
      auto executable,
      program::Executable::Make(assembler.Finish(), LimitsWithoutMemory(),
                                assembler.Origins(model::ListOf(options.front.names))));
  VPOD_RETURN_IF_ERROR(dump.Add("all", "executable", executable->source()));
  return executable;
}

}  // namespace vpod::compiler
