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
    return absl::InvalidArgumentError(absl::StrCat(
        "matmul does not take ", a.ToString(), transpose_a ? " transposed" : "", " and ",
        b.ToString(), transpose_b ? " transposed" : "", ", must be floats [m,k] and [k,n]"));
  }
  TensorType result{a.type, {a.dims[transpose_a ? 1 : 0], b.dims[transpose_b ? 0 : 1]}};
  VPOD_RETURN_IF_ERROR(Check(result));
  return result;
}

std::vector<OpDef> MatMulOps() {
  return {{.kind = v1::Instruction::kMatMul,
           .role = Role::kKernel,
           .inputs = {2, 2},
           .outputs = {1, 1},
           .infer = [](const v1::Instruction& instruction,
                       absl::Span<const TensorType> inputs) -> absl::StatusOr<Types> {
             const v1::MatMul& op = instruction.mat_mul();
             return OneOutput(MatMulType(inputs[0], inputs[1], op.transpose_a(), op.transpose_b()));
           },
           .operations =
               [](const v1::Instruction&, absl::Span<const TensorType> inputs,
                  absl::Span<const TensorType> outputs) {
                 // m·k·n, whichever way the operands are stored.
                 const auto a = static_cast<double>(inputs[0].elements());
                 return a * static_cast<double>(outputs[0].dims[1]);
               },
           .flops_per_operation = 2,
           .rounds = true}};
}

}  // namespace vpod::program
