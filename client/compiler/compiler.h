// The compiler turns a graph into an executable for the IPUs of one replica. The same graph and
// options give the same bytes, whatever the machine. A compilation reads these variables of the
// environment, so that programs need not hand them on:
//
//   VPOD_PLAN_DIRECTORY, VPOD_PLAN_REPLICAS   a program that `vpod plan` runs is compiled for other
//                                             replicas (planned_program.h) and not cached
//   VPOD_PLAN_EXPLAIN                         if such a program does not fit, advice is tried
//   POPLAR_ENGINE_OPTIONS                     whether Compile gives an executable that does not
//                                             fit, unless CompileOptions::engine says it; the
//                                             executable's bytes do not depend on it
//
// A training program is
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
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "client/engine_options/engine_options.h"
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
  bool float16_velocity = false;  // the type of velocities, otherwise FLOAT32
  // Dampens the first velocity, too, and gradients without momentum, as PopTorch and not PyTorch.
  bool dampen_all = false;
  // PopTorch's combined form: each update prepares velocities for the next one, which new momentum,
  // dampening and weight decay so reach an update late. They are FLOAT32, times their scale, which
  // must be above 0. All gradients are dampened.
  bool combined = false;
  float velocity_scaling = 1;
};

struct AdamOptions {
  float learning_rate = 0.001f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  bool decoupled_weight_decay = false;  // AdamW
  bool amsgrad = false;
  bool maximize = false;
  // The types of the moments, otherwise FLOAT32; the largest second moment has that of the second.
  bool float16_first_moment = false, float16_second_moment = false;
  bool bias_correction = true;  // of the moments, which begin with 0
};

struct RmsPropOptions {
  float learning_rate = 0.01f;
  float alpha = 0.99f;  // the share of the mean square that an update keeps
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float momentum = 0;  // velocities are kept if it is not 0 here
  bool centered = false;
  bool maximize = false;
  // The types of means and velocities, and of mean squares, otherwise FLOAT32.
  bool float16_first_moment = false, float16_second_moment = false;
  // TensorFlow's form: mean squares begin with 1, and epsilon and the learning rate are elsewhere.
  bool tensorflow = false;
};

// Layer-wise adaptive moments: You et al., "Large batch optimization for deep learning", 2020.
struct LambOptions {
  float learning_rate = 0.001f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = 1e-6f;
  float weight_decay = 0;
  bool maximize = false;
  // The types of the moments, otherwise FLOAT32.
  bool float16_first_moment = false, float16_second_moment = false;
  bool bias_correction = true;  // of the moments, which begin with 0
  // A larger norm of a variable counts as this one; 0 or more.
  float max_weight_norm = std::numeric_limits<float>::infinity();
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

// Variables that have an optimiser of their own.
struct ParameterGroup {
  std::vector<std::string> variables;  // their names
  Optimizer optimizer;
};

// The rule of PyTorch's GradScaler: an update with a gradient that is not finite is left out, and
// the loss scale shrinks by `backoff`; after each `interval` good updates it grows by `growth`.
struct AutomaticLossScale {
  float growth = 2, backoff = 0.5f;
  uint32_t interval = 2000;
};

// The rule of PopART: after each `period` updates the loss scale is halved if too many elements of
// the float16 gradients in the backward pass are larger than `bin_edge` times the largest float16,
// and doubled if not, within 2^-24 and 2^24, or 2^15 for a float16 loss. Too many are more than
// `upper_proportion` of all elements. Every update is made, and float32 gradients are not counted:
// without any in float16 the scale stays. Gradients are counted where an operation makes them, not
// where a view shows them again.
struct HistogramLossScale {
  float bin_edge = 0.125f, upper_proportion = 1e-7f;
  uint32_t period = 1;
};

// The reduction makes one gradient of the gradients of micro-batches and replicas. The mean divides
// their sum by accumulation × replicas. The running mean divides by replicas only: after each
// micro-batch the accumulator holds the mean of the micro-batches so far, (k - 1) / k of what the
// accumulator held and 1 / k of the gradient of micro-batch k, so that the size of the
// accumulator's elements does not grow with the number of micro-batches.
enum class GradientReduction { kMean, kSum, kRunningMean };

// The output mode says which outputs of a replica a run gives to the host, as in PopTorch.
enum class OutputMode {
  kAll,     // the outputs of each micro-batch
  kFinal,   // the outputs of the last micro-batch of the run
  kSum,     // the sum of the outputs over all micro-batches, in their order and type
  kEveryN,  // the outputs of all micro-batches of each output_period-th device iteration
};

// The names of output modes on command lines.
inline constexpr std::pair<const char*, OutputMode> kOutputModeNames[] = {
    {"all", OutputMode::kAll},
    {"final", OutputMode::kFinal},
    {"sum", OutputMode::kSum},
    {"every-n", OutputMode::kEveryN}};
const char* NameOf(OutputMode mode);

// The gradient of the loss, times the loss scale, by a value of the graph, as an output: one for
// each micro-batch, before gradients are accumulated, in the type of the value. The name must not
// be that of an input or of another output.
struct GradientOutput {
  std::string name;
  graph::Tensor value;
};

// One entry point of the executable.
struct ProgramSpec {
  std::string name;
  uint32_t device_iterations = 1;  // weight updates (or inference steps) per run
  uint32_t accumulation = 1;       // micro-batches per weight update; 1 for inference
  // A program that trains has a loss, which is a float with one element, and an optimiser, for the
  // variables that no group names. Other programs have neither, and the fields from here to
  // `float16_accumulators` do not concern them.
  std::optional<graph::Tensor> loss;
  std::optional<Optimizer> optimizer;
  std::vector<ParameterGroup> groups;
  // Before an update, each element of the gradients is first cut to at most `clip_value` in size;
  // then all gradients are scaled down so that their common 2-norm is at most `clip_norm`, unless
  // the norm is not finite. torch.nn.utils.clip_grad_value_ and clip_grad_norm_ do the same.
  std::optional<float> clip_norm, clip_value;
  // Gradients are those of the loss times the loss scale, and the update divides them by it, so
  // that small gradients are not lost in float16. The variable kLossScaleName holds the loss scale.
  std::optional<float> loss_scale;
  std::optional<AutomaticLossScale> automatic_loss_scale;  // begins with loss_scale
  // The loss scale is then the product of the variables kLossScaleName, which stays as the host
  // writes it, and kLossScaleFactorName, which begins with 1. Not with `automatic_loss_scale`.
  std::optional<HistogramLossScale> histogram_loss_scale;
  GradientReduction reduction = GradientReduction::kMean;
  // Gradients are added up over micro-batches in FLOAT16, each sum rounded as CompileOptions::
  // rounding says, and not in sums that are as good as exact; they take half the memory. Without
  // effect if `accumulation` is 1.
  bool float16_accumulators = false;
  OutputMode output_mode = OutputMode::kAll;
  uint32_t output_period = 1;  // for kEveryN: must divide device_iterations
  // The modes of outputs that have another one than output_mode, by name.
  std::map<std::string, OutputMode> output_modes;
  std::vector<GradientOutput> gradient_outputs;  // of a program that trains
};
// The mode of an output, which may be the gradient of a value.
OutputMode OutputModeOf(const ProgramSpec& spec, const std::string& output);

// The rounding says how float16 results are rounded in programs that train; other programs round to
// nearest.
enum class Rounding {
  kNearest,
  // Each result is rounded up or down at random, so that the mean of what it may become is the
  // exact value. The random bits follow from the variables that Graph::Random has, the operation,
  // the element and the micro-batch's number in the job, so that replicas round differently.
  kStochastic,
  // Results are rounded as with kStochastic, but all replicas use the same random bits in the same
  // step of their micro-batches.
  kStochasticEqualSeeds,
};

// These options say how products and convolutions are planned on the tiles of an IPU. They change
// time and memory, but no result. Settings of an operation in the graph take precedence.
struct ProductOptions {
  // Type of partial results of float16 operands: FLOAT32 or FLOAT16.
  program::v1::DataType partials = program::v1::FLOAT32;
  // The share of a tile's memory that operands and partial results may take, by IPU: above 0 and at
  // most 1. An IPU without a number has poplibs' default of 0.6.
  std::vector<std::optional<float>> memory_proportions;
};

// The schedule says how the IPUs of a replica share its work. Results do not depend on the
// schedule.
enum class Schedule {
  // One micro-batch at a time goes through all IPUs.
  kSharded,
  // One micro-batch at a time goes through all IPUs, and weights, accumulators, the state of the
  // optimiser and activations lie in streaming memory while the phase that runs does not need them,
  // so that a replica trains models that its IPUs cannot hold.
  kPhased,
  // These three are pipelines: each stage (Graph::SetStage, or an IPU if there are no stages) works
  // on a micro-batch of its own. In a grouped pipeline, the forward and the backward part of a
  // stage follow each other in every cycle. In an interleaved pipeline, they take turns, which
  // takes longer and keeps fewer activations. In a sequential pipeline, a micro-batch leaves the
  // pipeline before the next micro-batch enters.
  kGrouped,
  kInterleaved,
  kSequential,
};

// The names of schedules on command lines.
inline constexpr std::pair<const char*, Schedule> kScheduleNames[] = {
    {"sharded", Schedule::kSharded},
    {"phased", Schedule::kPhased},
    {"grouped", Schedule::kGrouped},
    {"interleaved", Schedule::kInterleaved},
    {"sequential", Schedule::kSequential}};

// The recomputation says which results of the forward pass are kept for the gradients that read
// them. The other results are computed again from kept values, which takes less memory and more
// time, and changes no result. Values of Graph::Checkpoint are always kept. The choices are those
// of PopART's RecomputationType.
enum class Recomputation {
  kNone,      // all results are kept
  kStandard,  // checkpoints are chosen so that the least memory is needed at once
  kNormOnly,  // norms and activations that follow them are computed again
  // Each stage is computed again from its inputs and checkpoints, except for operations after the
  // last checkpoint of the last stage.
  kPipeline,
  kAll,  // everything is computed again from inputs and checkpoints
};

// The names of recomputations on command lines.
inline constexpr std::pair<const char*, Recomputation> kRecomputationNames[] = {
    {"none", Recomputation::kNone},
    {"standard", Recomputation::kStandard},
    {"norm-only", Recomputation::kNormOnly},
    {"pipeline", Recomputation::kPipeline},
    {"all", Recomputation::kAll}};
const char* NameOf(Recomputation recomputation);

struct Model;

// The program that calls the compiler, as its user sees it. The bytes of executables do not depend
// on the front; its names lie beside them (program.proto: Origins).
struct Front {
  // How the front spells its options, for messages about programs that do not fit: as flags of a
  // command line, or as arguments in another language.
  model::OptionNames names;
  // This function builds the model again with changes for which the compiler has no option: half
  // the micro-batch and twice the accumulation (kSmallerMicroBatch, kMoreAccumulation), float16,
  // twice the IPUs (kMoreIpus, kMoreIpusSharded). The compiler tries such advice if a front has the
  // function. An error says that the model cannot be changed so.
  std::function<absl::StatusOr<Model>(const std::vector<model::MemoryAdvice>& changes)> rebuild;
  // The replicas of each instance of the job, among which advice shares the state of the optimiser
  // out (CompileOptions::tensor_shards). 0: one instance has all replicas.
  uint32_t instance_replicas = 0;
};

struct CompileOptions {
  uint32_t ipus_per_replica = 1;
  // Replicas of the whole job: gradients are averaged over them, and micro-batches numbered.
  uint32_t total_replicas = 1;
  // The compiler fuses neighbouring operations, which changes no result. Programs with stochastic
  // rounding are never fused: each of their operations rounds by itself.
  bool fusion = true;
  // The compiler writes the program as a text to this directory after each pass, and writes none if
  // the name is empty. Each text reads back to the same program (graph_text.h, lowered_text.h),
  // without the initial values of variables. A compilation that writes texts takes nothing from a
  // cache.
  std::string dump_passes;
  Rounding rounding = Rounding::kNearest;
  Schedule schedule = Schedule::kSharded;
  Recomputation recomputation = Recomputation::kNone;
  ProductOptions products;
  // The state of the optimiser lies in the streaming memory of the machine: each update loads it
  // and stores it again; scalars stay on the chip. Results do not depend on it.
  bool off_chip_optimizer_state = false;
  // Activations of 16 KiB or more that the forward part of a program keeps for its backward part
  // lie in streaming memory meanwhile; in a pipeline, those that are kept for later ticks. Results
  // do not depend on it.
  bool off_chip_activations = false;
  // Trainable variables of 16 KiB or more lie in streaming memory: the forward and the backward
  // part of each micro-batch load the variables that they use, and an update loads and stores those
  // that it changes.
  bool off_chip_weights = false;
  // Accumulators of gradients of 16 KiB or more lie in streaming memory: each micro-batch loads and
  // stores them. Each accumulator is reduced right before its update, so that only one is on the
  // chip at a time, unless gradients are clipped or the loss scale is automatic, for which all are
  // needed at once. Results do not depend on it.
  bool off_chip_accumulators = false;
  // Replicated tensor sharding: this many consecutive replicas share the state of the optimiser out
  // among them. Each of them updates a part of the weights, and they exchange the parts. With 1,
  // each replica has the whole state. The number must divide total_replicas and the replicas of
  // each instance. Small tensors (sharding.cc) and tensors whose elements the number does not
  // divide stay whole; so do the tensors of LARS, of LAMB with an automatic loss scale, and float16
  // weights and weights with float16 state with stochastic rounding. Results do not depend on a
  // number that is a power of two, except that the summands of LAMB's norms are rounded to float32.
  uint32_t tensor_shards = 1;
  // Compile also gives an executable that does not fit the memory of an IPU, which only an IPUModel
  // loads. Engine options may ask for such executables, too.
  bool allow_out_of_memory = false;
  // Engine options (client/engine_options) in the place of those of the environment.
  std::optional<EngineOptions> engine;
  std::vector<ProgramSpec> programs;
  Front front;
};

// A graph and the options that it is to be compiled with.
struct Model {
  graph::Graph graph;
  CompileOptions options;
};

// An executable, which knows the operations from which its instructions were compiled
// (program.proto: Origins), and the initial values of its variables.
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
  bool fits = true;  // false for an executable that does not fit and that the environment allows
};

// The names of the optimiser's variables on an IPU. Hyper-parameters are in the order of the
// messages in program.proto; group 0 has the variables that no group names, and groups are numbered
// from 1. The step is the number of updates so far.
std::string HyperParametersName(uint32_t ipu, size_t group = 0);
std::string OptimizerStepName(uint32_t ipu);
inline constexpr char kLossScaleName[] = "optimizer/lossScale";
// The variable with the powers of 2 by which the histogram has changed the loss scale, with
// PopTorch's name.
inline constexpr char kLossScaleFactorName[] = "lossScaleUpdateFactor";
// The variable with the number of good updates since the automatic loss scale last changed.
inline constexpr char kGrowthTrackerName[] = "optimizer/growthTracker";
// The hyper-parameters of an optimiser in the order of their variable.
std::vector<float> HyperParameters(const Optimizer& optimizer);
// The optimiser of a group of a program that trains; group 0 has the variables that no group names.
const Optimizer& OptimizerOf(const ProgramSpec& spec, size_t group);
// Returns whether the name of a variable says that the variable belongs to the optimiser.
bool IsOptimizerState(absl::string_view name);
// Returns whether the origins of an executable say that it computes values of the forward pass
// again. It does not if recomputation found nothing to do, as kNormOnly in a network without norms.
bool Recomputes(const program::Executable& executable);

// The number of replicas of the jobs for which graph and options give an executable: gradients are
// divided by this number, and random elements follow from it. 0: nothing depends on the number.
uint32_t ReplicasOf(const graph::Graph& graph, const CompileOptions& options);

// A function that is called before each step of a compilation with the name of the step and the
// number of steps that are done, and once after the last step. While the compiler tries what makes
// a program fit, the number stays. An error ends the compilation.
using Progress = std::function<absl::Status(absl::string_view step, uint32_t done, uint32_t total)>;

// InvalidArgument: there is a mistake in the graph or the options. ResourceExhausted: the program
// does not fit the memory of an IPU; the message says why, and which changes make it fit, which the
// compiler has tried. Other errors are those of `progress`.
absl::StatusOr<Compiled> Compile(const graph::Graph& graph, const CompileOptions& options,
                                 const Progress& progress = {});

// The initial values of the variables of the executable that graph and options give.
std::map<std::string, Compiled::Initial> InitialValues(const program::Executable& executable,
                                                       const graph::Graph& graph,
                                                       const CompileOptions& options);

}  // namespace vpod::compiler
