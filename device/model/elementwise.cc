#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/types/span.h"
#include "device/arch/hardware.h"
#include "device/arch/vertex_cycles.h"
#include "device/model/even.h"
#include "device/model/op_plans.h"
#include "device/program/unhandled.h"

namespace vpod::model {

namespace {

WorkerCycles ForVector(program::v1::DataType type, double cycles) {
  return {cycles, std::max<uint64_t>(1, 8 / program::SizeOf(type))};
}

PlanStep StepOf(uint64_t elements, const WorkerCycles& function, uint32_t tiles) {
  const uint64_t per_tile = CeilDiv(elements, tiles);
  const uint64_t per_worker = CeilDiv(CeilDiv(per_tile, function.elements), arch::kWorkersPerTile);
  const auto loop =
      static_cast<uint64_t>(std::ceil(static_cast<double>(per_worker) * function.cycles));
  return {ComputeSet{{{.tiles = std::min(TilesFor(elements), tiles),
                       .vertex = Vertex::kElementwise,
                       .supervisor_cycles = arch::kSupervisorCallCycles,
                       .worker_cycles = 20 + loop}}}};
}

}  // namespace

PlanStep ElementwiseStep(uint64_t elements, program::v1::DataType type, double cycles_per_vector,
                         uint32_t tiles) {
  return StepOf(elements, ForVector(type, cycles_per_vector), tiles);
}

PlanStep ElementwiseStep(const program::TensorType& type, double cycles_per_vector) {
  return ElementwiseStep(static_cast<uint64_t>(type.elements()), type.type, cycles_per_vector);
}

PlanStep ElementwiseStep(const PlanContext& context, uint32_t tensor, const WorkerCycles& cycles) {
  return StepOf(context.Elements(tensor), cycles, context.SpanOf(tensor).tiles);
}

PlanStep ElementwiseStep(const PlanContext& context, uint32_t tensor, double cycles_per_vector) {
  return ElementwiseStep(context, tensor, ForVector(context.Type(tensor).type, cycles_per_vector));
}

TilePlan ElementwisePlan(const PlanContext& context, uint32_t tensor, double cycles_per_vector) {
  return {{ElementwiseStep(context, tensor, cycles_per_vector)}};
}

namespace {

using program::v1::DataType;

double TranscendentalCycles(bool half) {
  return half ? arch::kHalfTranscendentalCycles : arch::kFloatTranscendentalCycles;
}

constexpr double kSelectCycles = 4;  // of a vector
constexpr double kCastCycles = 3;
constexpr int kPassesOfRemainder = 2;  // the quotient's integer, the rest

// spec/hardware.md 7.4.
double SigmoidCycles(bool half) { return half ? 6 : 12; }
double DivideCycles(bool half) { return half ? 21 : 10; }

// For a vector.
double CyclesOf(program::v1::UnaryOperator op, bool half) {
  switch (op) {
    case program::v1::EXPONENT:
      return half ? 4 : 6;
    case program::v1::LOGARITHM:
    case program::v1::TANH:
      return half ? 4 : 12;
    case program::v1::SIGMOID:
      return SigmoidCycles(half);
    case program::v1::RELU:
      return 3;
    case program::v1::ERF:
      // GELU is listed as a whole: 16 or 22 for an element. It is this and four passes
      // (Graph::Gelu).
      return (half ? 4 * 16 : 2 * 22) - 4 * arch::kPassCycles;
    case program::v1::ERF_INV:
    case program::v1::ASIN:
    case program::v1::ACOS:
    case program::v1::ATAN:
    case program::v1::SINH:
    case program::v1::COSH:
    case program::v1::ASINH:
    case program::v1::ACOSH:
    case program::v1::ATANH:
    case program::v1::EXPM1:
    case program::v1::LOG1P:
      return TranscendentalCycles(half);
    case program::v1::SILU:
      return SigmoidCycles(half) + arch::kPassCycles;  // and a product
    case program::v1::RELU6:
      return 2 * arch::kPassCycles;  // comparisons
    case program::v1::SQUARE_ROOT:
      return half ? 23 : 10;
    case program::v1::RECIPROCAL:
      return DivideCycles(half);
    case program::v1::RECIPROCAL_ROOT:
      return half ? 19 : 8;
    case program::v1::NEGATE:
    case program::v1::ABSOLUTE:
    case program::v1::SQUARE:
    case program::v1::LOGICAL_NOT:
    case program::v1::FLOOR:
    case program::v1::CEIL:
    case program::v1::ROUND:
    case program::v1::TRUNCATE:
    case program::v1::SIGN:
    case program::v1::BITWISE_NOT:
      return arch::kPassCycles;
    default:
      program::Unhandled("unary operator", op);
  }
}

double CyclesOf(program::v1::BinaryOperator op, bool half) {
  switch (op) {
    case program::v1::DIVIDE:
      return DivideCycles(half);
    case program::v1::POWER:
    case program::v1::ATAN2:
      return TranscendentalCycles(half);
    case program::v1::REMAINDER:
    case program::v1::FMOD:
      return DivideCycles(half) + kPassesOfRemainder * arch::kPassCycles;
    case program::v1::MAXIMUM:
    case program::v1::MINIMUM:
      return half ? 4 : 3;
    case program::v1::TANH_GRADIENT:
    case program::v1::SIGMOID_GRADIENT:
      return 3 * arch::kPassCycles;
    case program::v1::SILU_GRADIENT:
      return SigmoidCycles(half) + 4 * arch::kPassCycles;
    case program::v1::RELU6_GRADIENT:
      return 2 * arch::kPassCycles;
    case program::v1::ADD:
    case program::v1::SUBTRACT:
    case program::v1::MULTIPLY:
      return 3;
    case program::v1::EQUAL:
    case program::v1::NOT_EQUAL:
    case program::v1::LESS:
    case program::v1::LESS_EQUAL:
    case program::v1::GREATER:
    case program::v1::GREATER_EQUAL:
    case program::v1::LOGICAL_AND:
    case program::v1::LOGICAL_OR:
    case program::v1::RELU_GRADIENT:
    case program::v1::BITWISE_AND:
    case program::v1::BITWISE_OR:
    case program::v1::BITWISE_XOR:
    case program::v1::SHIFT_LEFT:
    case program::v1::SHIFT_RIGHT:
      return arch::kPassCycles;
    default:
      program::Unhandled("binary operator", op);
  }
}

}  // namespace

// 7.3 and 7.4 of the specification; F20 for what is not listed there.
WorkerCycles UnaryCycles(program::v1::UnaryOperator op, DataType type) {
  switch (op) {
    // Listed for float only.
    case program::v1::SIN:
    case program::v1::COS:
      return {2300, 1};
    case program::v1::TAN:
      return {5100, 1};
    default:
      return ForVector(type, CyclesOf(op, type == program::v1::FLOAT16));
  }
}

WorkerCycles BinaryCycles(program::v1::BinaryOperator op, DataType type) {
  if (!program::IsFloat(type)) {
    switch (op) {
      case program::v1::ADD:
      case program::v1::SUBTRACT:
      case program::v1::MULTIPLY:
        return {7, 1};
      case program::v1::DIVIDE:
        return {277, 1};
      case program::v1::REMAINDER:
      case program::v1::FMOD:
        return {277 + kPassesOfRemainder * arch::kPassCycles, 1};
      default:
        break;
    }
  }
  return ForVector(type, CyclesOf(op, type == program::v1::FLOAT16));
}

namespace {

// A product or sum with an operand that is broadcast along the channels: 1.2 cycles if they are a
// multiple of four, as the vertices for it take them (spec/planner.md 5).
double BroadcastCycles(program::v1::BinaryOperator op, const program::TensorType& operand) {
  const bool simple =
      op == program::v1::ADD || op == program::v1::SUBTRACT || op == program::v1::MULTIPLY;
  if (!simple || !program::IsFloat(operand.type)) return 0;
  return !operand.dims.empty() && operand.dims.back() % 4 == 0 ? kBroadcastCycles : 2;
}

// An operand or result, whose place is a tensor's or, inside of a map, that of a value.
struct Value {
  program::TensorType type;
  std::optional<uint32_t> tensor;
  const MapValue* value = nullptr;
};

bool LieAlike(const Value& a, const Value& b, const PlanContext& context) {
  if (!a.tensor || !b.tensor) return a.value == b.value && !a.tensor && !b.tensor;
  return context.LieAlike(*a.tensor, *b.tensor);
}

uint32_t TilesOf(const Value& result, const PlanContext& context) {
  return result.tensor ? context.SpanOf(*result.tensor).tiles : TilesOfPieces(result.value->type);
}

// Adds an operation to a plan. Its second operand is brought to where the first lies, if it is
// broadcast or lies elsewhere: each tile receives what its part of the result needs, at most.
void AddOperation(TilePlan& plan, const Instruction& op, absl::Span<const Value> operands,
                  const Value& result, const PlanContext& context) {
  const program::TensorType& first = operands[0].type;
  WorkerCycles cycles;
  if (op.has_unary()) {
    cycles = UnaryCycles(op.unary().operator_(), first.type);
  } else if (op.has_binary()) {
    const program::TensorType& second = operands[1].type;
    cycles = BinaryCycles(op.binary().operator_(), first.type);
    if (first.dims != second.dims) {
      const program::TensorType& narrow = first.elements() < second.elements() ? first : second;
      if (const double broadcast = BroadcastCycles(op.binary().operator_(), narrow); broadcast > 0)
        cycles = ForVector(first.type, broadcast);
      const uint64_t part =
          CeilDiv(static_cast<uint64_t>(result.type.elements()), TilesOf(result, context)) *
          program::SizeOf(narrow.type);
      if (narrow.elements() > 1) plan.Add(TileExchangeStep(std::min(narrow.bytes(), part)));
    } else if (!LieAlike(operands[0], operands[1], context)) {
      plan.Add(TileExchangeStep(CeilDiv(second.bytes(), arch::kTilesPerIpu)));
    }
  } else {
    cycles = ForVector(result.type.type, op.has_cast() ? kCastCycles : kSelectCycles);
  }
  plan.Add(StepOf(static_cast<uint64_t>(result.type.elements()), cycles, TilesOf(result, context)));
}

TilePlan OperationPlan(const Instruction& instruction, const PlanContext& context) {
  const auto value = [&](uint32_t tensor) { return Value{context.Type(tensor), tensor}; };
  std::vector<Value> operands;
  for (uint32_t input : instruction.inputs()) operands.push_back(value(input));
  TilePlan plan;
  AddOperation(plan, instruction, operands, value(instruction.outputs(0)), context);
  return plan;
}

// The steps are vertices of their own: poplibs fuses only what is in one expression, and what was
// fused here may come from several.
TilePlan MapPlan(const Instruction& instruction, const PlanContext& context) {
  const std::vector<MapValue> values = context.ValuesOfMap(instruction);
  const auto value = [&](uint32_t number) {
    const uint32_t place = values[number].lies_like;
    Value value{.type = values[number].type, .value = &values[place]};
    if (place < static_cast<uint32_t>(instruction.inputs_size()))
      value.tensor = instruction.inputs(static_cast<int>(place));
    return value;
  };
  TilePlan plan;
  auto number = static_cast<uint32_t>(instruction.inputs_size());
  for (const Instruction& step : instruction.map().steps()) {
    std::vector<Value> operands;
    for (uint32_t operand : step.inputs()) operands.push_back(value(operand));
    AddOperation(plan, step, operands, value(number++), context);
  }
  return plan;
}

}  // namespace

std::vector<PlanDef> ElementwisePlans() {
  return {{Instruction::kUnary, OperationPlan, ResultsLie::kLikeOperand},
          {Instruction::kBinary, OperationPlan, ResultsLie::kLikeOperand},
          {Instruction::kCast, OperationPlan, ResultsLie::kLikeOperand},
          {Instruction::kSelect, OperationPlan, ResultsLie::kLikeOperand},
          {Instruction::kMap, MapPlan, ResultsLie::kLikeOperand}};
}

}  // namespace vpod::model
