#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/status.h"
#include "device/program/executable.h"
#include "device/program/ops/collective.h"
#include "device/program/ops/rules.h"
#include "device/program/rendezvous.h"

namespace vpod::program {
namespace {

absl::Status Invalid(const std::string& message) { return absl::InvalidArgumentError(message); }

// Checks instructions of one IPU against its tensor table.
class BlockValidator {
 public:
  BlockValidator(const v1::Executable& executable, uint32_t ipu, const Limits& limits)
      : executable_(executable),
        ipu_(ipu),
        tensors_(executable.ipus(ipu).tensors()),
        limits_(limits) {}

  absl::Status CheckAll(const google::protobuf::RepeatedPtrField<v1::Instruction>& instructions,
                        uint64_t times, int depth) {
    if (depth > limits_.nesting) {
      return Invalid(absl::StrCat("repeats are nested deeper than ", limits_.nesting));
    }
    for (int i = 0; i < instructions.size(); ++i) {
      const absl::Status status = CheckOne(instructions[i], times, depth);
      if (!status.ok()) {
        return Invalid(absl::StrCat(depth == 0 ? "instruction " : "", i, depth == 0 ? ": " : "/",
                                    status.message()));
      }
    }
    return absl::OkStatus();
  }

  // Transfers of each stream in one run.
  const std::map<uint32_t, uint64_t>& transfers() const { return transfers_; }

 private:
  // A tensor that ordinary operations may touch.
  absl::StatusOr<TensorType> Plain(uint32_t index) const {
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, Any(index));
    if (tensor->wide_accumulator()) {
      return Invalid(absl::StrCat("tensor ", index, " is a wide accumulator"));
    }
    return TypeOf(*tensor);
  }

  absl::StatusOr<const v1::Tensor*> Any(uint32_t index) const {
    if (index >= static_cast<uint32_t>(tensors_.size())) {
      return Invalid(
          absl::StrCat("tensor ", index, " does not exist (there are ", tensors_.size(), ")"));
    }
    return &tensors_[index];
  }

  absl::Status Expect(uint32_t index, const TensorType& expected) const {
    VPOD_ASSIGN_OR_RETURN(TensorType actual, Plain(index));
    if (actual != expected) {
      return Invalid(absl::StrCat("tensor ", index, " is ", actual.ToString(), ", must be ",
                                  expected.ToString()));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOne(const v1::Instruction& instruction, uint64_t times, int depth) {
    written_ += 1;
    executed_ += times;
    if (written_ > limits_.instructions) {
      return Invalid(absl::StrCat("more than ", limits_.instructions, " instructions"));
    }
    if (executed_ > limits_.executed_instructions) {
      return Invalid(
          absl::StrCat("more than ", limits_.executed_instructions, " executed instructions"));
    }
    switch (instruction.step_case()) {
      case v1::Instruction::kFill:
        return CheckFill(instruction.fill());
      case v1::Instruction::kCopy:
        return CheckCopy(instruction.copy());
      case v1::Instruction::kCast:
        return CheckCast(instruction.cast());
      case v1::Instruction::kUnary:
        return CheckUnary(instruction.unary());
      case v1::Instruction::kBinary:
        return CheckBinary(instruction.binary());
      case v1::Instruction::kReduce:
        return CheckReduce(instruction.reduce());
      case v1::Instruction::kArgMax:
        return CheckArgMax(instruction.arg_max());
      case v1::Instruction::kMatMul:
        return CheckMatMul(instruction.mat_mul());
      case v1::Instruction::kConv2D:
        return CheckConv2d(instruction.conv2d());
      case v1::Instruction::kMaxPool2D:
        return CheckPool(instruction.max_pool2d().input(), instruction.max_pool2d().output(),
                         instruction.max_pool2d().window());
      case v1::Instruction::kMaxPool2DGradient:
        return CheckPoolGradient(instruction.max_pool2d_gradient());
      case v1::Instruction::kSoftmaxCrossEntropy:
        return CheckLoss(instruction.softmax_cross_entropy());
      case v1::Instruction::kSoftmaxCrossEntropyGradient:
        return CheckLossGradient(instruction.softmax_cross_entropy_gradient());
      case v1::Instruction::kAccumulate:
        return CheckAccumulate(instruction.accumulate());
      case v1::Instruction::kSgd:
        return CheckSgd(instruction.sgd());
      case v1::Instruction::kAllReduce:
      case v1::Instruction::kReduceScatter:
      case v1::Instruction::kAllGather:
      case v1::Instruction::kAllToAll:
      case v1::Instruction::kBroadcast:
        return CheckCollectiveStep(*CollectiveOf(instruction));
      case v1::Instruction::kStreamIn:
        return CheckStream(instruction.stream_in().stream(), instruction.stream_in().tensor(), true,
                           times);
      case v1::Instruction::kStreamOut:
        return CheckStream(instruction.stream_out().stream(), instruction.stream_out().tensor(),
                           false, times);
      case v1::Instruction::kSend:
        return CheckPeer(instruction.send().tensor(), instruction.send().to_ipu());
      case v1::Instruction::kReceive:
        return CheckPeer(instruction.receive().tensor(), instruction.receive().from_ipu());
      case v1::Instruction::kRepeat:
        if (instruction.repeat().count() < 1) return Invalid("repeat count must be 1 or more");
        // Empty rounds take time and would be in no count.
        if (instruction.repeat().body().empty()) return Invalid("a repeat needs a body");
        if (times > limits_.executed_instructions / instruction.repeat().count()) {
          return Invalid(
              absl::StrCat("repeats multiply to more than ", limits_.executed_instructions));
        }
        return CheckAll(instruction.repeat().body(), times * instruction.repeat().count(),
                        depth + 1);
      case v1::Instruction::STEP_NOT_SET:
        return Invalid("unknown instruction");
    }
    return Invalid("unknown instruction");
  }

  absl::Status CheckFill(const v1::Fill& op) const {
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* tensor, Any(op.output()));
    const double value = op.value();
    double low = 0, high = 0;
    switch (tensor->type()) {
      case v1::INT32:
        low = -2147483648.0;
        high = 2147483647.0;
        break;
      case v1::UINT32:
        high = 4294967295.0;
        break;
      case v1::UINT8:
        high = 255;
        break;
      case v1::BOOL:
        high = 1;
        break;
      default:
        return absl::OkStatus();
    }
    if (!(value >= low && value <= high) ||
        value != static_cast<double>(static_cast<int64_t>(value))) {
      return Invalid(absl::StrCat("fill value ", value, " is not of type ", Name(tensor->type())));
    }
    return absl::OkStatus();
  }

  absl::Status CheckCopy(const v1::Copy& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType input, Plain(op.input()));
    VPOD_ASSIGN_OR_RETURN(TensorType output, Plain(op.output()));
    if (input.type != output.type || input.elements() != output.elements()) {
      return Invalid(absl::StrCat("cannot copy ", input.ToString(), " to ", output.ToString()));
    }
    return absl::OkStatus();
  }

  absl::Status CheckCast(const v1::Cast& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType input, Plain(op.input()));
    VPOD_ASSIGN_OR_RETURN(TensorType output, Plain(op.output()));
    return Expect(op.output(), {output.type, input.dims});
  }

  absl::Status CheckUnary(const v1::Unary& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType input, Plain(op.input()));
    VPOD_ASSIGN_OR_RETURN(TensorType output, UnaryType(op.operator_(), input));
    return Expect(op.output(), output);
  }

  absl::Status CheckBinary(const v1::Binary& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType a, Plain(op.a()));
    VPOD_ASSIGN_OR_RETURN(TensorType b, Plain(op.b()));
    VPOD_ASSIGN_OR_RETURN(TensorType output, BinaryType(op.operator_(), a, b));
    return Expect(op.output(), output);
  }

  absl::Status CheckReduce(const v1::Reduce& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType input, Plain(op.input()));
    VPOD_ASSIGN_OR_RETURN(TensorType output, ReduceType(op.operator_(), input, op.axes()));
    return Expect(op.output(), output);
  }

  absl::Status CheckArgMax(const v1::ArgMax& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType input, Plain(op.input()));
    VPOD_ASSIGN_OR_RETURN(TensorType output, ArgMaxType(input));
    return Expect(op.output(), output);
  }

  // Multiply-adds or comparisons of one instruction: `results` times `each`.
  absl::Status CheckOperations(int64_t results, std::initializer_list<int64_t> each) const {
    double operations = static_cast<double>(results);
    for (int64_t factor : each) operations *= static_cast<double>(factor);
    if (operations <= static_cast<double>(limits_.operations_per_instruction))
      return absl::OkStatus();
    return Invalid(absl::StrCat("the instruction has ", operations, " operations, at most ",
                                limits_.operations_per_instruction, " are accepted"));
  }

  absl::Status CheckMatMul(const v1::MatMul& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType a, Plain(op.a()));
    VPOD_ASSIGN_OR_RETURN(TensorType b, Plain(op.b()));
    VPOD_ASSIGN_OR_RETURN(TensorType output, MatMulType(a, b, op.transpose_a(), op.transpose_b()));
    VPOD_RETURN_IF_ERROR(CheckOperations(output.elements(), {a.dims[op.transpose_a() ? 0 : 1]}));
    return Expect(op.output(), output);
  }

  absl::Status CheckConv2d(const v1::Conv2d& op) const {
    // Which of a, b and output plays image, weights and result of the forward pass.
    uint32_t image = 0, weights = 0, result = 0;
    switch (op.pass()) {
      case v1::Conv2d::FORWARD:
        image = op.a(), weights = op.b(), result = op.output();
        break;
      case v1::Conv2d::INPUT_GRADIENT:
        result = op.a(), weights = op.b(), image = op.output();
        break;
      case v1::Conv2d::WEIGHT_GRADIENT:
        image = op.a(), result = op.b(), weights = op.output();
        break;
      default:
        return Invalid(absl::StrCat("unknown convolution pass ", op.pass()));
    }
    VPOD_ASSIGN_OR_RETURN(TensorType image_type, Plain(image));
    VPOD_ASSIGN_OR_RETURN(TensorType weights_type, Plain(weights));
    VPOD_ASSIGN_OR_RETURN(TensorType result_type,
                          Conv2dType(image_type, weights_type, op.window()));
    VPOD_RETURN_IF_ERROR(
        CheckOperations(result_type.elements(),
                        {weights_type.dims[0], weights_type.dims[1], weights_type.dims[2]}));
    return Expect(result, result_type);
  }

  absl::Status CheckPool(uint32_t input, uint32_t output, const v1::Window& window) const {
    VPOD_ASSIGN_OR_RETURN(TensorType input_type, Plain(input));
    VPOD_ASSIGN_OR_RETURN(TensorType output_type, MaxPool2dType(input_type, window));
    VPOD_RETURN_IF_ERROR(
        CheckOperations(output_type.elements(), {window.kernel_h(), window.kernel_w()}));
    return Expect(output, output_type);
  }

  absl::Status CheckPoolGradient(const v1::MaxPool2dGradient& op) const {
    VPOD_RETURN_IF_ERROR(CheckPool(op.input(), op.output_gradient(), op.window()));
    VPOD_ASSIGN_OR_RETURN(TensorType input, Plain(op.input()));
    return Expect(op.input_gradient(), input);
  }

  absl::Status CheckLoss(const v1::SoftmaxCrossEntropy& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType logits, Plain(op.logits()));
    VPOD_ASSIGN_OR_RETURN(TensorType labels, Plain(op.labels()));
    VPOD_ASSIGN_OR_RETURN(TensorType loss, SoftmaxCrossEntropyType(logits, labels));
    VPOD_RETURN_IF_ERROR(Expect(op.loss(), loss));
    return Expect(op.probabilities(), logits);
  }

  absl::Status CheckLossGradient(const v1::SoftmaxCrossEntropyGradient& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType probabilities, Plain(op.probabilities()));
    VPOD_ASSIGN_OR_RETURN(TensorType labels, Plain(op.labels()));
    VPOD_ASSIGN_OR_RETURN(TensorType loss, SoftmaxCrossEntropyType(probabilities, labels));
    VPOD_RETURN_IF_ERROR(Expect(op.loss_gradient(), loss));
    return Expect(op.logits_gradient(), probabilities);
  }

  absl::Status CheckAccumulate(const v1::Accumulate& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType gradient, Plain(op.gradient()));
    VPOD_ASSIGN_OR_RETURN(const v1::Tensor* accumulator, Any(op.accumulator()));
    if (!accumulator->wide_accumulator() || !IsFloat(gradient.type) ||
        TypeOf(*accumulator).dims != gradient.dims) {
      return Invalid(absl::StrCat("tensor ", op.accumulator(), " is not a wide accumulator for ",
                                  gradient.ToString()));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSgd(const v1::Sgd& op) const {
    VPOD_ASSIGN_OR_RETURN(TensorType weights, Plain(op.weights()));
    if (!IsFloat(weights.type)) {
      return Invalid(absl::StrCat("SGD does not update ", weights.ToString()));
    }
    VPOD_RETURN_IF_ERROR(Expect(op.gradient(), weights));
    VPOD_RETURN_IF_ERROR(Expect(op.learning_rate(), {v1::FLOAT32, {}}));
    if (op.has_velocity()) return Expect(op.velocity(), weights);
    if (op.momentum() != 0) return Invalid("momentum needs a velocity");
    return absl::OkStatus();
  }

  absl::Status CheckCollectiveStep(const Collective& op) const {
    VPOD_RETURN_IF_ERROR(CheckCollective(op));
    for (int i = 0; i < op.inputs->size(); ++i) {
      const uint32_t index = op.inputs->Get(i);
      VPOD_ASSIGN_OR_RETURN(const v1::Tensor* input, Any(index));
      if (!op.reduces()) VPOD_RETURN_IF_ERROR(Plain(index).status());
      VPOD_ASSIGN_OR_RETURN(const TensorType output, Plain(op.outputs->Get(i)));
      VPOD_RETURN_IF_ERROR(CheckCollectiveTypes(op, TypeOf(*input), output));
    }
    return CheckDisjoint(op);
  }

  // Pieces of all tensors are computed side by side: where an output lies, nothing else of the step
  // may lie but the input that it replaces. Otherwise the result would depend on the threads.
  absl::Status CheckDisjoint(const Collective& op) const {
    struct Range {
      uint64_t begin, end;
      bool output;
    };
    std::vector<Range> ranges;
    const auto add = [&](uint32_t index, bool output) {
      const v1::Tensor& tensor = tensors_[index];
      ranges.push_back({tensor.offset(), tensor.offset() + ArenaBytes(tensor), output});
    };
    const bool replaces =
        op.kind == v1::Instruction::kAllReduce || op.kind == v1::Instruction::kBroadcast;
    for (int i = 0; i < op.inputs->size(); ++i) {
      if (!replaces || op.inputs->Get(i) != op.outputs->Get(i)) add(op.inputs->Get(i), false);
      add(op.outputs->Get(i), true);
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    uint64_t inputs_end = 0, outputs_end = 0;
    for (const Range& range : ranges) {
      if (range.begin < outputs_end || (range.output && range.begin < inputs_end)) {
        return Invalid(absl::StrCat("an output of the ", op.name(),
                                    " shares bytes with another of its tensors"));
      }
      uint64_t& end = range.output ? outputs_end : inputs_end;
      end = std::max(end, range.end);
    }
    return absl::OkStatus();
  }

  absl::Status CheckStream(uint32_t index, uint32_t tensor, bool to_device, uint64_t times) {
    if (index >= static_cast<uint32_t>(executable_.streams_size())) {
      return Invalid(absl::StrCat("stream ", index, " does not exist"));
    }
    const v1::Stream& stream = executable_.streams(index);
    if (stream.to_device() != to_device || stream.ipu() != ipu_) {
      return Invalid(absl::StrCat("stream '", stream.name(), "' has another direction or IPU"));
    }
    transfers_[index] += times;
    return Expect(tensor, TypeOf(stream));
  }

  absl::Status CheckPeer(uint32_t tensor, uint32_t peer) const {
    if (peer == ipu_ || peer >= executable_.ipus_per_replica()) {
      return Invalid(absl::StrCat("IPU ", peer, " is not another IPU of the replica"));
    }
    return Plain(tensor).status();
  }

  const v1::Executable& executable_;
  const uint32_t ipu_;
  const google::protobuf::RepeatedPtrField<v1::Tensor>& tensors_;
  const Limits& limits_;
  uint64_t written_ = 0;
  uint64_t executed_ = 0;
  std::map<uint32_t, uint64_t> transfers_;
};

absl::Status ValidateTensors(const v1::Ipu& ipu, const Limits& limits) {
  if (ipu.arena_bytes() > limits.arena_bytes) {
    return Invalid(
        absl::StrCat("arena of ", ipu.arena_bytes(), " bytes exceeds ", limits.arena_bytes));
  }
  if (static_cast<uint32_t>(ipu.tensors_size()) > limits.tensors) {
    return Invalid(absl::StrCat("more than ", limits.tensors, " tensors"));
  }
  for (int i = 0; i < ipu.tensors_size(); ++i) {
    const v1::Tensor& tensor = ipu.tensors(i);
    const absl::Status status = Check(TypeOf(tensor));
    if (!status.ok()) return Invalid(absl::StrCat("tensor ", i, ": ", status.message()));
    if (tensor.wide_accumulator() && tensor.type() != v1::FLOAT32) {
      return Invalid(absl::StrCat("tensor ", i, ": a wide accumulator must be float32"));
    }
    if (tensor.offset() % 64 != 0 || tensor.offset() > ipu.arena_bytes() ||
        ArenaBytes(tensor) > ipu.arena_bytes() - tensor.offset()) {
      return Invalid(absl::StrCat("tensor ", i, " at offset ", tensor.offset(), " with ",
                                  ArenaBytes(tensor), " bytes does not fit the arena of ",
                                  ipu.arena_bytes(), " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateStreamsAndVariables(const v1::Executable& executable, const Limits& limits) {
  std::set<std::string> names;
  uint64_t bytes = 0;
  for (const v1::Stream& stream : executable.streams()) {
    const TensorType type = TypeOf(stream);
    const absl::Status status = Check(type);
    if (!status.ok() || stream.ipu() >= executable.ipus_per_replica() || stream.name().empty() ||
        !names.insert(stream.name()).second) {
      return Invalid(absl::StrCat("stream '", stream.name(), "': bad name, IPU or shape"));
    }
    if (stream.tiles() > arch::kTilesPerIpu) {
      return Invalid(absl::StrCat("stream '", stream.name(), "' takes ", stream.tiles(),
                                  " tiles, an IPU has ", arch::kTilesPerIpu));
    }
    const uint64_t transfers = stream.transfers_per_run();
    if (transfers > 0 && type.bytes() <= limits.stream_bytes / transfers) {
      bytes += type.bytes() * transfers;
    } else if (transfers > 0) {
      bytes = limits.stream_bytes + 1;
    }
    if (bytes > limits.stream_bytes) {
      return Invalid(absl::StrCat("streams of one run exceed ", limits.stream_bytes, " bytes"));
    }
  }
  names.clear();
  for (const v1::Variable& variable : executable.variables()) {
    if (variable.ipu() >= executable.ipus_per_replica() || variable.name().empty() ||
        !names.insert(variable.name()).second ||
        variable.tensor() >=
            static_cast<uint32_t>(executable.ipus(variable.ipu()).tensors_size()) ||
        executable.ipus(variable.ipu()).tensors(variable.tensor()).wide_accumulator()) {
      return Invalid(absl::StrCat("variable '", variable.name(), "': bad name, IPU or tensor"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const v1::Executable& executable, const Limits& limits) {
  const uint32_t ipus = executable.ipus_per_replica();
  if (ipus != 1 && ipus != 2 && ipus != 4 && ipus != 8 && ipus != 16) {
    return Invalid(absl::StrCat("ipus_per_replica is ", ipus, ", must be 1, 2, 4, 8 or 16"));
  }
  if (static_cast<uint32_t>(executable.ipus_size()) != ipus) {
    return Invalid(absl::StrCat(executable.ipus_size(), " IPUs described, ", ipus, " expected"));
  }
  for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
    const absl::Status status = ValidateTensors(executable.ipus(ipu), limits);
    if (!status.ok()) return Invalid(absl::StrCat("IPU ", ipu, ": ", status.message()));
  }
  VPOD_RETURN_IF_ERROR(ValidateStreamsAndVariables(executable, limits));
  if (executable.programs().empty()) return Invalid("the executable has no program");
  if (static_cast<uint32_t>(executable.programs_size()) > limits.programs) {
    return Invalid(absl::StrCat("the executable has ", executable.programs_size(),
                                " programs, at most ", limits.programs, " are accepted"));
  }
  uint64_t rendezvous = 0;
  std::set<std::string> names;
  for (const v1::Program& program : executable.programs()) {
    if (program.name().empty() || !names.insert(program.name()).second ||
        static_cast<uint32_t>(program.blocks_size()) != ipus) {
      return Invalid(absl::StrCat("program '", program.name(), "': bad name or number of blocks"));
    }
    for (uint32_t ipu = 0; ipu < ipus; ++ipu) {
      BlockValidator validator(executable, ipu, limits);
      const absl::Status status = validator.CheckAll(program.blocks(ipu).instructions(), 1, 0);
      if (!status.ok()) {
        return Invalid(
            absl::StrCat("program '", program.name(), "' IPU ", ipu, " ", status.message()));
      }
      for (const auto& [stream, transfers] : validator.transfers()) {
        if (transfers > executable.streams(stream).transfers_per_run()) {
          return Invalid(absl::StrCat("program '", program.name(), "' makes ", transfers,
                                      " transfers of stream '", executable.streams(stream).name(),
                                      "', which declares ",
                                      executable.streams(stream).transfers_per_run()));
        }
      }
    }
    const absl::Status status = ValidateRendezvous(executable, program, limits, rendezvous);
    if (!status.ok())
      return Invalid(absl::StrCat("program '", program.name(), "': ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace vpod::program
