#include "client/compiler/compiler.h"

#include "client/compiler/assembly.h"
#include "client/compiler/checks.h"
#include "client/compiler/lowering.h"
#include "client/compiler/passes.h"
#include "device/base/status.h"

namespace vpod::compiler {

namespace v1 = program::v1;

std::map<std::string, Compiled::Initial> InitialValues(const program::Executable& executable,
                                                       const graph::Graph& graph,
                                                       const CompileOptions& options) {
  std::map<std::string, Compiled::Initial> values;
  // The state of the optimiser begins with zeros.
  for (const program::HostTensor& variable : executable.host_tensors()) {
    if (!variable.remote)
      values.insert({variable.name, {variable.type, graph::InitialValue::Filled(0)}});
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
    for (uint32_t ipu = 0; ipu < options.ipus_per_replica; ++ipu)
      set(HyperParametersName(ipu), HyperParameters(spec));
    if (spec.loss_scale) set(kLossScaleName, graph::InitialValue::Filled(*spec.loss_scale));
  }
  return values;
}

absl::StatusOr<Compiled> Compile(const graph::Graph& graph, const CompileOptions& options,
                                 const Progress& progress) {
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
  Assembler assembler(graph, options);
  for (const ProgramSpec& spec : options.programs) {
    report("Lowering");
    VPOD_ASSIGN_OR_RETURN(LoweredProgram program, Lower(graph, spec, options, dump));
    assembler.AddVariables(program);
    programs.push_back(std::move(program));
  }
  for (size_t i = 0; i < programs.size(); ++i) {
    report("Placing tensors");
    assembler.AddProgram(options.programs[i], std::move(programs[i]));
  }
  Compiled compiled;
  report("Validating");
  VPOD_ASSIGN_OR_RETURN(compiled.executable,
                        program::Executable::Make(assembler.Finish(), {}, assembler.Origins()));
  VPOD_RETURN_IF_ERROR(dump.Add("all", "executable", compiled.executable->proto()));
  report("Initial values");
  compiled.initial_values = InitialValues(*compiled.executable, graph, options);
  report("Done");
  return compiled;
}

}  // namespace vpod::compiler
