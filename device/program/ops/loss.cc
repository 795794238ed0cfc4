#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/program/ops/rules.h"

namespace vpod::program {

absl::StatusOr<TensorType> SoftmaxCrossEntropyType(const TensorType& logits,
                                                   const TensorType& labels) {
  VPOD_RETURN_IF_ERROR(Check(logits));
  VPOD_RETURN_IF_ERROR(Check(labels));
  if (logits.rank() != 2 || !IsFloat(logits.type) || labels.type != v1::INT32 ||
      labels.dims != Dims{logits.dims[0]}) {
    return absl::InvalidArgumentError(absl::StrCat("cross-entropy does not take logits ",
                                                   logits.ToString(), " and labels ",
                                                   labels.ToString()));
  }
  return TensorType{logits.type, labels.dims};
}

}  // namespace vpod::program
