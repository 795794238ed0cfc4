#include "client/compiler/backward.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/histogram_loss_scale.h"
#include "client/compiler/placement.h"
#include "client/compiler/product_plans.h"
#include "client/compiler/random_rounding.h"
#include "device/base/status.h"

namespace vpod::compiler {
namespace {

using graph::Graph;
using graph::Tensor;
using program::v1::FLOAT32;

// Adds the gradients of the loss, and the outputs among them. InvalidArgument names an output
// whose value has no gradient.
absl::StatusOr<LossGradients> AddLossGradients(Graph& graph, const ProgramSpec& spec,
                                               uint32_t replicas) {
  LossGradients gradients;
  if (spec.loss_scale) {
    graph.SetIpu(graph.values()[spec.loss->id].ipu);
    gradients.loss_scale = graph.Buffer(kLossScaleName, {FLOAT32, {}}, {*spec.loss_scale});
  }
  Tensor scale = gradients.loss_scale;
  if (spec.histogram_loss_scale) {
    graph.SetStage(graph.values()[spec.loss->id].stage);
    gradients.loss_scale_factor = graph.Buffer(kLossScaleFactorName, {FLOAT32, {}}, {1});
    scale = graph.Multiply(scale, gradients.loss_scale_factor);
  }
  std::vector<Tensor> wanted = graph.variables();
  for (const GradientOutput& output : spec.gradient_outputs) wanted.push_back(output.value);
  if (spec.histogram_loss_scale) {
    const std::vector<Tensor> counted = ValuesWithCountedGradients(graph);
    wanted.insert(wanted.end(), counted.begin(), counted.end());
  }
  std::vector<std::vector<Tensor>> uses = graph.GradientsOfUses(*spec.loss, wanted, scale);
  if (!graph.status().ok()) return gradients;
  for (size_t i = 0; i < spec.gradient_outputs.size(); ++i) {
    const auto& [name, value] = spec.gradient_outputs[i];
    const Tensor gradient = graph.GradientOf(value, uses[graph.variables().size() + i]);
    if (!gradient.valid()) {
      return absl::InvalidArgumentError(
          absl::StrCat("program '", spec.name, "': the loss does not depend, by way of gradients, ",
                       "on the value of which '", name, "' is the gradient"));
    }
    graph.Output(name, gradient);
  }
  const auto of_outputs = uses.begin() + static_cast<ptrdiff_t>(graph.variables().size());
  uses.erase(of_outputs, of_outputs + static_cast<ptrdiff_t>(spec.gradient_outputs.size()));
  if (spec.histogram_loss_scale) gradients.counted = CountedGradients(graph, uses);
  uses.resize(graph.variables().size());
  gradients.of_variables = std::move(uses);
  // Where an update has several micro-batches, each use of a variable enters the wide accumulator
  // by itself, so that the sum does not depend on how they are dealt to replicas.
  if (spec.accumulation > 1 || replicas > 1) return gradients;
  for (size_t v = 0; v < gradients.of_variables.size(); ++v) {
    std::vector<Tensor>& of_variable = gradients.of_variables[v];
    if (!of_variable.empty()) of_variable = {graph.SumOfUses(graph.variables()[v], of_variable)};
  }
  return gradients;
}

// A program that does not train leaves out what is assigned in training, such as running moments.
void RemoveAssignmentsOfTraining(Graph& graph) {
  std::vector<graph::Assignment> kept = graph.assignments();
  std::erase_if(kept, [](const graph::Assignment& each) {
    return each.when == graph::Assigned::kInTraining;
  });
  graph.SetAssignments(std::move(kept));
}

absl::Status CheckThatSomethingIsTrained(const GraphProgram& program) {
  const auto& gradients = program.gradients.of_variables;
  if (std::any_of(gradients.begin(), gradients.end(),
                  [](const std::vector<Tensor>& uses) { return !uses.empty(); }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("program '", program.spec.name, "': ",
                   gradients.empty() ? "the graph has no variable"
                                     : "the loss depends on no variable by way of gradients",
                   ", so that nothing would be trained"));
}

}  // namespace

absl::StatusOr<GraphProgram> AddGradients(const Graph& graph, const ProgramSpec& spec,
                                          const CompileOptions& options) {
  GraphProgram program{.spec = spec,
                       .ipus = options.ipus_per_replica,
                       .replicas = options.total_replicas,
                       .off_chip_state = options.off_chip_optimizer_state,
                       .off_chip_accumulators = options.off_chip_accumulators,
                       .tensor_shards = options.tensor_shards,
                       .graph = graph,
                       .filters = FindFilters(graph, options.rounding)};
  program.graph.SetReplicas(options.total_replicas);
  if (!program.trains()) RemoveAssignmentsOfTraining(program.graph);
  if (program.trains()) {
    program.first_backward = static_cast<uint32_t>(program.graph.values().size());
    VPOD_ASSIGN_OR_RETURN(program.gradients,
                          AddLossGradients(program.graph, spec, program.replicas));
    VPOD_RETURN_IF_ERROR(program.graph.status());
    program.spec.gradient_outputs.clear();  // the graph has them
    VPOD_RETURN_IF_ERROR(CheckThatSomethingIsTrained(program));
    program.rounding = AddRoundingStates(program.graph, spec, options);
  }
  VPOD_RETURN_IF_ERROR(program.graph.status());
  SetProductPlans(program, options.products);
  return program;
}

}  // namespace vpod::compiler
