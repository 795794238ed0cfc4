#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kOperator{"reduce_c1", "The operator is SUM, MEAN, MAX, MIN or PRODUCT."};
constexpr Constraint kType{"reduce_c2", "The input is floats or, unless its mean is taken, int32."};
constexpr Constraint kAxes{
    "reduce_c3", "The axes are dimensions of the input in ascending order, without repetition."};
constexpr Constraint kElement{
    "reduce_c4", "MAX and MIN are taken of one element or more: no axis has a dimension of 0."};
constexpr Constraint kRows{
    "reduce_c5", "The input is floats of one dimension or more, of which the last is above 0."};

}  // namespace

absl::StatusOr<TensorType> ReduceType(v1::ReduceOperator op, const TensorType& input,
                                      absl::Span<const uint32_t> axes) {
  VPOD_RETURN_IF_ERROR(Check(input));
  if (op <= v1::REDUCE_OPERATOR_UNSPECIFIED || op > v1::PRODUCT) {
    return Broken(kOperator, absl::StrCat("unknown reduce operator ", op));
  }
  if (!IsFloat(input.type) && !(input.type == v1::INT32 && op != v1::MEAN)) {
    return Broken(kType,
                  absl::StrCat(v1::ReduceOperator_Name(op), " does not reduce ", input.ToString(),
                               op == v1::MEAN ? ", must be floats" : ", must be floats or int32"));
  }
  std::vector<bool> reduced(input.dims.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] >= input.dims.size() || (i > 0 && axes[i] <= axes[i - 1])) {
      return Broken(kAxes, absl::StrCat("axes [", absl::StrJoin(axes, ","), "] of ",
                                        input.ToString(), " must be 0 to ", input.rank() - 1,
                                        " in ascending order, without repetition"));
    }
    reduced[axes[i]] = true;
  }
  TensorType result{input.type, {}};
  bool of_none = false;
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (!reduced[i]) result.dims.push_back(input.dims[i]);
    of_none = of_none || (reduced[i] && input.dims[i] == 0);
  }
  if (of_none && (op == v1::MAX || op == v1::MIN)) {
    return Broken(kElement,
                  absl::StrCat(v1::ReduceOperator_Name(op), " needs an element, and axes [",
                               absl::StrJoin(axes, ","), "] of ", input.ToString(), " hold none"));
  }
  return result;
}

absl::StatusOr<TensorType> ArgMaxType(const TensorType& input) {
  VPOD_RETURN_IF_ERROR(Check(input));
  if (!IsFloat(input.type) || input.dims.empty()) {
    return Broken(kRows, absl::StrCat("arg-max does not take ", input.ToString(),
                                      ", must be floats of one dimension or more"));
  }
  if (input.dims.back() == 0) {
    return Broken(kRows, absl::StrCat("arg-max needs an element, and the last axis of ",
                                      input.ToString(), " holds none"));
  }
  return TensorType{v1::INT32, Dims(input.dims.begin(), input.dims.end() - 1)};
}

std::vector<OpDef> ReduceOps() {
  return {
      {.kind = v1::Instruction::kReduce,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction& instruction,
                   absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
         const v1::Reduce& op = instruction.reduce();
         return OneOutput(ReduceType(op.operator_(), inputs[0], op.axes()));
       },
       .constraints = {kOperator, kType, kAxes, kElement},
       .rounds = true,
       .layout = AnyLayout},
      {.kind = v1::Instruction::kArgMax,
       .role = Role::kKernel,
       .inputs = {1, 1},
       .outputs = {1, 1},
       .infer = [](const v1::Instruction&, absl::Span<const TensorType> inputs)
           -> absl::StatusOr<Types> { return OneOutput(ArgMaxType(inputs[0])); },
       .constraints = {kRows}},
  };
}

}  // namespace vpod::program
