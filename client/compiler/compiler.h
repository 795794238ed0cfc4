// From a graph to an executable for the IPUs of one replica. The same graph and options give the
// same bytes, whatever the machine. A compilation reads these variables of the environment:
//
//   VPOD_PLAN_DIRECTORY, VPOD_PLAN_REPLICAS   a program that `vpod plan` runs is compiled for other
//                                             replicas (planned_program.h) and not cached
//   POPLAR_ENGINE_OPTIONS                     whether an executable that does not fit is given all
//                                             the same; its bytes do not depend on it
//
// so that programs need not hand them on. A training program is
//
//   repeat device_iterations:
//     clear the accumulators
//     repeat accumulation:  read a micro-batch, forward, backward, accumulate, write the outputs
//     all-reduce the gradients, update the weights (unless gradients overflowed), adapt the loss
//     scale
//
// and an inference program reads, computes and writes device_iterations times.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/graph/graph.h"
#include "device/model/memory_options.h"
#include "device/program/executable.h"

namespace vpod::compiler {

// Optimisers; the formulas are in program.proto, and PyTorch's if it has the optimiser.
// Hyper-parameters are in a variable of the executable (HyperParametersName), so that they can
// change between runs.
struct SgdOptions {
  float learning_rate = 0.01f;
  float momentum = 0;  // velocities are kept if it is not 0 here
  float dampening = 0;
  float weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

struct AdamOptions {
  float learning_rate = 0.001f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  bool decoupled_weight_decay = false;  // AdamW
  bool amsgrad = false;
  bool maximize = false;
};

struct RmsPropOptions {
  float learning_rate = 0.01f;
  float alpha = 0.99f;  // what is kept of the mean square
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float momentum = 0;  // velocities are kept if it is not 0 here
  bool centered = false;
  bool maximize = false;
};

// Layer-wise adaptive moments: You et al., "Large batch optimization for deep learning", 2020.
struct LambOptions {
  float learning_rate = 0.001f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = 1e-6f;
  float weight_decay = 0;
  bool maximize = false;
};

// Layer-wise adaptive rates: You et al., "Large batch training of convolutional networks", 2017.
struct LarsOptions {
  float learning_rate = 0.1f;
  float momentum = 0.9f;
  float weight_decay = 0;
  float trust = 0.001f;  // the size of a step relative to that of the weights
  float epsilon = 1e-8f;
  bool maximize = false;
};

using Optimizer = std::variant<SgdOptions, AdamOptions, RmsPropOptions, LambOptions, LarsOptions>;

// Variables with an optimiser of their own.
struct ParameterGroup {
  std::vector<std::string> variables;  // names
  Optimizer optimizer;
};

// The rule of PyTorch's GradScaler: an update with a gradient that is not finite is left out, and
// the loss scale shrinks by `backoff`; after each `interval` good updates it grows by `growth`.
struct AutomaticLossScale {
  float growth = 2, backoff = 0.5f;
  uint32_t interval = 2000;
};

// How gradients of micro-batches and replicas become one. Mean divides by accumulation × replicas
// after all have been added. The running mean divides by replicas only: after each micro-batch the
// accumulator holds the mean of the micro-batches so far, (k - 1) / k of what it held and 1 / k of
// the gradient of micro-batch k, so that its size does not grow with their number.
enum class GradientReduction { kMean, kSum, kRunningMean };

// The outputs of a replica that a run gives to the host, as in PopTorch.
enum class OutputMode {
  kAll,     // each micro-batch
  kFinal,   // the last micro-batch of the run
  kSum,     // one value: the sum over all micro-batches, in their order and type
  kEveryN,  // all micro-batches of each output_period-th device iteration
};

// As command lines have them.
inline constexpr std::pair<const char*, OutputMode> kOutputModeNames[] = {
    {"all", OutputMode::kAll},
    {"final", OutputMode::kFinal},
    {"sum", OutputMode::kSum},
    {"every-n", OutputMode::kEveryN}};

// One entry point of the executable.
struct ProgramSpec {
  std::string name;
  uint32_t device_iterations = 1;  // weight updates (or inference steps) per run
  uint32_t accumulation = 1;       // micro-batches per weight update; 1 for inference
  // Of a program that trains: a float with one element, and the optimiser of the variables that no
  // group names. A program has both or neither; what follows up to `reduction` is for those that
  // train only.
  std::optional<graph::Tensor> loss;
  std::optional<Optimizer> optimizer;
  std::vector<ParameterGroup> groups;
  // Before an update, each element of the gradients is first cut to at most `clip_value` in size;
  // then all gradients are scaled down so that their common 2-norm is at most `clip_norm`, unless
  // the norm is not finite. As torch.nn.utils.clip_grad_value_ and clip_grad_norm_ do.
  std::optional<float> clip_norm, clip_value;
  // Gradients are computed of the loss times this and divided by it in the update, so that small
  // ones are not lost in float16. The variable kLossScaleName holds it.
  std::optional<float> loss_scale;
  std::optional<AutomaticLossScale> automatic_loss_scale;  // loss_scale is what it starts with
  GradientReduction reduction = GradientReduction::kMean;
  OutputMode output_mode = OutputMode::kAll;
  uint32_t output_period = 1;  // of kEveryN: divides device_iterations
};

// How float16 results are rounded in programs that train; others round to nearest.
enum class Rounding {
  kNearest,
  // Stochastically: up or down at random, so that the mean is what is rounded. The random
  // bits follow from the variables that Graph::Random has, the operation, the element and the
  // micro-batch's number in the job, so that replicas differ.
  kStochastic,
  // The same for all replicas in the same step of their micro-batches.
  kStochasticEqualSeeds,
};

// How products and convolutions are planned on the tiles of an IPU: it changes their time and
// memory, but no result. Settings of an operation in the graph take precedence.
struct ProductOptions {
  // Type of partial results of float16 operands: FLOAT32 or FLOAT16.
  program::v1::DataType partials = program::v1::FLOAT32;
  // Share of a tile's memory that operands and partial results may take, by IPU: above 0 and at
  // most 1.
  // IPUs without one have poplibs' default of 0.6.
  std::vector<std::optional<float>> memory_proportions;
};

// How the IPUs of a replica share its work. Results do not depend on it.
enum class Schedule {
  // One micro-batch at a time goes through all IPUs.
  kSharded,
  // As sharded; weights, accumulators, the state of the optimiser and activations lie in streaming
  // memory while the phase that runs does not need them, so that a replica trains what its IPUs
  // cannot hold.
  kPhased,
  // Pipelines: each stage (Graph::SetStage, or an IPU if there are none) works on a micro-batch of
  // its own. Grouped, the forward and the backward part of a stage follow each other in every
  // cycle; interleaved, they take turns, which takes longer and keeps fewer activations;
  // sequential, one
  // micro-batch has left the pipeline before the next one enters it.
  kGrouped,
  kInterleaved,
  kSequential,
};

// As command lines have them.
inline constexpr std::pair<const char*, Schedule> kScheduleNames[] = {
    {"sharded", Schedule::kSharded},
    {"phased", Schedule::kPhased},
    {"grouped", Schedule::kGrouped},
    {"interleaved", Schedule::kInterleaved},
    {"sequential", Schedule::kSequential}};

// Results of the forward pass that gradients read are kept until then, or computed again from what
// is kept, which takes less memory and longer. Results do not depend on it. Values of
// Graph::Checkpoint are kept whatever the choice. As PopART's RecomputationType.
enum class Recomputation {
  kNone,      // all is kept
  kStandard,  // checkpoints are chosen so that the least memory is needed at once
  kNormOnly,  // norms and activations that follow them are computed again
  // Each stage is computed again from its inputs and checkpoints, but for what follows the last
  // checkpoint of the last stage.
  kPipeline,
  kAll,  // everything is computed again from inputs and checkpoints
};

// As command lines have them.
inline constexpr std::pair<const char*, Recomputation> kRecomputationNames[] = {
    {"none", Recomputation::kNone},
    {"standard", Recomputation::kStandard},
    {"norm-only", Recomputation::kNormOnly},
    {"pipeline", Recomputation::kPipeline},
    {"all", Recomputation::kAll}};
const char* NameOf(Recomputation recomputation);

struct Model;

// What a program that calls the compiler knows of its user. Executables do not depend on it.
struct Front {
  // Its options in the message about a program that does not fit: those of a command line, of
  // another language.
  model::OptionNames names;
  // Builds the model again with what no option of the compiler changes: half the micro-batch and
  // twice the accumulation (kSmallerMicroBatch, kMoreAccumulation), float16, twice the IPUs
  // (kMoreIpus, kMoreIpusSharded). With it such advice is tried, too. An error: the model cannot
  // have it.
  std::function<absl::StatusOr<Model>(const std::vector<model::MemoryAdvice>& changes)> rebuild;
};

struct CompileOptions {
  uint32_t ipus_per_replica = 1;
  // Replicas of the whole job: gradients are averaged over them, and micro-batches numbered.
  uint32_t total_replicas = 1;
  // Fuses ops that lie beside each other, which changes no result.
  // Programs with stochastic rounding are never fused: each of their operations rounds by itself.
  bool fusion = true;
  // Directory for the printed forms of the program after each pass, none if it is empty. Each reads
  // back to the same program (graph_text.h, lowered_text.h), without the variables' initial values.
  // A compilation that prints takes nothing from a cache.
  std::string dump_passes;
  Rounding rounding = Rounding::kNearest;
  Schedule schedule = Schedule::kSharded;
  Recomputation recomputation = Recomputation::kNone;
  ProductOptions products;
  // The state of the optimiser lies in the streaming memory of the machine: each update loads it
  // and stores it again; scalars stay on the chip. Results do not depend on it.
  bool off_chip_optimizer_state = false;
  // Results that the forward part of a program that trains keeps for its backward part, from 16 KiB
  // on, lie in streaming memory meanwhile; in a pipeline what is kept for later ticks. Results do
  // not depend on it.
  bool off_chip_activations = false;
  // So do trainable variables, from 16 KiB on: the forward and the backward part of each
  // micro-batch load what they use, and an update loads and stores what it changes.
  bool off_chip_weights = false;
  // So do accumulators of gradients, from 16 KiB on: each micro-batch loads and stores them. Unless
  // gradients are clipped or the loss scale is automatic, which needs all of them at once, each is
  // reduced right before its update, so that only one is on the chip at a time. Results do not
  // depend on it.
  bool off_chip_accumulators = false;
  // Replicated tensor sharding: so many consecutive replicas share the state of the optimiser out
  // among them, each updates a part of the weights, and they exchange the parts. 1: each has all;
  // must divide total_replicas. Smaller tensors (sharding.cc), and those whose elements it does not
  // divide, stay whole; so do LARS, LAMB with an automatic loss scale, and float16 weights with
  // stochastic rounding. It must divide the replicas of each instance. Results do not depend on it
  // if it is a power of two, but for LAMB's norms, whose summands are then rounded to float32.
  uint32_t tensor_shards = 1;
  // Gives an executable that does not fit the memory of an IPU, which only an IPUModel loads. The
  // environment may ask for it, too (client/engine_options).
  bool allow_out_of_memory = false;
  std::vector<ProgramSpec> programs;
  Front front;
};

// A graph and the options that it is to be compiled with.
struct Model {
  graph::Graph graph;
  CompileOptions options;
};

// An executable, which knows what its instructions were compiled from (program.proto: Origins), and
// the initial values of its variables.
struct Compiled {
  // The initial value of a variable.
  struct Initial {
    program::TensorType type;
    graph::InitialValue value;
    std::string Bytes() const { return value.Bytes(type); }
    friend bool operator==(const Initial&, const Initial&) = default;
  };
  std::shared_ptr<const program::Executable> executable;
  std::map<std::string, Initial> initial_values;  // by name
  bool fits = true;  // false if it does not, but the environment allowed it
};

// Names of the optimiser's variables on an IPU. Hyper-parameters are in the order of the messages
// in program.proto; those of groups are numbered from 1. The step is the number of updates so far.
std::string HyperParametersName(uint32_t ipu, size_t group = 0);
std::string OptimizerStepName(uint32_t ipu);
inline constexpr char kLossScaleName[] = "optimizer/lossScale";
// Good updates since the automatic loss scale last changed.
inline constexpr char kGrowthTrackerName[] = "optimizer/growthTracker";
// The hyper-parameters in the variable's order.
std::vector<float> HyperParameters(const Optimizer& optimizer);
// The optimiser of the variables without a group (0), or of a group, of a program that trains.
const Optimizer& OptimizerOf(const ProgramSpec& spec, size_t group);
// Whether a variable of an executable is the optimiser's, by its name.
bool IsOptimizerState(absl::string_view name);
// Whether an executable computes values of the forward pass again, by its origins. False if the
// recomputation found nothing to do, as norm-only does in a network without norms.
bool Recomputes(const program::Executable& executable);

// The replicas of the jobs for which graph and options give an executable, which has their number:
// gradients are divided by it, and random elements follow from it. 0: nothing depends on it.
uint32_t ReplicasOf(const graph::Graph& graph, const CompileOptions& options);

// Called before each step of a compilation with what it does and the number of steps that are done,
// and after the last one.
using Progress = std::function<void(absl::string_view step, uint32_t done, uint32_t total)>;

// InvalidArgument: a mistake in the graph or the options. ResourceExhausted: it does not fit the
// memory of an IPU; the message says why, and which changes would make it fit: it has tried them.
absl::StatusOr<Compiled> Compile(const graph::Graph& graph, const CompileOptions& options,
                                 const Progress& progress = {});

// The initial values of the variables of the executable that graph and options give.
std::map<std::string, Compiled::Initial> InitialValues(const program::Executable& executable,
                                                       const graph::Graph& graph,
                                                       const CompileOptions& options);

}  // namespace vpod::compiler
