// The op table: what the rooms above need to know of each op before they look into it. A row is in
// the file of its family in ops/. Other rooms have tables of their own: kernels in
// device/engine/kernels, tile plans in device/model, derivatives in client/graph/gradients. A test
// walks all four (tests/ops/op_tables_test.cc).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/program/executable.h"

namespace vpod::program {

using Types = std::vector<TensorType>;

// The executor of an instruction.
enum class Role {
  kKernel,      // a kernel of its IPU
  kCollective,  // meets other replicas
  kExchange,    // meets other IPUs of the replica
  kStream,      // meets the host
  kControl,     // executes other instructions
};

// How far a program has come from a model to an executable.
enum class Form {
  kGraph,     // what a graph is built of, with gradients
  kFused,     // operations that have taken over others
  kLowered,   // instructions of each IPU: streams, exchanges, accumulation, optimisers
  kAssembled  // an executable: loops and conditions
};

inline constexpr int kAnyNumber = std::numeric_limits<int>::max();

// How many inputs or outputs an op takes.
struct Arity {
  int least = 0;
  int most = 0;  // kAnyNumber: no limit
};

// An output that replaces an input: both are the same tensor.
struct InPlace {
  int output = 0, input = 0;  // positions
};

// The tensors of one IPU and the rest of an executable, against which instructions are checked.
class Operands {
 public:
  Operands(const v1::Executable& executable, uint32_t ipu, const Limits& limits);

  const v1::Executable& executable() const { return executable_; }
  uint32_t ipu() const { return ipu_; }
  const Limits& limits() const { return limits_; }

  // InvalidArgument if there is no such tensor.
  absl::StatusOr<const v1::Tensor*> Any(uint32_t index) const;
  // The type of a tensor that ordinary operations may touch: not of a wide accumulator.
  absl::StatusOr<TensorType> Plain(uint32_t index) const;
  // InvalidArgument unless the tensor is plain and has that type.
  absl::Status Expect(uint32_t index, const TensorType& expected) const;

  // This IPU's part of an exchange, in the order of its moves.
  struct Exchanged {
    std::vector<uint32_t> sent, received;
  };
  const std::vector<Exchanged>& exchanges() const { return exchanges_; }

 private:
  const v1::Executable& executable_;
  const uint32_t ipu_;
  const Limits& limits_;
  std::vector<Exchanged> exchanges_;  // found once: an exchange may have many moves and many steps
};

// How an operand may lie in memory.
enum class Layout {
  kRowMajor,      // densely packed
  kChannelsLast,  // [batch, channels, spatial dimensions…] densely packed with the channels
                  // innermost
  kDense,         // densely packed, the dimensions in any order
  kStrided,       // anyhow; an output without an element on another
};

// An operand of an instruction.
struct OperandPlace {
  bool output = false;
  int position = 0;
};

// Elements of a tensor in another order or fewer of them: they begin `offset` elements behind the
// tensor's first, and `strides` apart.
struct View {
  int64_t offset = 0;
  Dims strides;
};

// A part of a type rule. Each has a test that breaks it (ops/constraints_test.cc), and docs/ops.md
// lists those of each op.
struct Constraint {
  // "conv_c3": the family and the constraint's number in it. Errors end with it.
  const char* label;
  // A sentence that says what must hold.
  const char* text;
};

struct OpDef {
  OpKind kind;
  Role role;
  Arity inputs, outputs;
  // The type rule: types of the outputs, which follow from those of the inputs and the attributes.
  // All tensors are plain. InvalidArgument says what does not fit.
  absl::StatusOr<Types> (*infer)(const v1::Instruction& instruction,
                                 absl::Span<const TensorType> inputs) = nullptr;
  // All other rules for an instruction whose tensors exist in the right number; an op without
  // `infer` has only these.
  absl::Status (*check)(const v1::Instruction& instruction, const Operands& tensors) = nullptr;
  // The constraints that these two check, in this order. Beside them they check only that outputs
  // are tensors that a device can hold and, of a Map, the rules of its steps.
  std::vector<Constraint> constraints = {};
  // The first form of a program that may have the op.
  Form form = Form::kGraph;
  // Whether an instruction includes another op that was fused into it. Null: it never does.
  bool (*fused)(const v1::Instruction& instruction) = nullptr;
  // Multiply-adds or comparisons, which have a limit; null: no more than there are elements.
  double (*operations)(const v1::Instruction& instruction, absl::Span<const TensorType> inputs,
                       absl::Span<const TensorType> outputs) = nullptr;
  // Floating-point operations for each of these, or for each element of the largest operand: 2 for
  // a multiply-add, 0 for an op that only moves elements.
  int flops_per_operation = 1;
  std::vector<InPlace> in_place = {};
  // The output has the type of input 0 and may lie over it: both may be one tensor.
  bool updates = false;
  // Each element of the output follows from those of the inputs at its place: a step of a Map.
  bool elementwise = false;
  // A kernel that reads more than its inputs: what this replica alone has.
  bool own_data = false;
  // Whether it may be told how its float16 outputs are rounded.
  bool rounds = false;
  // Null: all operands are row-major.
  Layout (*layout)(const v1::Instruction& instruction, OperandPlace operand) = nullptr;
  // Set if the output is a view of the input, which has these strides.
  View (*view)(const v1::Instruction& instruction, const TensorType& input,
               const Dims& strides) = nullptr;
};

// For OpDef::layout: all operands may lie anyhow.
Layout AnyLayout(const v1::Instruction& instruction, OperandPlace operand);

// Null for a kind that is none.
const OpDef* FindOp(OpKind kind);
// "mat_mul", as the field of Instruction is called.
const std::string& OpName(OpKind kind);

// The types of an op with one output.
absl::StatusOr<Types> OneOutput(absl::StatusOr<TensorType> output);

// The type rule as a graph builder needs it. InvalidArgument also for an op whose outputs do not
// follow from its inputs.
absl::StatusOr<Types> InferTypes(const v1::Instruction& instruction,
                                 absl::Span<const TensorType> inputs);
// All rules of an instruction on an IPU's tensors, but for the functions that it executes.
absl::Status CheckInstruction(const v1::Instruction& instruction, const Operands& tensors);

// Floating-point operations of a kernel on these operands, for reports; 0 without an operand of
// floats, and for an instruction that is not executed by a kernel.
double Flops(const v1::Instruction& instruction, absl::Span<const TensorType> inputs,
             absl::Span<const TensorType> outputs);

// Bytes of an arena that a step with several parts reads or writes.
struct ArenaRange {
  uint64_t begin, end;
  bool output;
};
ArenaRange RangeOf(const v1::Tensor& tensor, bool output);
// False if an output lies over another range: the result would depend on the order of the parts.
bool OutputsLieApart(std::vector<ArenaRange> ranges);

// --- By family, for FindOp ---
std::vector<OpDef> CollectiveOps();
std::vector<OpDef> ControlOps();
std::vector<OpDef> BatchNormOps();
std::vector<OpDef> ConvolutionOps();
std::vector<OpDef> DataMovementOps();
std::vector<OpDef> ElementwiseOps();
std::vector<OpDef> GatherOps();
std::vector<OpDef> LayerNormOps();
std::vector<OpDef> LineOps();
std::vector<OpDef> LossOps();
std::vector<OpDef> MapOps();
std::vector<OpDef> MatMulOps();
std::vector<OpDef> OptimizerOps();
std::vector<OpDef> PoolingOps();
std::vector<OpDef> RandomOps();
std::vector<OpDef> ReduceOps();
std::vector<OpDef> SoftmaxOps();
std::vector<OpDef> TransferOps();
std::vector<OpDef> ViewOps();

}  // namespace vpod::program
