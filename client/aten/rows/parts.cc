// Parts of a tensor along its dimensions, and the tensor after a write of such a part.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

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

// (self, axis, size, step): windows of the axis, whose elements become the last dimension.
Outputs Unfold(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 1, dims));
  const int64_t size = call.integer(2), step = call.integer(3);
  if (size < 0 || size > dims[axis])
    return call.Refuse(absl::StrCat("size ", size, " must be 0 to ", dims[axis]));
  if (step < 1) return call.Refuse(absl::StrCat("step ", step, " must be 1 or more"));
  const Dims windows = {(dims[axis] - size) / step + 1, size};
  const Term first(graph, graph.Iota({v1::INT32, windows}, 0));
  const Term within(graph, graph.Iota({v1::INT32, windows}, 1));
  const Term places = first * static_cast<double>(step) + within;
  std::vector<uint32_t> order(dims.size() + 1);
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin() + axis + 1, order.begin() + axis + 2, order.end());
  return Tensors{graph.Transpose(graph.Gather(self, places, axis), order)};
}

// Elements of a tensor that lies row by row, by their distances in it.
struct Strided {
  Dims size, strides;
  int64_t offset = 0;
  bool is_dense = true;  // the elements lie one after the other

  int64_t count() const { return TensorType{v1::FLOAT32, size}.elements(); }
  // The place of each element in the storage, INT32 [size].
  Term Places(const Call& call) const {
    Term places = call.term(call.Scalar(v1::INT32, static_cast<double>(offset)));
    for (size_t i = 0; i < size.size(); ++i) {
      const Term along(call.graph(),
                       call.graph().Iota({v1::INT32, size}, static_cast<uint32_t>(i)));
      places = places + along * static_cast<double>(strides[i]);
    }
    return places;
  }
};

// Size, strides and offset from argument i on, for a tensor of so many elements.
absl::StatusOr<Strided> StridedFrom(const Call& call, size_t i, int64_t elements) {
  Strided of{call.ints(i), call.ints(i + 1), call.has(i + 2) ? call.integer(i + 2) : 0};
  if (of.size.size() != of.strides.size())
    return call.Refuse("there must be a stride for each dimension");
  int64_t last = of.offset;
  const Dims dense = program::RowMajorStrides(of.size);
  for (size_t axis = 0; axis < of.size.size(); ++axis) {
    const int64_t size = of.size[axis], stride = of.strides[axis];
    if (size < 0 || stride < 0) return call.Refuse("sizes and strides must be 0 or more");
    if (size > 0) last += (size - 1) * stride;
    of.is_dense &= size == 1 || stride == dense[axis];
  }
  if (of.offset < 0 || last >= std::max<int64_t>(elements, 1)) {
    return call.Refuse(absl::StrCat("element ", last, " is not one of the ", elements));
  }
  return of;
}

Outputs AsStrided(const Call& call) {
  Graph& graph = call.graph();
  const int64_t elements = call.TypeOf(call.tensor(0)).elements();
  VPOD_ASSIGN_OR_RETURN(const Strided of, StridedFrom(call, 1, elements));
  const Tensor flat = graph.Reshape(call.tensor(0), {elements});
  if (of.is_dense)
    return Tensors{graph.Reshape(graph.Slice(flat, {of.offset}, {of.count()}), of.size)};
  return Tensors{graph.Gather(flat, of.Places(call), 0)};
}

// --- Writes of a part: (self, source, the arguments of the view) ---

// Argument 1 in the type of self, with the dimensions of the part.
absl::StatusOr<Tensor> SourceOf(const Call& call, const Dims& part) {
  const Tensor source = call.tensor(1);
  if (call.DimsOf(source) == part)
    return call.graph().Cast(source, call.TypeOf(call.tensor(0)).type);
  return call.Refuse(absl::StrCat("the source is ", call.TypeOf(source).ToString(),
                                  ", must have the dimensions [", absl::StrJoin(part, ","),
                                  "] of the part"));
}

// The tensor with a source of its other dimensions in the place of a range of the axis.
Tensor WithPart(const Call& call, Tensor self, Tensor source, uint32_t axis, const Range& range) {
  Graph& graph = call.graph();
  if (range.size == 0) return self;
  if (range.step == 1 || range.size == 1) {
    const Tensor start = graph.Constant({v1::INT32, {1}}, static_cast<double>(range.begin));
    return graph.DynamicUpdate(self, source, start, {axis});
  }
  const Term number(graph, graph.Iota({v1::INT32, {range.size}}, 0));
  const Term places = number * static_cast<double>(range.step) + static_cast<double>(range.begin);
  return graph.Scatter(v1::Scatter::SET, self, places, source, axis);
}

Outputs SliceScatter(const Call& call) {
  const Tensor self = call.tensor(0);
  Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 2, dims));
  VPOD_ASSIGN_OR_RETURN(const Range range, RangeOf(call, 3, dims[axis]));
  dims[axis] = range.size;
  VPOD_ASSIGN_OR_RETURN(const Tensor source, SourceOf(call, dims));
  return Tensors{WithPart(call, self, source, axis, range)};
}

Outputs SelectScatter(const Call& call) {
  const Tensor self = call.tensor(0);
  Dims dims = call.DimsOf(self);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, RealAxis(call, 2, dims));
  VPOD_ASSIGN_OR_RETURN(const int64_t at, Place(call, call.integer(3), dims[axis]));
  Dims part = dims;
  part.erase(part.begin() + axis);
  VPOD_ASSIGN_OR_RETURN(const Tensor source, SourceOf(call, part));
  dims[axis] = 1;
  return Tensors{
      WithPart(call, self, call.graph().Reshape(source, dims), axis, {.begin = at, .size = 1})};
}

Outputs AsStridedScatter(const Call& call) {
  Graph& graph = call.graph();
  const TensorType type = call.TypeOf(call.tensor(0));
  VPOD_ASSIGN_OR_RETURN(const Strided of, StridedFrom(call, 2, type.elements()));
  VPOD_ASSIGN_OR_RETURN(const Tensor source, SourceOf(call, of.size));
  Tensor flat = graph.Reshape(call.tensor(0), {type.elements()});
  if (of.is_dense) {
    flat = WithPart(call, flat, graph.Reshape(source, {of.count()}), 0,
                    {.begin = of.offset, .size = of.count()});
  } else {
    flat = graph.Scatter(v1::Scatter::SET, flat, of.Places(call), source, 0);
  }
  return Tensors{graph.Reshape(flat, type.dims)};
}

// --- Gradients ---

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

std::vector<Row> PartRows() {
  return {
      {"select.int", "tensor, int, int", Select},
      {"select_backward.default", "tensor, ints, int, int", SelectBackward},
      {"slice.Tensor", "tensor, int=0, int?=None, int?=None, int=1", Slice},
      {"slice_backward.default", "tensor, ints, int, int, int, int", SliceBackward},
      {"split.Tensor", "tensor, int, int=0", Split},
      {"unsafe_split.Tensor", "tensor, int, int=0", Split},
      {"split_with_sizes.default", "tensor, ints, int=0", SplitWithSizes},
      {"unbind.int", "tensor, int=0", Unbind},
      {"as_strided.default", "tensor, ints, ints, int?=None", AsStrided},
      {"unfold.default", "tensor, int, int, int", Unfold},
      {"slice_scatter.default", "tensor, tensor, int=0, int?=None, int?=None, int=1", SliceScatter},
      {"select_scatter.default", "tensor, tensor, int, int", SelectScatter},
      {"as_strided_scatter.default", "tensor, tensor, ints, ints, int?=None", AsStridedScatter},
  };
}

}  // namespace vpod::aten
