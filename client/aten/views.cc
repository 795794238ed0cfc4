// Views of a tensor: other dimensions, other orders, parts. All are values of their own here.
#include <algorithm>
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

// Elements from `begin` to before `end` of an axis.
Tensor Part(const Call& call, Tensor self, uint32_t axis, int64_t begin, int64_t size,
            int64_t step = 1) {
  Dims start(call.DimsOf(self).size(), 0), sizes = call.DimsOf(self), steps(sizes.size(), 1);
  start[axis] = begin;
  sizes[axis] = size;
  steps[axis] = step;
  return call.graph().Slice(self, start, sizes, steps);
}

Tensor WithoutAxis(const Call& call, Tensor part, uint32_t axis) {
  Dims dims = call.DimsOf(part);
  dims.erase(dims.begin() + axis);
  return call.graph().Reshape(part, dims);
}

// The axis of argument i of what has a dimension or more.
absl::StatusOr<uint32_t> RealAxis(const Call& call, size_t i, const Dims& dims) {
  if (dims.empty()) return call.Refuse("a scalar has no parts");
  return call.Axis(call.integer(i), dims.size());
}

absl::StatusOr<int64_t> Place(const Call& call, int64_t index, int64_t dim) {
  if (index < -dim || index >= dim)
    return call.Refuse(absl::StrCat("index ", index, " must be ", -dim, " to ", dim - 1));
  return index < 0 ? index + dim : index;
}

Outputs Select(const Call& call) {
  const Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 1, dims));
  VPOD_ASSIGN_OR_RETURN(const int64_t at, Place(call, call.integer(2), dims[axis]));
  return Tensors{WithoutAxis(call, Part(call, self, axis, at, 1), axis)};
}

struct Range {
  int64_t begin = 0, size = 0, step = 1;
};

// start, end and step from argument i on; Python's rules clamp them to the dimension.
absl::StatusOr<Range> RangeOf(const Call& call, size_t i, int64_t dim) {
  const auto clamped = [dim](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + dim : at, 0, dim);
  };
  Range range;
  range.step = call.integer(i + 2);
  if (range.step < 1) return call.Refuse(absl::StrCat("step ", range.step, " must be 1 or more"));
  range.begin = call.has(i) ? clamped(call.integer(i)) : 0;
  const int64_t end = call.has(i + 1) ? clamped(call.integer(i + 1)) : dim;
  range.size = end <= range.begin ? 0 : (end - range.begin + range.step - 1) / range.step;
  if (range.size == 0) range.begin = 0;
  return range;
}

Outputs Slice(const Call& call) {
  const Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 1, dims));
  VPOD_ASSIGN_OR_RETURN(const Range range, RangeOf(call, 2, dims[axis]));
  return Tensors{Part(call, self, axis, range.begin, range.size, range.step)};
}

Outputs InParts(const Call& call, uint32_t axis, const Dims& sizes) {
  const Tensor self = call.tensor(0);
  const int64_t dim = call.DimsOf(self)[axis];
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != dim) {
    return call.Refuse(
        absl::StrCat("sizes [", absl::StrJoin(sizes, ","), "] must add up to ", dim));
  }
  Tensors parts;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    parts.push_back(Part(call, self, axis, begin, size));
    begin += size;
  }
  return parts;
}

Outputs Split(const Call& call) {
  const Dims dims = call.DimsOf(call.tensor(0));
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 2, dims));
  const int64_t size = call.integer(1);
  if (size < 1) return call.Refuse(absl::StrCat("size ", size, " must be 1 or more"));
  Dims sizes(static_cast<size_t>(dims[axis] / size), size);
  if (dims[axis] % size != 0 || sizes.empty()) sizes.push_back(dims[axis] % size);
  return InParts(call, axis, sizes);
}

Outputs SplitWithSizes(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 2, call.DimsOf(call.tensor(0))));
  return InParts(call, axis, call.ints(1));
}

Outputs Unbind(const Call& call) {
  const Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 1, dims));
  Tensors parts;
  for (int64_t i = 0; i < dims[axis]; ++i)
    parts.push_back(WithoutAxis(call, Part(call, self, axis, i, 1), axis));
  return parts;
}

// Elements of a tensor that lies row by row, by their distances in it.
Outputs AsStrided(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  const Dims size = call.ints(1), strides = call.ints(2);
  const int64_t offset = call.has(3) ? call.integer(3) : 0, elements = call.TypeOf(self).elements();
  if (size.size() != strides.size())
    return call.Refuse("there must be a stride for each dimension");
  int64_t last = offset;
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i] < 0 || strides[i] < 0) return call.Refuse("sizes and strides must be 0 or more");
    if (size[i] > 0) last += (size[i] - 1) * strides[i];
  }
  if (offset < 0 || last >= std::max<int64_t>(elements, 1)) {
    return call.Refuse(absl::StrCat("element ", last, " is not one of the ", elements));
  }
  const Tensor flat = graph.Reshape(self, {elements});
  const Dims dense = program::RowMajorStrides(size);
  bool is_dense = true;
  for (size_t i = 0; i < size.size(); ++i) is_dense &= size[i] == 1 || strides[i] == dense[i];
  if (is_dense) {
    const int64_t count = TensorType{v1::FLOAT32, size}.elements();
    return Tensors{graph.Reshape(graph.Slice(flat, {offset}, {count}), size)};
  }
  Term places = call.term(call.Scalar(v1::INT32, static_cast<double>(offset)));
  for (size_t i = 0; i < size.size(); ++i) {
    const Term along(graph, graph.Iota({v1::INT32, size}, static_cast<uint32_t>(i)));
    places = places + along * static_cast<double>(strides[i]);
  }
  return Tensors{graph.Gather(flat, places, 0)};
}

// The gradient of a tensor of these dimensions by that of a part of it.
Outputs OfPart(const Call& call, Tensor gradient, const Dims& dims, uint32_t axis,
               const Range& range) {
  const TensorType type = call.TypeOf(gradient);
  if (!program::IsFloat(type.type))
    return call.Refuse(absl::StrCat("the gradient is ", type.ToString(), ", must have floats"));
  const Tensor whole = call.graph().Constant({type.type, dims}, 0);
  return Pullback(call, {whole}, gradient, [&](const Tensors& own) {
    return Part(call, own[0], axis, range.begin, range.size, range.step);
  });
}

Outputs SelectBackward(const Call& call) {
  const Dims dims = call.ints(1);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 2, dims));
  VPOD_ASSIGN_OR_RETURN(const int64_t at, Place(call, call.integer(3), dims[axis]));
  Dims one = dims;
  one[axis] = 1;
  const Tensor gradient = call.graph().Reshape(call.tensor(0), one);
  VPOD_RETURN_IF_ERROR(call.graph().status());
  return OfPart(call, gradient, dims, axis, {.begin = at, .size = 1});
}

Outputs SliceBackward(const Call& call) {
  const Dims dims = call.ints(1);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 2, dims));
  VPOD_ASSIGN_OR_RETURN(const Range range, RangeOf(call, 3, dims[axis]));
  Dims part = dims;
  part[axis] = range.size;
  if (call.DimsOf(call.tensor(0)) != part) {
    return call.Refuse(absl::StrCat("the gradient is ", call.TypeOf(call.tensor(0)).ToString(),
                                    ", must have the shape of the slice"));
  }
  return OfPart(call, call.tensor(0), dims, axis, range);
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
      {"select.int", "tensor, int, int", Select},
      {"select_backward.default", "tensor, ints, int, int", SelectBackward},
      {"slice.Tensor", "tensor, int=0, int?=None, int?=None, int=1", Slice},
      {"slice_backward.default", "tensor, ints, int, int, int, int", SliceBackward},
      {"split.Tensor", "tensor, int, int=0", Split},
      {"unsafe_split.Tensor", "tensor, int, int=0", Split},
      {"split_with_sizes.default", "tensor, ints, int=0", SplitWithSizes},
      {"unbind.int", "tensor, int=0", Unbind},
      {"as_strided.default", "tensor, ints, ints, int?=None", AsStrided},
  };
}

}  // namespace vpod::aten
