// For the lowerings of operators that read or write elements by index.
#pragma once

#include "client/aten/call.h"

namespace vpod::aten {

// Unimplemented for masks (BOOL or UINT8), InvalidArgument for floats.
absl::Status CheckIndices(const Call& call, Tensor indices);

// INT32, in which negative indices count from the end of a dimension of this length.
Term FromStart(const Call& call, Tensor indices, int64_t dim);

// Whether argument i is a tensor of bools, which PyTorch takes as UINT8, too.
inline bool IsMask(v1::DataType type) { return type == v1::BOOL || type == v1::UINT8; }

// The first elements of a tensor, so that it has the dimensions of the indices; along the axis it
// keeps its own, unless `all`.
absl::StatusOr<Tensor> Beginning(const Call& call, Tensor tensor, const Dims& indices,
                                 uint32_t axis, bool all);

// For each place, how many true elements are before it, INT32 in the mask's dimensions; 0 where the
// element is false.
Term Ranks(const Call& call, Tensor mask);

// --- Writes by masks: arguments are self, indices, values and whether they are added ---

// By a mask alone. The values at the true elements of the mask become those of the tensor. The mask
// covers dimensions from `first` on; the values are broadcast to [those before it, one for each
// true element in order, those behind it].
Outputs PutWhere(const Call& call, size_t first);

// Indices in the place of masks beside other indices: the places of their true elements, in order.
struct WithoutMasks {
  Dims dims;        // of self; the dimensions that a mask covers count as one
  Tensors indices;  // of these dimensions
  // BOOL, invalid where a length of the other arguments says how many true elements there are:
  // which of the last dimension of the indices write nothing, because there are fewer.
  Tensor unused = {};
};

// A run fails if masks do not have as many true elements as the other arguments ask for; one alone
// is written by each index beside it.
absl::StatusOr<WithoutMasks> ReplaceMasks(const Call& call);

}  // namespace vpod::aten
