#include "client/poptorch/options.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/engine_options/engine_options.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"

namespace vpod::poptorch {
namespace {

using compiler::CompileOptions;
using compiler::ProgramSpec;

// Setters of poptorch.Options and what else a user changes, for the message about what does not
// fit.
model::OptionNames OptionNames() {
  return {.float16 = "model.half()",
          .micro_batch = "batch_size of poptorch.DataLoader",
          .optimizer = "poptorch.optim.SGD",
          .accumulation = "Training.gradientAccumulation",
          .recomputation = "_Popart.set(\"autoRecomputation\", 1)",
          .memory_proportions = "setAvailableMemoryProportion",
          .off_chip_activations = "TensorLocations.setActivationLocation",
          .off_chip_optimizer_state = "TensorLocations.setOptimizerLocation",
          .off_chip_weights = "TensorLocations.setWeightLocation",
          .off_chip_accumulators = "TensorLocations.setAccumulatorLocation",
          .tensor_shards = "TensorLocationSettings.useReplicatedTensorSharding",
          .ipus_per_replica = "poptorch.Block with ipu_id",
          .ipus_without_pipeline = "poptorch.Block with ipu_id, ShardedExecution"};
}

// Engine options of the program and the environment together; none if there are none.
absl::StatusOr<std::optional<EngineOptions>> EngineOptionsFor(const ModelOptions& options) {
  constexpr char kDirectory[] = "autoReport.directory";
  VPOD_ASSIGN_OR_RETURN(EngineOptions environment, ReadEngineOptions());
  std::map<std::string, std::string> all = environment.all;
  all.insert(options.engine_options.begin(), options.engine_options.end());
  if (all.empty()) return std::nullopt;
  if (!options.report_name.empty()) {
    const std::string& directory = all.emplace(kDirectory, ".").first->second;
    all[kDirectory] = absl::StrCat(directory, "/", options.report_name);
  }
  VPOD_ASSIGN_OR_RETURN(EngineOptions engine, MakeEngineOptions(all));
  return engine;
}

// Replicas and IPUs of a process are reserved together, as one device.
absl::StatusOr<uint32_t> IpusPerReplica(const ModelOptions& options, uint32_t used) {
  constexpr uint32_t kMost = arch::kMaxIpusPerReplica;
  const uint64_t wanted = uint64_t{used} * options.replicas;
  if (wanted > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("Too many IPUs requested (", wanted,
                                                   "). Experiments that need more than ", kMost,
                                                   " IPUs require distributed execution."));
  }
  const auto reserved = std::bit_ceil(static_cast<uint32_t>(wanted));
  if (reserved != wanted && !options.round_ipus_up) {
    return absl::InvalidArgumentError(absl::StrCat(
        "The model specifies the use of ", wanted, " IPUs, however PopTorch must reserve a ",
        "minimum of ", reserved, " in order to allow the model to run, because PopTorch must ",
        "reserve a power of 2 or maximum of ", kMost, " IPUs per process. Please reconfigure your ",
        "model to use a different number of IPUs or set ",
        "poptorch.Options().autoRoundNumIPUs(True)."));
  }
  return std::bit_ceil(used);
}

// A training pipeline has a backward stage for each forward stage but the last one.
absl::Status CheckPipeline(const ModelOptions& options, uint32_t forward_stages) {
  if (!options.training) {
    if (options.device_iterations >= forward_stages) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("poptorch.Options().deviceIterations must be greater than or equal to the ",
                     "number of pipeline stages (", forward_stages,
                     ") when using poptorch.PipelinedExecution."));
  }
  const uint32_t stages = 2 * forward_stages - 1;
  if (options.gradient_accumulation >= stages) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the ",
      "number of pipeline stages (", stages, ") when using poptorch.PipelinedExecution. Please ",
      "note that a model with ", forward_stages, " pipeline stages in PopTorch will have an ",
      "additional ", forward_stages - 1, " stages when training."));
}

// Groups whose parameters the model does not use stay, without variables, so that a group has its
// number.
std::vector<compiler::ParameterGroup> OnlyTrained(
    const std::vector<compiler::ParameterGroup>& groups, const std::vector<std::string>& trained) {
  const std::set<std::string> known(trained.begin(), trained.end());
  std::vector<compiler::ParameterGroup> result;
  for (const compiler::ParameterGroup& group : groups) {
    result.push_back({{}, group.optimizer});
    for (const std::string& name : group.variables) {
      if (known.contains(name)) result.back().variables.push_back(name);
    }
  }
  return result;
}

absl::StatusOr<ProgramSpec> SpecFor(const TapeProgram& program, const BuiltGraph& built) {
  const ModelOptions& options = program.options;
  ProgramSpec spec{.name = options.name,
                   .device_iterations = options.device_iterations,
                   .accumulation = options.training ? options.gradient_accumulation : 1,
                   .output_mode = options.output_mode,
                   .output_period = DevicePeriod(options)};
  for (size_t i = 0; i < options.anchors.size(); ++i)
    spec.output_modes[AnchorName(i)] = options.anchors[i].mode;
  if (!options.training) return spec;
  if (program.optimizer.groups.empty())
    return absl::InvalidArgumentError("the optimiser has no parameter group");
  if (built.trained.empty()) {
    return absl::InvalidArgumentError(
        "the loss depends on no parameter that the optimiser has and that requires gradients");
  }
  std::vector<compiler::ParameterGroup> groups =
      OnlyTrained(program.optimizer.groups, built.trained);
  // The compiler's group 0 has all variables without a group: those of the first group.
  spec.loss = built.loss;
  spec.optimizer = groups.front().optimizer;
  spec.groups.assign(std::next(groups.begin()), groups.end());
  spec.clip_norm = program.optimizer.max_grad_norm;
  spec.loss_scale = program.optimizer.loss_scale;
  spec.histogram_loss_scale = options.automatic_loss_scale;
  if (spec.histogram_loss_scale && !spec.loss_scale) spec.loss_scale = 1;
  spec.reduction = options.reduction;
  spec.float16_accumulators = program.optimizer.float16_accumulators;
  spec.gradient_outputs = built.gradient_outputs;
  return spec;
}

// The compiler knows only the period that the device has.
absl::Status CheckOutputs(const ModelOptions& options) {
  const auto check = [&](absl::string_view what, const OutputReturn& output) {
    if (output.mode != compiler::OutputMode::kEveryN ||
        (output.period > 0 && options.device_iterations % output.period == 0)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the return period of ", what, " is ", output.period, ", must divide the ",
                     options.device_iterations, " device iterations"));
  };
  VPOD_RETURN_IF_ERROR(check("the outputs", OutputReturn::Of(options)));
  for (const Anchor& anchor : options.anchors) {
    VPOD_RETURN_IF_ERROR(check("an anchor", OutputReturn::Of(anchor)));
    if (anchor.gradient && !options.training)
      return absl::InvalidArgumentError("an anchor is a gradient, and the model does not train");
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t MicroBatches(const ModelOptions& options) {
  return options.device_iterations * (options.training ? options.gradient_accumulation : 1);
}

uint32_t InputGroups(const ModelOptions& options) {
  return options.replicas / options.input_group_size;
}

uint32_t InputGroupOf(const ModelOptions& options, uint32_t replica) {
  return GroupOf({InputGroups(options), options.orthogonal_input_groups}, options.replicas,
                 replica);
}

uint32_t GroupOf(const ReplicaGroups& groups, uint32_t replicas, uint32_t replica) {
  return groups.orthogonal ? replica % groups.count : replica / (replicas / groups.count);
}

absl::Status CheckReplicaGroups(const Tape& tape, const ModelOptions& options) {
  for (const NamedValue& parameter : tape.parameters) {
    if (!parameter.groups) continue;
    const uint32_t count = parameter.groups->count;
    if (count == 0 || options.replicas % count != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", parameter.name, "' is for ", count, " groups of replicas, ",
                       "must be for a factor of the ", options.replicas, " replicas"));
    }
    if (options.processes > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", parameter.name, "' is for groups of replicas, which must be ",
                       "in one process, and there are ", options.processes));
    }
    if (parameter.final != parameter.value) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", parameter.name,
                       "' is for groups of replicas, and cannot be written in forward"));
    }
  }
  return absl::OkStatus();
}

uint32_t ReturnedMicroBatches(const ModelOptions& options, const OutputReturn& output) {
  switch (output.mode) {
    case compiler::OutputMode::kAll:
      return MicroBatches(options);
    case compiler::OutputMode::kFinal:
    case compiler::OutputMode::kSum:
      return 1;
    case compiler::OutputMode::kEveryN:
      return MicroBatches(options) / std::max(output.period, 1u);
  }
  return 1;
}

uint32_t DevicePeriod(const ModelOptions& options) {
  uint32_t period = 0;
  const auto add = [&](const OutputReturn& output) {
    if (output.mode == compiler::OutputMode::kEveryN) period = std::gcd(period, output.period);
  };
  add(OutputReturn::Of(options));
  for (const Anchor& anchor : options.anchors) add(OutputReturn::Of(anchor));
  return std::max(period, 1u);
}

std::vector<uint32_t> ReturnedPlaces(const ModelOptions& options, const OutputReturn& output) {
  std::vector<uint32_t> places(ReturnedMicroBatches(options, output));
  std::iota(places.begin(), places.end(), 0);
  if (output.mode != compiler::OutputMode::kEveryN) return places;
  // All micro-batches of the last one of each so many iterations that the device sends.
  const uint32_t iterations = std::max(output.period, 1u) / DevicePeriod(options);
  const uint32_t of_iteration = MicroBatches(options) / options.device_iterations;
  for (uint32_t& place : places) {
    const uint32_t chosen = place / of_iteration;
    place += (chosen * (iterations - 1) + iterations - 1) * of_iteration;
  }
  return places;
}

absl::StatusOr<CompileOptions> CompileOptionsFor(const TapeProgram& program,
                                                 const BuiltGraph& built) {
  const ModelOptions& options = program.options;
  VPOD_RETURN_IF_ERROR(CheckOutputs(options));
  if (options.input_group_size == 0 || options.replicas % options.input_group_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("input_group_size is ", options.input_group_size,
                                                   ", must be a factor of the ", options.replicas,
                                                   " replicas"));
  }
  CompileOptions compile;
  compile.front.names = OptionNames();
  if (options.processes > 1) compile.front.instance_replicas = options.replicas;
  VPOD_ASSIGN_OR_RETURN(compile.ipus_per_replica, IpusPerReplica(options, built.ipus));
  compile.total_replicas = options.replicas * options.processes;
  const bool pipelined = options.strategy == Strategy::kPipelined && built.ipus > 1;
  if (pipelined) {
    VPOD_RETURN_IF_ERROR(CheckPipeline(options, built.stages));
    compile.schedule = compiler::Schedule::kGrouped;
  } else if (options.strategy == Strategy::kPhased) {
    compile.schedule = compiler::Schedule::kPhased;
  }
  // A program that does not train computes nothing again.
  if (options.training) {
    compile.recomputation =
        options.recomputation.value_or(pipelined          ? compiler::Recomputation::kPipeline
                                       : built.recomputes ? compiler::Recomputation::kAll
                                                          : compiler::Recomputation::kNone);
    compile.off_chip_activations = options.off_chip_activations;
    compile.off_chip_optimizer_state = options.off_chip_optimizer_state;
    compile.off_chip_accumulators = options.off_chip_accumulators;
    compile.off_chip_weights = options.off_chip_weights;
    compile.tensor_shards = options.tensor_shards;
    if (options.stochastic_rounding) compile.rounding = compiler::Rounding::kStochastic;
  }
  VPOD_ASSIGN_OR_RETURN(compile.engine, EngineOptionsFor(options));
  compile.allow_out_of_memory = options.allow_out_of_memory;
  compile.products.partials = options.partials;
  compile.products.memory_proportions.resize(compile.ipus_per_replica);
  for (const auto& [ipu, proportion] : options.memory_proportions) {
    if (ipu < compile.ipus_per_replica) compile.products.memory_proportions[ipu] = proportion;
  }
  VPOD_ASSIGN_OR_RETURN(ProgramSpec spec, SpecFor(program, built));
  compile.programs.push_back(std::move(spec));
  return compile;
}

}  // namespace vpod::poptorch
