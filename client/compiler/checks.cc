#include "client/compiler/checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/compiler/optimizer.h"
#include "client/compiler/product_plans.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"

namespace vpod::compiler {
namespace {

absl::Status CheckLossScale(const ProgramSpec& spec) {
  const auto bad = [&](absl::string_view name, auto value, absl::string_view range) {
    return absl::InvalidArgumentError(
        absl::StrCat("program '", spec.name, "': ", name, " is ", value, ", must be ", range));
  };
  if (spec.loss_scale && !(*spec.loss_scale > 0 && std::isfinite(*spec.loss_scale)))
    return bad("the loss scale", *spec.loss_scale, "above 0 and finite");
  if (!spec.automatic_loss_scale && !spec.histogram_loss_scale) return absl::OkStatus();
  if (!spec.loss_scale) {
    return absl::InvalidArgumentError(absl::StrCat(
        "program '", spec.name, "': an automatic loss scale needs a loss scale to start with"));
  }
  if (spec.histogram_loss_scale) {
    const auto [bin_edge, upper_proportion, period] = *spec.histogram_loss_scale;
    if (spec.automatic_loss_scale) {
      return absl::InvalidArgumentError(
          absl::StrCat("program '", spec.name,
                       "' has automatic_loss_scale and histogram_loss_scale, may have "
                       "one of them"));
    }
    if (!(bin_edge > 0 && bin_edge <= 1))
      return bad("the bin edge of the loss scale", bin_edge, "above 0 and at most 1");
    if (!(upper_proportion > 0 && upper_proportion < 1))
      return bad("the loss scale's upper proportion", upper_proportion, "above 0 and below 1");
    // Updates are counted in float32.
    if (period < 1 || period > 1u << 24)
      return bad("the loss scale's period", period, "1 to 16777216");
    return absl::OkStatus();
  }
  const auto [growth, backoff, interval] = *spec.automatic_loss_scale;
  if (!(growth > 1 && std::isfinite(growth)))
    return bad("the loss scale's growth", growth, "above 1 and finite");
  if (!(backoff > 0 && backoff < 1))
    return bad("the loss scale's backoff", backoff, "above 0 and below 1");
  if (interval < 1) return bad("the loss scale's interval", interval, "1 or more");
  return absl::OkStatus();
}

absl::Status CheckClipping(const ProgramSpec& spec) {
  const auto check = [&](absl::string_view name, std::optional<float> limit) {
    if (!limit || (*limit > 0 && std::isfinite(*limit))) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("program '", spec.name, "': ", name, " is ",
                                                   *limit, ", must be above 0 and finite"));
  };
  VPOD_RETURN_IF_ERROR(check("the norm to which gradients are clipped", spec.clip_norm));
  return check("the value to which gradients are clipped", spec.clip_value);
}

// Whether two programs give all variables the same optimisers.
bool HaveEqualOptimizers(const ProgramSpec& a, const ProgramSpec& b) {
  if (a.groups.size() != b.groups.size()) return false;
  for (size_t group = 0; group <= a.groups.size(); ++group) {
    const Optimizer &of_a = OptimizerOf(a, group), &of_b = OptimizerOf(b, group);
    if (of_a.index() != of_b.index() || HyperParameters(of_a) != HyperParameters(of_b))
      return false;
    if (group > 0 && a.groups[group - 1].variables != b.groups[group - 1].variables) return false;
  }
  return true;
}

absl::Status CheckOptimizers(const ProgramSpec& spec) {
  for (size_t group = 0; group <= spec.groups.size(); ++group) {
    const absl::Status status = CheckHyperParameters(OptimizerOf(spec, group));
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "program '", spec.name, "'", group == 0 ? "" : absl::StrCat(", parameter group ", group),
        ": ", status.message()));
  }
  return absl::OkStatus();
}

// The name of an option that only training uses and that the program gives; empty if it gives none.
absl::string_view TrainingOptionOf(const ProgramSpec& spec) {
  const std::pair<bool, absl::string_view> given[] = {
      {spec.optimizer.has_value(), "an optimizer"},
      {!spec.groups.empty(), "groups"},
      {spec.accumulation != 1, "an accumulation above 1"},
      {spec.clip_norm.has_value(), "clip_norm"},
      {spec.clip_value.has_value(), "clip_value"},
      {spec.loss_scale.has_value(), "loss_scale"},
      {spec.automatic_loss_scale.has_value(), "automatic_loss_scale"},
      {spec.histogram_loss_scale.has_value(), "histogram_loss_scale"},
      {spec.reduction != GradientReduction::kMean, "reduction"},
      {spec.float16_accumulators, "float16_accumulators"},
      {!spec.gradient_outputs.empty(), "gradient_outputs"}};
  for (const auto& [is_given, name] : given) {
    if (is_given) return name;
  }
  return "";
}

// A program trains with a loss and an optimiser, or does not train.
absl::Status CheckTraining(const ProgramSpec& spec) {
  if (spec.loss.has_value() && !spec.optimizer.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "program '", spec.name, "' has a loss and no optimizer: choose one, such as SGD"));
  }
  const absl::string_view unused = spec.loss.has_value() ? "" : TrainingOptionOf(spec);
  if (unused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "program '", spec.name, "' has ", unused, " and no loss: without a loss nothing is trained"));
}

// A loss has one element: with several, gradients would be those of their sum.
absl::Status CheckLoss(const graph::Graph& graph, const ProgramSpec& spec) {
  if (!spec.loss) return absl::OkStatus();
  const auto wrong = [&](auto... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("program '", spec.name, "': the loss is ", why...));
  };
  if (spec.loss->id >= graph.values().size()) return wrong("not a value of the graph");
  const graph::TensorType type = graph.TypeOf(*spec.loss);
  if (!program::IsFloat(type.type)) return wrong(type.ToString(), ", must be a float");
  if (type.elements() == 1) return absl::OkStatus();
  return wrong(type.ToString(), ", must have one element: take its mean or its sum");
}

absl::Status CheckOutputMode(const ProgramSpec& spec) {
  const bool has_period =
      spec.output_mode == OutputMode::kEveryN ||
      std::any_of(spec.output_modes.begin(), spec.output_modes.end(),
                  [](const auto& own) { return own.second == OutputMode::kEveryN; });
  if (!has_period && spec.output_period != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("program '", spec.name, "': output_period is ", spec.output_period,
                     ", which only output_mode every-n has; leave it at 1 or choose that mode"));
  }
  if (spec.output_period >= 1 && spec.device_iterations % spec.output_period == 0)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("program '", spec.name, "': output_period is ",
                                                 spec.output_period, ", must divide the ",
                                                 spec.device_iterations, " device iterations"));
}

absl::Status CheckSums(const graph::Graph& graph, const ProgramSpec& spec) {
  for (const graph::GraphOutput& output : graph.outputs()) {
    if (OutputModeOf(spec, output.name) != OutputMode::kSum) continue;
    const program::v1::DataType type = graph.TypeOf(output.value).type;
    if (program::IsFloat(type) || type == program::v1::INT32) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("program '", spec.name, "': output '", output.name, "' of ",
                     graph.TypeOf(output.value).ToString(), " has no sum: must be float or int32"));
  }
  return absl::OkStatus();
}

// Own modes are those of outputs, and gradients those by floats.
absl::Status CheckOutputs(const graph::Graph& graph, const ProgramSpec& spec) {
  const auto wrong = [&](auto... what) {
    return absl::InvalidArgumentError(absl::StrCat("program '", spec.name, "': ", what...));
  };
  std::set<std::string> names;
  for (const graph::GraphOutput& output : graph.outputs()) names.insert(output.name);
  for (const GradientOutput& output : spec.gradient_outputs) {
    if (output.value.id >= graph.values().size())
      return wrong("gradient output '", output.name, "' is not of a value of the graph");
    const graph::TensorType type = graph.TypeOf(output.value);
    if (!program::IsFloat(type.type)) {
      return wrong("gradient output '", output.name, "' is of a value of ", type.ToString(),
                   ", must be of a float");
    }
    names.insert(output.name);
  }
  for (const auto& [name, mode] : spec.output_modes) {
    if (!names.contains(name))
      return wrong("output_modes names '", name, "', which is not an output");
  }
  return absl::OkStatus();
}

// Groups name trainable variables, each in one group.
absl::Status CheckGroups(const graph::Graph& graph, const ProgramSpec& spec) {
  std::set<std::string> variables, taken;
  for (graph::Tensor variable : graph.variables())
    variables.insert(graph.values()[variable.id].name);
  for (const ParameterGroup& group : spec.groups) {
    for (const std::string& name : group.variables) {
      const bool exists = variables.contains(name);
      if (exists && taken.insert(name).second) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "program '", spec.name, "': ", exists ? "two parameter groups name" : "there is no",
          " trainable variable '", name, "'"));
    }
  }
  return absl::OkStatus();
}

// A variable that is named like the optimiser's state would be taken for it.
absl::Status CheckNames(const graph::Graph& graph) {
  std::vector<graph::Tensor> state = graph.variables();
  state.insert(state.end(), graph.buffers().begin(), graph.buffers().end());
  for (graph::Tensor variable : state) {
    const std::string& name = graph.values()[variable.id].name;
    if (!IsOptimizerState(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the variable name '", name, "' is reserved for the optimiser"));
  }
  return absl::OkStatus();
}

absl::Status CheckIpus(const graph::Graph& graph, uint32_t ipus) {
  const auto check = [&](const std::string& what, uint32_t ipu) {
    if (ipu < ipus) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is on IPU ", ipu, ", a replica has IPUs 0 to ", ipus - 1));
  };
  for (const graph::Value& value : graph.values()) {
    if (!value.name.empty())
      VPOD_RETURN_IF_ERROR(check(absl::StrCat("'", value.name, "'"), value.ipu));
  }
  const auto check_nodes = [&](const std::vector<graph::Node>& nodes) {
    for (const graph::Node& node : nodes)
      VPOD_RETURN_IF_ERROR(check(program::NameOf(graph.origins().at(node.origin)), node.ipu));
    return absl::OkStatus();
  };
  for (const graph::GradientRegion& region : graph.regions())
    VPOD_RETURN_IF_ERROR(check_nodes(region.nodes));
  return check_nodes(graph.nodes());
}

}  // namespace

absl::Status CheckOptions(const CompileOptions& options) {
  VPOD_RETURN_IF_ERROR(CheckProductOptions(options));
  if (options.programs.empty()) return absl::InvalidArgumentError("no program to compile");
  if (options.total_replicas < 1) {
    return absl::InvalidArgumentError("total_replicas is 0, must be 1 or more");
  }
  if (options.tensor_shards < 1 || options.total_replicas % options.tensor_shards != 0) {
    return absl::InvalidArgumentError(absl::StrCat("tensor_shards is ", options.tensor_shards,
                                                   ", must divide the ", options.total_replicas,
                                                   " replicas of the job"));
  }
  const uint32_t ipus = options.ipus_per_replica;
  if (!arch::IsPowerOfTwo(ipus) || ipus > arch::kMaxIpusPerReplica) {
    return absl::InvalidArgumentError(absl::StrCat("ipus_per_replica is ", ipus,
                                                   ", must be a power of two from 1 to ",
                                                   arch::kMaxIpusPerReplica));
  }
  const ProgramSpec* training = nullptr;
  for (const ProgramSpec& spec : options.programs) {
    if (spec.device_iterations < 1 || spec.accumulation < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "program '", spec.name, "': device iterations and accumulation must be 1 or more"));
    }
    VPOD_RETURN_IF_ERROR(CheckTraining(spec));
    if (uint64_t{spec.device_iterations} * spec.accumulation >
        std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "program '", spec.name, "': ", spec.device_iterations, " device iterations × ",
          spec.accumulation, " micro-batches are too many for one run"));
    }
    VPOD_RETURN_IF_ERROR(CheckOutputMode(spec));
    if (!spec.loss.has_value()) continue;
    // All programs of an executable read the same variables.
    if (training != nullptr &&
        (!HaveEqualOptimizers(*training, spec) || training->loss_scale != spec.loss_scale ||
         training->histogram_loss_scale.has_value() != spec.histogram_loss_scale.has_value())) {
      return absl::InvalidArgumentError(absl::StrCat("programs '", training->name, "' and '",
                                                     spec.name, "' have different optimisers"));
    }
    // It decides whether LAMB's state is shared out.
    if (training != nullptr && options.tensor_shards > 1 &&
        training->automatic_loss_scale.has_value() != spec.automatic_loss_scale.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("programs '", training->name, "' and '", spec.name,
                       "': with tensor sharding both or none have an automatic loss scale"));
    }
    VPOD_RETURN_IF_ERROR(CheckOptimizers(spec));
    VPOD_RETURN_IF_ERROR(CheckLossScale(spec));
    VPOD_RETURN_IF_ERROR(CheckClipping(spec));
    training = &spec;
  }
  return absl::OkStatus();
}

absl::Status CheckGraph(const graph::Graph& graph, const CompileOptions& options) {
  VPOD_RETURN_IF_ERROR(CheckNames(graph));
  for (const ProgramSpec& spec : options.programs) {
    VPOD_RETURN_IF_ERROR(CheckLoss(graph, spec));
    VPOD_RETURN_IF_ERROR(CheckGroups(graph, spec));
    VPOD_RETURN_IF_ERROR(CheckOutputs(graph, spec));
    VPOD_RETURN_IF_ERROR(CheckSums(graph, spec));
  }
  return CheckIpus(graph, options.ipus_per_replica);
}

}  // namespace vpod::compiler
