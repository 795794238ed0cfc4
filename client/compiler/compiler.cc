#include "client/compiler/compiler.h"

#include <algorithm>
#include <set>
#include <string>

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
#include "client/engine_options/engine_options.h"
#include "client/sdk_log/sdk_log.h"
#include "device/base/status.h"
#include "device/model/cost.h"

namespace vpod::compiler {

namespace v1 = program::v1;
using program::Form;

namespace {

// Runs the passes from gradients to lowering on a checked graph.
absl::StatusOr<LoweredProgram> RunPasses(const graph::Graph& graph, const ProgramSpec& spec,
                                         const CompileOptions& options, PassDump& dump) {
  VPOD_ASSIGN_OR_RETURN(GraphProgram program, AddGradients(graph, spec, options));
  const auto finish = [&](absl::string_view pass, Form form) {
    const absl::Status status = CheckForm(pass, form, program.graph.nodes());
    return status.ok() ? dump.Add(spec.name, pass, program) : status;
  };
  VPOD_RETURN_IF_ERROR(finish("gradients", Form::kGraph));
  RemoveDeadCode(program);
  VPOD_RETURN_IF_ERROR(finish("dead-code", Form::kGraph));
  if (options.recomputation != Recomputation::kNone && program.trains()) {
    Recompute(options.recomputation, program);
    VPOD_RETURN_IF_ERROR(finish("recompute", Form::kGraph));
  }
  if (options.fusion && program.rounding.empty()) {
    Fuse(program);
    VPOD_RETURN_IF_ERROR(finish("fusion", Form::kFused));
  }
  LoweredProgram lowered = Lower(program);
  VPOD_RETURN_IF_ERROR(CheckForm("lowering", lowered));
  VPOD_RETURN_IF_ERROR(dump.Add(spec.name, "lowering", lowered));
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

// ResourceExhausted if it does not, unless the environment allows it: options of the engine, which
// log it, or a plan.
absl::Status CheckThatItFits(const CompileOptions& options, Compiled& compiled) {
  const absl::Status fits = model::CheckMemory(
      *compiled.executable,
      {.num_replicas = options.total_replicas, .ipus_per_replica = options.ipus_per_replica});
  compiled.fits = fits.ok();
  if (fits.ok() || IsPlannedProgram()) return absl::OkStatus();
  VPOD_ASSIGN_OR_RETURN(const EngineOptions engine, ReadEngineOptions());
  if (!engine.allow_out_of_memory) return fits;
  SdkLog(LogModule::kEngine, LogLevel::kWarn, fits.message());
  return absl::OkStatus();
}

}  // namespace

std::map<std::string, Compiled::Initial> InitialValues(const program::Executable& executable,
                                                       const graph::Graph& graph,
                                                       const CompileOptions& options) {
  std::map<std::string, Compiled::Initial> values;
  std::set<std::string> weights;
  for (graph::Tensor variable : graph.variables()) weights.insert(graph.values()[variable.id].name);
  // The state of the optimiser begins with zeros, and so do remote buffers by themselves.
  for (const program::HostTensor& variable : executable.host_tensors()) {
    if (!variable.remote || weights.contains(variable.name))
      values.insert({variable.name, {variable.host_type(), graph::InitialValue::Filled(0)}});
  }
  const auto set = [&](const std::string& name, graph::InitialValue value) {
    const auto it = values.find(name);
    if (it != values.end()) it->second.value = std::move(value);
  };
  std::vector<graph::Tensor> state = graph.variables();
  state.insert(state.end(), graph.buffers().begin(), graph.buffers().end());
  for (graph::Tensor variable : state)
    set(graph.values()[variable.id].name, graph.InitialOf(variable));
  for (const ProgramSpec& spec : options.programs) {
    if (!spec.loss.has_value()) continue;
    for (size_t group = 0; group <= spec.groups.size(); ++group) {
      for (uint32_t ipu = 0; ipu < options.ipus_per_replica; ++ipu)
        set(HyperParametersName(ipu, group), HyperParameters(OptimizerOf(spec, group)));
    }
    if (spec.loss_scale) set(kLossScaleName, graph::InitialValue::Filled(*spec.loss_scale));
  }
  return values;
}

uint32_t ReplicasOf(const graph::Graph& graph, const CompileOptions& options) {
  const bool trains = std::any_of(options.programs.begin(), options.programs.end(),
                                  [](const ProgramSpec& spec) { return spec.loss.has_value(); });
  const bool counts = std::any_of(graph.assignments().begin(), graph.assignments().end(),
                                  [](const graph::Assignment& each) { return each.counts; });
  return trains || counts ? options.total_replicas : 0;
}

absl::StatusOr<Compiled> Compile(const graph::Graph& graph, const CompileOptions& asked_for,
                                 const Progress& progress) {
  CompileOptions options = IsPlannedProgram() ? OptionsForPlan(asked_for) : asked_for;
  if (options.schedule == Schedule::kPhased) {
    options.off_chip_weights = options.off_chip_activations = true;
    options.off_chip_optimizer_state = options.off_chip_accumulators = true;
  }
  VPOD_RETURN_IF_ERROR(graph.status());
  VPOD_RETURN_IF_ERROR(CheckOptions(options));
  VPOD_RETURN_IF_ERROR(CheckGraph(graph, options));
  // Two steps a program, then validation and initial values.
  const auto total = static_cast<uint32_t>(2 * options.programs.size() + 2);
  auto report = [&, done = uint32_t{0}](absl::string_view step) mutable {
    if (progress) progress(step, done++, total);
  };
  PassDump dump(options);
  std::vector<LoweredProgram> programs;
  // The programs of a plan are planned for PODs of any size, unless their replicas share out state.
  const bool any_replicas = IsPlannedProgram() && options.tensor_shards == 1;
  Assembler assembler(options.ipus_per_replica, any_replicas ? 0 : ReplicasOf(graph, options));
  for (const ProgramSpec& spec : options.programs) {
    report("Lowering");
    VPOD_ASSIGN_OR_RETURN(LoweredProgram program, RunPasses(graph, spec, options, dump));
    assembler.AddState(program);
    programs.push_back(std::move(program));
  }
  for (LoweredProgram& program : programs) {
    report("Placing tensors");
    assembler.AddProgram(std::move(program));
  }
  Compiled compiled;
  report("Validating");
  // CheckThatItFits has a better message for programs that do not fit.
  VPOD_ASSIGN_OR_RETURN(
      compiled.executable,
      program::Executable::Make(assembler.Finish(), LimitsWithoutMemory(), assembler.Origins()));
  VPOD_RETURN_IF_ERROR(dump.Add("all", "executable", compiled.executable->source()));
  if (!asked_for.allow_out_of_memory) VPOD_RETURN_IF_ERROR(CheckThatItFits(options, compiled));
  report("Initial values");
  compiled.initial_values = InitialValues(*compiled.executable, graph, options);
  report("Done");
  return compiled;
}

}  // namespace vpod::compiler
