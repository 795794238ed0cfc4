#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/op.h"
#include "device/program/ops/rules.h"

namespace vpod::program {
namespace {

constexpr Constraint kOperands{
    "matmul_c1",
    "a and b are floats of one type and rank, […,m,k] and […,k,n] unless they are transposed, with "
    "equal dimensions before these."};
constexpr Constraint kPlan{"matmul_c2",
                           "Partial results are FLOAT32, or FLOAT16 if a and b are; the memory "
                           "proportion is 0 to 1."};

}  // namespace

absl::Status CheckProductPlan(const Constraint& constraint, const v1::ProductPlan& plan,
                              v1::DataType type) {
  if (plan.partials() != v1::DATA_TYPE_UNSPECIFIED && plan.partials() != v1::FLOAT32 &&
      !(plan.partials() == v1::FLOAT16 && type == v1::FLOAT16)) {
    return Broken(constraint,
                  absl::StrCat("the type of partial results is ", Name(plan.partials()),
                               ", must be float32", type == v1::FLOAT16 ? " or float16" : ""));
  }
  const float proportion = plan.memory_proportion();
  if (proportion >= 0 && proportion <= 1) return absl::OkStatus();
  return Broken(constraint,
                absl::StrCat("the memory proportion is ", proportion, ", must be 0 to 1"));
}

absl::StatusOr<TensorType> MatMulType(const TensorType& a, const TensorType& b, bool transpose_a,
                                      bool transpose_b) {
  VPOD_RETURN_IF_ERROR(Check(a));
  VPOD_RETURN_IF_ERROR(Check(b));
  const size_t rank = a.dims.size();
  if (rank < 2 || b.dims.size() != rank || a.type != b.type || !IsFloat(a.type) ||
      !std::equal(a.dims.begin(), a.dims.end() - 2, b.dims.begin()) ||
      a.dims[rank - (transpose_a ? 2 : 1)] != b.dims[rank - (transpose_b ? 1 : 2)]) {
    return Broken(
        kOperands,
        absl::StrCat("matmul does not take ", a.ToString(), transpose_a ? " transposed" : "",
                     " and ", b.ToString(), transpose_b ? " transposed" : "",
                     ", must be floats […,m,k] and […,k,n] with equal dimensions before these"));
  }
  TensorType result = a;
  result.dims[rank - 2] = a.dims[rank - (transpose_a ? 1 : 2)];
  result.dims[rank - 1] = b.dims[rank - (transpose_b ? 2 : 1)];
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
             VPOD_RETURN_IF_ERROR(CheckProductPlan(kPlan, op.plan(), inputs[0].type));
             return OneOutput(MatMulType(inputs[0], inputs[1], op.transpose_a(), op.transpose_b()));
           },
           .constraints = {kOperands, kPlan},
           .operations =
               [](const v1::Instruction&, absl::Span<const TensorType> inputs,
                  absl::Span<const TensorType> outputs) {
                 // m·k·n, whichever way the operands are stored.
                 const auto a = static_cast<double>(inputs[0].elements());
                 return a * static_cast<double>(outputs[0].dims.back());
               },
           .flops_per_operation = 2,
           .rounds = true}};
}

}  // namespace vpod::program
