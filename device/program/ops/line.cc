#include "device/program/ops/line.h"

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kOperator{"line_c1", "The operator is SUM or PRODUCT."};
constexpr Constraint kNumbers{"line_c2", "The input is floats or int32."};
constexpr Constraint kAxis{"line_c3", "The axis is one of the dimensions of the input."};
constexpr Constraint kLength{"line_c4", "The axis to sort along has at most 2^24 elements."};
constexpr Constraint kCount{"line_c5", "`count` is 0 to the length of the axis."};

absl::Status CheckAxis(uint32_t axis, const TensorType& input) {
  if (axis < input.dims.size()) return absl::OkStatus();
  return Broken(kAxis, absl::StrCat("axis ", axis, " does not exist in ", input.ToString()));
}

absl::StatusOr<TensorType> CumulatedType(const v1::Cumulate& op, const TensorType& input) {
  VPOD_RETURN_IF_ERROR(Check(input));
  if (op.operator_() != v1::SUM && op.operator_() != v1::PRODUCT) {
    return Broken(kOperator, absl::StrCat("cumulate has no operator ", op.operator_(),
                                          ", must be SUM or PRODUCT"));
  }
  if (!IsFloat(input.type) && input.type != v1::INT32) {
    return Broken(kNumbers, absl::StrCat("cumulate does not take ", input.ToString(),
                                         ", must be floats or int32"));
  }
  VPOD_RETURN_IF_ERROR(CheckAxis(op.axis(), input));
  return input;
}

absl::StatusOr<Types> SortedTypes(const v1::Sort& op, const TensorType& input) {
  VPOD_RETURN_IF_ERROR(Check(input));
  VPOD_RETURN_IF_ERROR(CheckAxis(op.axis(), input));
  const int64_t length = input.dims[op.axis()];
  if (length > kMostSortedElements) {
    return Broken(kLength,
                  absl::StrCat("axis ", op.axis(), " of ", input.ToString(),
                               " is too long to sort, must be at most ", kMostSortedElements));
  }
  if (op.count() < 0 || op.count() > length) {
    return Broken(
        kCount, absl::StrCat("sort gives ", op.count(), " elements along axis ", op.axis(), " of ",
                             input.ToString(), ", must be 0 to ", length));
  }
  TensorType values = input, places{v1::INT32, input.dims};
  values.dims[op.axis()] = places.dims[op.axis()] = op.count();
  return Types{std::move(values), std::move(places)};
}

}  // namespace

std::vector<OpDef> LineOps() {
  return {{.kind = v1::Instruction::kCumulate,
           .role = Role::kKernel,
           .inputs = {1, 1},
           .outputs = {1, 1},
           .infer = [](const v1::Instruction& instruction,
                       absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
             return OneOutput(CumulatedType(instruction.cumulate(), inputs[0]));
           },
           .constraints = {kOperator, kNumbers, kAxis},
           .rounds = true},
          {.kind = v1::Instruction::kSort,
           .role = Role::kKernel,
           .inputs = {1, 1},
           .outputs = {2, 2},
           .infer = [](const v1::Instruction& instruction, absl::Span<const TensorType> inputs)
               -> absl::StatusOr<Types> { return SortedTypes(instruction.sort(), inputs[0]); },
           .constraints = {kAxis, kLength, kCount},
           .flops_per_operation = 0}};
}

}  // namespace vpod::program
