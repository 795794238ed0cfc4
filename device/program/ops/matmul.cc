#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {

absl::StatusOr<TensorType> MatMulType(const TensorType& a, const TensorType& b, bool transpose_a,
                                      bool transpose_b) {
  VPOD_RETURN_IF_ERROR(Check(a));
  VPOD_RETURN_IF_ERROR(Check(b));
  if (a.rank() != 2 || b.rank() != 2 || a.type != b.type || !IsFloat(a.type) ||
      a.dims[transpose_a ? 0 : 1] != b.dims[transpose_b ? 1 : 0]) {
    return absl::InvalidArgumentError(absl::StrCat("matmul does not take ", a.ToString(),
                                                   transpose_a ? " transposed" : "", " and ",
                                                   b.ToString(), transpose_b ? " transposed" : ""));
  }
  TensorType result{a.type, {a.dims[transpose_a ? 1 : 0], b.dims[transpose_b ? 0 : 1]}};
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

std::vector<OpDef> MatMulOps() {
  return {{v1::Instruction::kMatMul,
           Role::kKernel,
           {{"a", Access::kRead}, {"b", Access::kRead}, {"output", Access::kWrite}},
           [](const v1::Instruction& instruction, const Operands& tensors) -> absl::Status {
             const v1::MatMul& op = instruction.mat_mul();
             VPOD_ASSIGN_OR_RETURN(TensorType a, tensors.Plain(op.a()));
             VPOD_ASSIGN_OR_RETURN(TensorType b, tensors.Plain(op.b()));
             VPOD_ASSIGN_OR_RETURN(TensorType output,
                                   MatMulType(a, b, op.transpose_a(), op.transpose_b()));
             VPOD_RETURN_IF_ERROR(
                 tensors.CheckOperations(output.elements(), {a.dims[op.transpose_a() ? 0 : 1]}));
             return tensors.Expect(op.output(), output);
           }}};
}

}  // namespace vpod::program
