// A PyTorch model as data: the tape of one run of its forward function, the options that it is
// compiled with and its optimiser. What a front records and hands over as a whole; it refers to
// nothing of the front, so that C++ programs and tests can write tapes as well.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/compiler/compiler.h"
#include "device/program/tensor_type.h"

namespace vpod::poptorch {

// The number of a value on a tape: its place in Tape::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// A value as an argument of an operator. No gradient flows back through a use that stops it.
struct Use {
  ValueId value = kNoValue;  // kNoValue: None in a list
  bool stop = false;
  friend bool operator==(const Use&, const Use&) = default;
};

// An argument: None, a value, bool, int, float, str, or a list of ints (or bools), floats or
// values. Types of elements are ints (PyTorch's ScalarType).
using Argument = std::variant<std::monostate, Use, bool, int64_t, double, std::string,
                              std::vector<int64_t>, std::vector<double>, std::vector<Use>>;

// One operator of the forward pass. All numbers are places in the lists of the tape.
struct Record {
  uint32_t op = 0;
  std::vector<Argument> arguments;  // in the order of PyTorch's schema, defaults included
  std::vector<ValueId> outputs;     // kNoValue: the output is left out
  uint32_t scope = 0, line = 0;
  int32_t block = -1;  // -1: outside all blocks
};

struct TapeValue {
  int type = 6;  // PyTorch's ScalarType: 6 is float32 (types.h)
  program::Dims dims;
};

// Groups of equally many replicas: consecutive ones, or, if there are m groups, those whose numbers
// differ by multiples of m.
struct ReplicaGroups {
  uint32_t count = 1;
  bool orthogonal = false;
};

// A parameter, a buffer or an input. `final` is its value at the end of the forward pass: another
// one than `value` if the forward pass writes it in place.
struct NamedValue {
  std::string name;
  ValueId value = kNoValue, final = kNoValue;
  bool requires_grad = false;  // of a parameter
  // Of a parameter that has a value for each group of replicas: its variable has their number as
  // its first dimension, and `value` is the row of the replica's group. Forward does not write it.
  std::optional<ReplicaGroups> groups;
};

struct ConstantValue {
  ValueId value = kNoValue;
  std::string bytes;  // row-major, of the host's type
};

// A result of a loss function of PyTorch or of identity_loss, which may be the loss that is
// trained.
struct LossMark {
  ValueId value = kNoValue;
  std::string name;
};

// Gradients of the program's own: of a torch.autograd.Function or a hook of a tensor. The records
// make them of the cotangents, the gradients of the region's outputs, and of any values of the
// forward pass, also later ones. The operator poptorch::region has uses of values, which its
// outputs equal, uses of the inputs that get gradients, and the number of the region.
struct Region {
  std::string name;  // of the function
  std::vector<ValueId> cotangents;
  std::vector<ValueId> gradients;  // of the inputs; kNoValue: none
  std::vector<Record> records;     // in program order
};

struct BlockPlace {
  uint32_t stage = 0, ipu = 0;
  int32_t phase = -1;  // of a phased execution
};

struct Tape {
  std::vector<std::string> operators;  // "add.Tensor", "poptorch::identity_loss.default"
  std::vector<TapeValue> values;
  std::vector<Record> records;      // in program order
  std::vector<std::string> scopes;  // paths of modules: "layer1.0.bn1", "" for the model itself
  std::vector<std::string> lines;   // "model.py:12", for messages
  std::vector<BlockPlace> blocks;
  std::vector<NamedValue> parameters, buffers, inputs;
  std::vector<ConstantValue> constants;
  std::vector<ValueId> results;  // of forward, its nested structure flattened
  std::vector<LossMark> losses;  // in program order
  std::vector<ValueId> checkpoints;
  std::vector<std::pair<ValueId, float>> available_memory;  // share of a tile for what makes it
  std::vector<Region> regions;
  // The type of partial results, float16 or float32, of the convolution that makes a value. It
  // concerns convolutions of float16.
  std::vector<std::pair<ValueId, int>> partials;
  // Spans of records, (first, end), whose values gradients compute again from what the span reads,
  // if no recomputation is asked for and the model is no pipeline. A record belongs to the widest
  // span around it.
  std::vector<std::pair<uint32_t, uint32_t>> recomputed;
};

// How the IPUs of a replica share the work: poptorch.PipelinedExecution and its siblings.
enum class Strategy { kPipelined, kSharded, kPhased };

// A value that a call returns beside the results of forward, as poptorch.Options.anchorTensor asks.
struct Anchor {
  ValueId value = kNoValue;
  bool gradient = false;  // the gradient of the loss by the value, in its place
  compiler::OutputMode mode = compiler::OutputMode::kAll;
  uint32_t period = 1;  // for kEveryN
};

struct ModelOptions {
  bool training = false;
  std::string name = "training";  // of the program
  uint32_t device_iterations = 1;
  uint32_t gradient_accumulation = 1;
  uint32_t replicas = 1;   // of this process
  uint32_t processes = 1;  // of the job, each with as many replicas
  // So many replicas read the same inputs: consecutive ones, or, if there are m groups, those whose
  // numbers differ by multiples of m.
  uint32_t input_group_size = 1;
  bool orthogonal_input_groups = false;
  bool synthetic_data = false;  // inputs are zeros, whatever a call is given, and so are outputs
  Strategy strategy = Strategy::kPipelined;
  bool round_ipus_up = false;  // autoRoundNumIPUs
  // Unset: kPipeline for pipelines of several IPUs, otherwise that of Tape::recomputed.
  std::optional<compiler::Recomputation> recomputation;
  compiler::OutputMode output_mode = compiler::OutputMode::kAll;
  uint32_t output_period = 1;  // for kEveryN
  std::vector<Anchor> anchors;
  compiler::GradientReduction reduction = compiler::GradientReduction::kMean;
  program::v1::DataType partials = program::v1::FLOAT32;
  bool stochastic_rounding = false;
  // Training.setAutomaticLossScaling; begins with the optimiser's loss scale, or 1.
  std::optional<compiler::HistogramLossScale> automatic_loss_scale;
  bool check_finite = false;                     // enableFloatingPointExceptions
  std::map<uint32_t, float> memory_proportions;  // share of a tile for products, by IPU
  bool off_chip_activations = false, off_chip_weights = false;
  bool off_chip_optimizer_state = false, off_chip_accumulators = false;
  uint32_t tensor_shards = 1;
  bool allow_out_of_memory = false;  // only an IPUModel loads programs that do not fit
  std::optional<uint64_t> seed;
  // Those of the environment take precedence. Profiles go to a folder of this name below theirs.
  std::map<std::string, std::string> engine_options;
  std::string report_name;
  std::string cache_directory;  // of executables; empty: none
};

// Parameters without a group are not trained.
struct OptimizerOptions {
  std::vector<compiler::ParameterGroup> groups;
  std::optional<float> loss_scale;  // unset: 1, and it cannot be changed
  std::optional<float> max_grad_norm;
  bool float16_accumulators = false;
};

struct TapeProgram {
  Tape tape;
  ModelOptions options;
  OptimizerOptions optimizer;  // of a model that trains
};

}  // namespace vpod::poptorch
