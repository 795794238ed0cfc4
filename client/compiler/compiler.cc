#include "client/compiler/compiler.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/make_executable.h"
#include "client/compiler/memory_trials.h"
#include "client/compiler/optimizer.h"
#include "client/compiler/planned_program.h"
#include "client/engine_options/engine_options.h"
#include "client/sdk_log/sdk_log.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/model/memory_advice.h"
#include "device/program/origins.h"

namespace vpod::compiler {

namespace {

// ResourceExhausted if it does not, unless the environment allows it: options of the engine, which
// log it, or a plan, which finds the advice beside the executable if it explains what does not fit.
// Calls `before` before each step of trials.
absl::Status CheckThatItFits(const graph::Graph& graph, const CompileOptions& options,
                             const BeforeStep& before, Compiled& compiled) {
  model::MemoryVerdict verdict = model::JudgeMemory(*compiled.executable, TopologyOf(options));
  if (ReplicasOfInstance(options) == 1)
    std::erase(verdict.advice, model::MemoryAdvice::kTensorShards);
  compiled.fits = verdict.fits;
  if (verdict.fits) return absl::OkStatus();
  if (IsExplainedProgram()) {
    VPOD_ASSIGN_OR_RETURN(const std::string why,
                          WhyNotFit(graph, options, *compiled.executable, verdict, before));
    compiled.executable = compiled.executable->WithMemoryAdvice(
        base::Printable(model::AdviceIn(why, verdict), program::kMostAdviceBytes - 3));
  }
  if (IsPlannedProgram()) return absl::OkStatus();
  std::optional<EngineOptions> engine = options.engine;
  if (!engine) {
    VPOD_ASSIGN_OR_RETURN(engine, ReadEngineOptions());
  }
  if (engine->allow_out_of_memory && !SdkLogs(LogModule::kEngine, LogLevel::kWarn))
    return absl::OkStatus();
  if (!engine->allow_out_of_memory) {
    VPOD_ASSIGN_OR_RETURN(const std::string why,
                          WhyNotFit(graph, options, *compiled.executable, verdict, before));
    return absl::ResourceExhaustedError(why);
  }
  // Trials would take many times as long as the compilation, for a warning.
  SdkLog(LogModule::kEngine, LogLevel::kWarn,
         model::UntriedOutOfMemoryMessage(
             verdict, options.front.names,
             "debug.allowOutOfMemory is true, as it is by default with a profile"));
  return absl::OkStatus();
}

// The state of optimisers that does not begin with 0, by its name.
std::map<std::string, float> FirstValuesOfState(const graph::Graph& graph,
                                                const CompileOptions& options) {
  std::map<std::string, float> values;
  for (const ProgramSpec& spec : options.programs) {
    if (!spec.loss.has_value()) continue;
    for (graph::Tensor variable : graph.variables()) {
      const std::string& name = graph.values()[variable.id].name;
      for (const OptimizerState& state : StepOf(OptimizerOf(spec, GroupOf(spec, name)), 1).state) {
        if (state.initial != 0) values[absl::StrCat(state.prefix, name)] = state.initial;
      }
    }
  }
  return values;
}

}  // namespace

const char* NameOf(OutputMode mode) {
  for (const auto& [name, value] : kOutputModeNames) {
    if (value == mode) return name;
  }
  return "";
}

OutputMode OutputModeOf(const ProgramSpec& spec, const std::string& output) {
  const auto own = spec.output_modes.find(output);
  return own == spec.output_modes.end() ? spec.output_mode : own->second;
}

std::map<std::string, Compiled::Initial> InitialValues(const program::Executable& executable,
                                                       const graph::Graph& graph,
                                                       const CompileOptions& options) {
  std::map<std::string, Compiled::Initial> values;
  const std::map<std::string, float> started = FirstValuesOfState(graph, options);
  std::set<std::string> given;
  for (graph::Tensor variable : graph.variables()) given.insert(graph.values()[variable.id].name);
  for (const auto& [name, value] : started) given.insert(name);
  // Other state of the optimiser begins with zeros, and so do remote buffers by themselves.
  for (const program::HostTensor& variable : executable.host_tensors()) {
    if (!variable.remote || given.contains(variable.name))
      values.insert({variable.name, {variable.host_type(), graph::InitialValue::Filled(0)}});
  }
  const auto set = [&](const std::string& name, graph::InitialValue value) {
    const auto it = values.find(name);
    if (it != values.end()) it->second.value = std::move(value);
  };
  for (const auto& [name, value] : started) set(name, graph::InitialValue::Filled(value));
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
    if (spec.histogram_loss_scale) set(kLossScaleFactorName, graph::InitialValue::Filled(1));
  }
  return values;
}

uint32_t ReplicasOf(const graph::Graph& graph, const CompileOptions& options) {
  const bool trains = std::any_of(options.programs.begin(), options.programs.end(),
                                  [](const ProgramSpec& spec) { return spec.loss.has_value(); });
  const bool counts = std::any_of(
      graph.assignments().begin(), graph.assignments().end(),
      [](const graph::Assignment& each) { return each.when == graph::Assigned::kIfRead; });
  return trains || counts ? options.total_replicas : 0;
}

absl::StatusOr<Compiled> Compile(const graph::Graph& graph, const CompileOptions& asked_for,
                                 const Progress& progress) {
  const CompileOptions options = IsPlannedProgram() ? OptionsForPlan(asked_for) : asked_for;
  // The steps of the programs, then validation, the check of memory and initial values.
  const auto total = static_cast<uint32_t>(kStepsOfProgram * options.programs.size() + 3);
  uint32_t done = 0;
  const auto report = [&](absl::string_view step) {
    return progress ? progress(step, done, total) : absl::OkStatus();
  };
  const auto before = [&](absl::string_view step) {
    VPOD_RETURN_IF_ERROR(report(step));
    ++done;
    return absl::OkStatus();
  };
  Compiled compiled;
  VPOD_ASSIGN_OR_RETURN(compiled.executable, MakeExecutable(graph, options, before));
  VPOD_RETURN_IF_ERROR(before("Checking memory"));
  if (!asked_for.allow_out_of_memory)
    VPOD_RETURN_IF_ERROR(CheckThatItFits(graph, options, report, compiled));
  VPOD_RETURN_IF_ERROR(before("Initial values"));
  compiled.initial_values = InitialValues(*compiled.executable, graph, options);
  VPOD_RETURN_IF_ERROR(report("Done"));
  return compiled;
}

}  // namespace vpod::compiler
