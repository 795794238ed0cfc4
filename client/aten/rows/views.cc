// Views of a tensor: other dimensions and other orders. All are values of their own here.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

Outputs Same(const Call& call) { return Tensors{call.tensor(0)}; }

Outputs Detach(const Call& call) { return Tensors{call.graph().Stop(call.tensor(0))}; }

// The dimensions with which to view these elements: one may be -1.
absl::StatusOr<Dims> Inferred(const Call& call, Dims dims, int64_t elements) {
  int64_t known = 1;
  auto unknown = dims.end();
  for (auto dim = dims.begin(); dim != dims.end(); ++dim) {
    if (*dim == -1 && unknown == dims.end()) {
      unknown = dim;
    } else {
      known *= *dim;
    }
  }
  if (unknown != dims.end()) {
    if (known <= 0 || elements % known != 0) {
      return call.Refuse(
          absl::StrCat(elements, " elements have no shape [", absl::StrJoin(dims, ","), "]"));
    }
    *unknown = elements / known;
  }
  return dims;
}

Outputs View(const Call& call) {
  const Tensor self = call.tensor(0);
  VPOD_ASSIGN_OR_RETURN(Dims dims, Inferred(call, call.ints(1), call.TypeOf(self).elements()));
  return Tensors{call.graph().Reshape(self, std::move(dims))};
}

Outputs Exchanged(const Call& call, int64_t first, int64_t second) {
  const Tensor self = call.tensor(0);
  const size_t rank = call.DimsOf(self).size();
  VPOD_ASSIGN_OR_RETURN(const uint32_t a, call.Axis(first, rank));
  VPOD_ASSIGN_OR_RETURN(const uint32_t b, call.Axis(second, rank));
  if (a == b) return Tensors{self};
  std::vector<uint32_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[a], order[b]);
  return Tensors{call.graph().Transpose(self, order)};
}

Outputs T(const Call& call) {
  const size_t rank = call.DimsOf(call.tensor(0)).size();
  if (rank > 2) {
    return call.Refuse(absl::StrCat("the tensor has ", rank, " dimensions, must have at most 2"));
  }
  return rank < 2 ? Same(call) : Exchanged(call, 0, 1);
}

Outputs Transpose(const Call& call) { return Exchanged(call, call.integer(1), call.integer(2)); }

Outputs Permute(const Call& call) {
  const Tensor self = call.tensor(0);
  const size_t rank = call.DimsOf(self).size();
  std::vector<uint32_t> order;
  for (int64_t axis : call.ints(1)) {
    VPOD_ASSIGN_OR_RETURN(const uint32_t place, call.Axis(axis, rank));
    order.push_back(place);
  }
  return Tensors{rank == 0 && order.empty() ? self : call.graph().Transpose(self, order)};
}

Outputs Expand(const Call& call) {
  const Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  Dims wanted = call.ints(1);
  if (wanted.size() < dims.size()) {
    return call.Refuse(absl::StrCat("expands ", call.TypeOf(self).ToString(), " to ", wanted.size(),
                                    " dimensions"));
  }
  const size_t more = wanted.size() - dims.size();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (wanted[more + i] == -1) wanted[more + i] = dims[i];
  }
  return Tensors{call.graph().Expand(self, wanted)};
}

Outputs Squeeze(const Call& call) {
  Dims dims = call.DimsOf(call.tensor(0));
  std::erase(dims, 1);
  return Tensors{call.graph().Reshape(call.tensor(0), dims)};
}

Outputs SqueezeAxis(const Call& call) {
  const Tensor self = call.tensor(0);
  Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size()));
  if (dims.empty() || dims[axis] != 1) return Tensors{self};
  dims.erase(dims.begin() + axis);
  return Tensors{call.graph().Reshape(self, dims)};
}

Outputs Unsqueeze(const Call& call) {
  Dims dims = call.DimsOf(call.tensor(0));
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size() + 1));
  dims.insert(dims.begin() + axis, 1);
  return Tensors{call.graph().Reshape(call.tensor(0), dims)};
}

}  // namespace

std::vector<Row> ViewRows() {
  return {
      {"detach.default", "tensor", Detach},
      {"alias.default", "tensor", Same},
      {"lift_fresh.default", "tensor", Same},
      {"lift_fresh_copy.default", "tensor", Same},
      {"clone.default", "tensor, int?=None", Same},
      {"contiguous.default", "tensor, int?=0", Same},
      {"view.default", "tensor, ints", View},
      {"reshape.default", "tensor, ints", View},
      {"_unsafe_view.default", "tensor, ints", View},
      {"_reshape_alias.default", "tensor, ints, ints", View},
      {"t.default", "tensor", T},
      {"transpose.int", "tensor, int, int", Transpose},
      {"transpose_.default", "tensor, int, int", Transpose},
      {"permute.default", "tensor, ints", Permute},
      {"expand.default", "tensor, ints, bool=false", Expand},
      {"squeeze.default", "tensor", Squeeze},
      {"squeeze.dim", "tensor, int", SqueezeAxis},
      {"unsqueeze.default", "tensor, int", Unsqueeze},
  };
}

}  // namespace vpod::aten
