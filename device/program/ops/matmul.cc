#include "absl/strings/str_cat.h"
#include "device/base/status.h"
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

}  // namespace vpod::program
