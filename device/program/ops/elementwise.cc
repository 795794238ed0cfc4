#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {

absl::StatusOr<Dims> BroadcastDims(const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shapes [", absl::StrJoin(a, ","), "] and [", absl::StrJoin(b, ","),
          "] do not broadcast: ", da, " and ", db, " must be equal, or one of them 1"));
    }
    result[result.size() - 1 - i] = da == 1 ? db : da;
  }
  return result;
}

namespace {

constexpr Constraint kOperator{"elementwise_c1", "The operator is one of its enumeration."};
constexpr Constraint kUnaryType{
    "elementwise_c2",
    "The input has an element type that the operator takes: floats; floats or integers (NEGATE, "
    "ABSOLUTE, SQUARE, RELU, SIGN); integers (BITWISE_NOT); bool (LOGICAL_NOT)."};
constexpr Constraint kBinaryTypes{
    "elementwise_c3",
    "The inputs have one element type, which the operator takes: floats or integers; floats "
    "(ATAN2 and the gradients, whose inputs have one shape, too); integers (the bitwise operators "
    "and shifts); bool (LOGICAL_AND and LOGICAL_OR)."};
constexpr Constraint kSelectTypes{
    "elementwise_c4", "The condition is bool, and the other two inputs have one element type."};
constexpr Constraint kShapes{
    "elementwise_c5",
    "The shapes broadcast: counted from the last, dimensions are equal, missing or 1."};

// The shape of an op's inputs together.
absl::StatusOr<Dims> BroadcastInputs(const Dims& a, const Dims& b) {
  absl::StatusOr<Dims> dims = BroadcastDims(a, b);
  if (!dims.ok()) return Labelled(kShapes, dims.status());
  return dims;
}

enum class Domain { kFloats, kNumbers, kIntegers, kBools };

bool Takes(Domain domain, v1::DataType type) {
  switch (domain) {
    case Domain::kFloats:
      return IsFloat(type);
    case Domain::kNumbers:
      return IsFloat(type) || IsInteger(type);
    case Domain::kIntegers:
      return IsInteger(type);
    default:
      return type == v1::BOOL;
  }
}

Domain DomainOf(v1::UnaryOperator op) {
  switch (op) {
    case v1::NEGATE:
    case v1::ABSOLUTE:
    case v1::SQUARE:
    case v1::RELU:
    case v1::SIGN:
      return Domain::kNumbers;
    case v1::BITWISE_NOT:
      return Domain::kIntegers;
    case v1::LOGICAL_NOT:
      return Domain::kBools;
    default:
      return Domain::kFloats;
  }
}

Domain DomainOf(v1::BinaryOperator op) {
  switch (op) {
    case v1::RELU_GRADIENT:
    case v1::TANH_GRADIENT:
    case v1::SIGMOID_GRADIENT:
    case v1::RELU6_GRADIENT:
    case v1::SILU_GRADIENT:
    case v1::ATAN2:
      return Domain::kFloats;
    case v1::BITWISE_AND:
    case v1::BITWISE_OR:
    case v1::BITWISE_XOR:
    case v1::SHIFT_LEFT:
    case v1::SHIFT_RIGHT:
      return Domain::kIntegers;
    case v1::LOGICAL_AND:
    case v1::LOGICAL_OR:
      return Domain::kBools;
    default:
      return Domain::kNumbers;
  }
}

}  // namespace

absl::StatusOr<TensorType> UnaryType(v1::UnaryOperator op, const TensorType& input) {
  if (op <= v1::UNARY_OPERATOR_UNSPECIFIED || op > v1::UnaryOperator_MAX)
    return Broken(kOperator, absl::StrCat("unknown unary operator ", op));
  VPOD_RETURN_IF_ERROR(Check(input));
  const Domain domain = DomainOf(op);
  if (Takes(domain, input.type)) return input;
  return Broken(kUnaryType, absl::StrCat(v1::UnaryOperator_Name(op), " does not take ",
                                         input.ToString(), ", must be ",
                                         domain == Domain::kFloats     ? "floats"
                                         : domain == Domain::kNumbers  ? "floats or integers"
                                         : domain == Domain::kIntegers ? "integers"
                                                                       : "bool"));
}

absl::StatusOr<TensorType> BinaryType(v1::BinaryOperator op, const TensorType& a,
                                      const TensorType& b) {
  if (op <= v1::BINARY_OPERATOR_UNSPECIFIED || op > v1::BinaryOperator_MAX)
    return Broken(kOperator, absl::StrCat("unknown binary operator ", op));
  VPOD_RETURN_IF_ERROR(Check(a));
  VPOD_RETURN_IF_ERROR(Check(b));
  const bool gradient = (op >= v1::RELU_GRADIENT && op <= v1::SIGMOID_GRADIENT) ||
                        op == v1::RELU6_GRADIENT || op == v1::SILU_GRADIENT;
  const bool comparison = op >= v1::EQUAL && op <= v1::GREATER_EQUAL;
  const Domain domain = DomainOf(op);
  if (a.type != b.type || !Takes(domain, a.type) || (gradient && a.dims != b.dims)) {
    return Broken(kBinaryTypes,
                  absl::StrCat(v1::BinaryOperator_Name(op), " does not take ", a.ToString(),
                               " and ", b.ToString(), ", must be two of ",
                               gradient                      ? "one float type and shape"
                               : domain == Domain::kFloats   ? "one float type"
                               : domain == Domain::kNumbers  ? "one type of numbers"
                               : domain == Domain::kIntegers ? "one type of integers"
                                                             : "bool"));
  }
  VPOD_ASSIGN_OR_RETURN(Dims dims, BroadcastInputs(a.dims, b.dims));
  TensorType result{comparison ? v1::BOOL : a.type, std::move(dims)};
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

namespace {

absl::StatusOr<TensorType> SelectedType(const TensorType& condition, const TensorType& a,
                                        const TensorType& b) {
  if (condition.type != v1::BOOL || a.type != b.type) {
    return Broken(kSelectTypes,
                  absl::StrCat("select does not take ", condition.ToString(), ", ", a.ToString(),
                               " and ", b.ToString(), ", must be bool and two of one type"));
  }
  VPOD_ASSIGN_OR_RETURN(Dims dims, BroadcastInputs(a.dims, b.dims));
  VPOD_ASSIGN_OR_RETURN(dims, BroadcastInputs(condition.dims, dims));
  TensorType result{a.type, std::move(dims)};
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

}  // namespace

std::vector<OpDef> ElementwiseOps() {
  return {
      {.kind = v1::Instruction::kUnary,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(UnaryType(instruction.unary().operator_(), inputs[0]));
       },
       .constraints = {kOperator, kUnaryType},
       .elementwise = true,
       .rounds = true,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kBinary,
       .role = Role::kKernel,
       .inputs = {2, 2},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(BinaryType(instruction.binary().operator_(), inputs[0], inputs[1]));
       },
       .constraints = {kOperator, kBinaryTypes, kShapes},
       .elementwise = true,
       .rounds = true,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kSelect,
       .role = Role::kKernel,
       .inputs = {3, 3},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         return OneOutput(SelectedType(inputs[0], inputs[1], inputs[2]));
       },
       .constraints = {kSelectTypes, kShapes},
       .flops_per_operation = 0,
       .elementwise = true,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kCast,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         TensorType output{instruction.cast().type(), inputs[0].dims};
         VPOD_RETURN_IF_ERROR(Check(output));
         return Types{std::move(output)};
       },
       .flops_per_operation = 0,
       .elementwise = true,
       .rounds = true,
       .layout = AnyLayout},
  };
}

}  // namespace vpod::program
