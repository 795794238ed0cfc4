// Joins, padding, shifts, turns, and triangles of matrices.
#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

Outputs Cat(const Call& call) {
  Graph& graph = call.graph();
  Tensors parts;
  v1::DataType type = v1::DATA_TYPE_UNSPECIFIED;
  for (Tensor part : call.tensors(0)) {
    if (!part.valid()) return call.Refuse("every part must be a tensor");
    const TensorType of = call.TypeOf(part);
    type = type == v1::DATA_TYPE_UNSPECIFIED ? of.type : PromotedType(type, of.type);
    if (of.dims != Dims{0}) parts.push_back(part);  // of any shape, as PyTorch has it
  }
  if (parts.empty()) {
    if (call.tensors(0).empty()) return call.Refuse("needs at least one tensor");
    return Tensors{graph.Constant({type, {0}}, 0)};
  }
  for (Tensor& part : parts) part = graph.Cast(part, type);
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis,
                        call.Axis(call.integer(1), call.DimsOf(parts[0]).size()));
  return Tensors{parts.size() == 1 ? parts[0] : graph.Concat(parts, axis)};
}

Outputs Stack(const Call& call) {
  Graph& graph = call.graph();
  Tensors parts = call.tensors(0);
  if (parts.empty()) return call.Refuse("needs at least one tensor");
  for (Tensor& part : parts) {
    if (!part.valid()) return call.Refuse("every part must be a tensor");
    Dims dims = call.DimsOf(part);
    VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size() + 1));
    dims.insert(dims.begin() + axis, 1);
    part = graph.Reshape(part, dims);
  }
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis,
                        call.Axis(call.integer(1), call.DimsOf(parts[0]).size()));
  return Tensors{graph.Concat(parts, axis)};
}

// Widths are those of the last dimension first; negative ones cut off.
Outputs ConstantPad(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  const Dims widths = call.ints(1);
  Dims size = call.DimsOf(self);
  const size_t rank = size.size();
  if (widths.size() % 2 != 0 || widths.size() > 2 * rank) {
    return call.Refuse(absl::StrCat("has ", widths.size(), " widths for ", rank,
                                    " dimensions, must have two for each of the last"));
  }
  Dims begin(rank, 0), before(rank, 0), after(rank, 0);
  for (size_t i = 0; i < widths.size() / 2; ++i) {
    const size_t axis = rank - 1 - i;
    const int64_t low = widths[2 * i], high = widths[2 * i + 1];
    begin[axis] = std::max<int64_t>(-low, 0);
    size[axis] -= begin[axis] + std::max<int64_t>(-high, 0);
    before[axis] = std::max<int64_t>(low, 0);
    after[axis] = std::max<int64_t>(high, 0);
    if (size[axis] < 0)
      return call.Refuse(absl::StrCat("widths ", low, " and ", high, " cut off too much"));
  }
  return Tensors{graph.Pad(graph.Slice(self, begin, size), before, after, call.number(2))};
}

// The last dimensions, as many as there are pairs of widths, with elements of their own around
// them: `place` gives the place in a dimension that an element around it or in it repeats.
template <size_t kRank>
Outputs PadBy(const Call& call, Dims (*places)(int64_t dim, int64_t low, int64_t high)) {
  Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self), widths = call.ints(1);
  if (widths.size() != 2 * kRank || dims.size() < kRank) {
    return call.Refuse(absl::StrCat("has ", widths.size(), " widths for ", dims.size(),
                                    " dimensions, must have ", 2 * kRank, " for ", kRank,
                                    " or more"));
  }
  for (size_t i = 0; i < kRank; ++i) {
    const size_t axis = dims.size() - 1 - i;
    const int64_t low = widths[2 * i], high = widths[2 * i + 1];
    if (low == 0 && high == 0) continue;
    const Dims chosen = places(dims[axis], low, high);
    if (chosen.empty()) {
      return call.Refuse(absl::StrCat("widths ", low, " and ", high, " do not fit dimension ", axis,
                                      " of ", call.TypeOf(self).ToString()));
    }
    const std::vector<int32_t> elements(chosen.begin(), chosen.end());
    const Tensor indices = call.graph().Constant(
        {v1::INT32, {static_cast<int64_t>(chosen.size())}},
        std::string(reinterpret_cast<const char*>(elements.data()), 4 * elements.size()));
    self = call.graph().Gather(self, indices, static_cast<uint32_t>(axis));
  }
  return Tensors{self};
}

// Empty where the widths do not fit.
Dims MirroredPlaces(int64_t dim, int64_t low, int64_t high) {
  Dims places;
  if (std::max(low, high) >= dim || std::min(low, high) <= -dim) return places;
  for (int64_t i = -low; i < dim + high; ++i)
    places.push_back(i < 0 ? -i : std::min(i, 2 * (dim - 1) - i));
  return places;
}

Dims NearestPlaces(int64_t dim, int64_t low, int64_t high) {
  Dims places;
  if (dim < 1 || std::max(low, high) > program::kMaxElements) return places;
  for (int64_t i = -low; i < dim + high; ++i) places.push_back(std::clamp<int64_t>(i, 0, dim - 1));
  return places;
}

template <size_t kRank>
Outputs ReflectionPad(const Call& call) {
  return PadBy<kRank>(call, MirroredPlaces);
}

template <size_t kRank>
Outputs ReplicationPad(const Call& call) {
  return PadBy<kRank>(call, NearestPlaces);
}

Tensor Rolled(const Call& call, Tensor self, uint32_t axis, int64_t shift) {
  const Dims dims = call.DimsOf(self);
  if (dims.empty() || dims[axis] == 0) return self;
  const int64_t dim = dims[axis], first = ((-shift) % dim + dim) % dim;
  if (first == 0) return self;
  Graph& graph = call.graph();
  Dims begin(dims.size(), 0), head = dims, tail = dims;
  head[axis] = first;
  tail[axis] = dim - first;
  const Tensor moved = graph.Slice(self, begin, head);
  begin[axis] = first;
  return graph.Concat({graph.Slice(self, begin, tail), moved}, axis);
}

Outputs Roll(const Call& call) {
  Graph& graph = call.graph();
  Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self), shifts = call.ints(1), axes = call.ints(2);
  if (axes.empty() && shifts.size() == 1) {
    const Tensor flat = graph.Reshape(self, {call.TypeOf(self).elements()});
    return Tensors{graph.Reshape(Rolled(call, flat, 0, shifts[0]), dims)};
  }
  if (axes.size() != shifts.size()) return call.Refuse("needs a shift for each dimension");
  for (size_t i = 0; i < axes.size(); ++i) {
    VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(axes[i], dims.size()));
    self = Rolled(call, self, axis, shifts[i]);
  }
  return Tensors{self};
}

template <bool kUpper>
Outputs Triangle(const Call& call) {
  Graph& graph = call.graph();
  const TensorType type = call.TypeOf(call.tensor(0));
  if (type.rank() < 2) return call.Refuse(absl::StrCat(type.ToString(), " is not a matrix"));
  const TensorType places{v1::INT32, Dims(type.dims.end() - 2, type.dims.end())};
  const Term row(graph, graph.Iota(places, 0)), column(graph, graph.Iota(places, 1));
  const Term diagonal = row + row.Number(static_cast<double>(call.integer(1)));
  const Term kept = column.Apply(kUpper ? v1::GREATER_EQUAL : v1::LESS_EQUAL, diagonal);
  return Tensors{Where(kept, call.term(call.tensor(0)), 0.0)};
}

Tensor Flipped(const Call& call, Tensor self, uint32_t axis) {
  const int64_t dim = call.DimsOf(self)[axis];
  const Term places(call.graph(), call.graph().Iota({v1::INT32, {dim}}, 0));
  return call.graph().Gather(self, static_cast<double>(dim - 1) - places, axis);
}

Outputs Flip(const Call& call) {
  Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  if (call.ints(1).empty() || dims.empty()) return Tensors{self};
  VPOD_ASSIGN_OR_RETURN(const auto axes, call.Axes(call.ints(1), dims.size()));
  for (uint32_t axis : axes) self = Flipped(call, self, axis);
  return Tensors{self};
}

// (self, quarter turns, dimensions): from the first dimension towards the second.
Outputs Rot90(const Call& call) {
  Tensor self = call.tensor(0);
  const Dims plane = call.ints(2).empty() ? Dims{0, 1} : call.ints(2);
  const size_t rank = call.DimsOf(self).size();
  if (plane.size() != 2 || rank < 2) return call.Refuse("needs two dimensions to turn");
  VPOD_ASSIGN_OR_RETURN(const uint32_t from, call.Axis(plane[0], rank));
  VPOD_ASSIGN_OR_RETURN(const uint32_t to, call.Axis(plane[1], rank));
  if (from == to) return call.Refuse("the two dimensions must be different");
  const int64_t turns = (call.integer(1) % 4 + 4) % 4;
  if (turns == 2) return Tensors{Flipped(call, Flipped(call, self, from), to)};
  if (turns == 1) self = Flipped(call, self, to);
  if (turns == 3) self = Flipped(call, self, from);
  if (turns == 0) return Tensors{self};
  std::vector<uint32_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[from], order[to]);
  return Tensors{call.graph().Transpose(self, order)};
}

// --- Channels and pixels of images [..., channels, height, width] ---

// The images with one dimension before the channels.
absl::StatusOr<Dims> ImagesOf(const Call& call) {
  const TensorType type = call.TypeOf(call.tensor(0));
  if (type.rank() < 3)
    return call.Refuse(absl::StrCat(type.ToString(), " must have 3 dimensions or more"));
  const auto channels = type.dims.end() - 3;
  Dims images = {std::accumulate(type.dims.begin(), channels, int64_t{1}, std::multiplies())};
  images.insert(images.end(), channels, type.dims.end());
  return images;
}

// The result, with the dimensions before the channels as they were.
Tensor AsImages(const Call& call, Tensor result, const Dims& image) {
  Dims dims = call.DimsOf(call.tensor(0));
  std::copy(image.begin(), image.end(), dims.end() - 3);
  return call.graph().Reshape(result, dims);
}

// (self, factor): channels become squares of pixels.
Outputs PixelShuffle(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Dims of, ImagesOf(call));
  const int64_t factor = call.integer(1);
  if (factor < 1 || factor > of[1] || of[1] % (factor * factor) != 0) {
    return call.Refuse(absl::StrCat("factor ", factor, " must be 1 or more, and its square divide ",
                                    of[1], " channels"));
  }
  const int64_t channels = of[1] / (factor * factor);
  const Tensor apart =
      graph.Reshape(call.tensor(0), {of[0], channels, factor, factor, of[2], of[3]});
  return Tensors{AsImages(call, graph.Transpose(apart, {0, 1, 4, 2, 5, 3}),
                          {channels, of[2] * factor, of[3] * factor})};
}

// (self, factor): squares of pixels become channels.
Outputs PixelUnshuffle(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const Dims of, ImagesOf(call));
  const int64_t factor = call.integer(1);
  if (factor < 1 || of[2] % factor != 0 || of[3] % factor != 0) {
    return call.Refuse(
        absl::StrCat("factor ", factor, " must be 1 or more, and divide ", of[2], " and ", of[3]));
  }
  const int64_t height = of[2] / factor, width = of[3] / factor;
  const Tensor apart = graph.Reshape(call.tensor(0), {of[0], of[1], height, factor, width, factor});
  return Tensors{AsImages(call, graph.Transpose(apart, {0, 1, 3, 5, 2, 4}),
                          {of[1] * factor * factor, height, width})};
}

// (self [n, channels, …], groups): one channel of each group in turn.
Outputs ChannelShuffle(const Call& call) {
  Graph& graph = call.graph();
  const TensorType type = call.TypeOf(call.tensor(0));
  if (type.rank() < 3)
    return call.Refuse(absl::StrCat(type.ToString(), " must have 3 dimensions or more"));
  const int64_t groups = call.integer(1), channels = type.dims[1];
  if (groups < 1 || channels % groups != 0) {
    return call.Refuse(
        absl::StrCat("groups ", groups, " must be 1 or more, and divide ", channels, " channels"));
  }
  const int64_t pixels =
      std::accumulate(type.dims.begin() + 2, type.dims.end(), int64_t{1}, std::multiplies());
  const Tensor apart =
      graph.Reshape(call.tensor(0), {type.dims[0], groups, channels / groups, pixels});
  return Tensors{graph.Reshape(graph.Transpose(apart, {0, 2, 1, 3}), type.dims)};
}

// Each dimension gets one before it, of its repetitions, and is then one with it: so many at a time
// that there is room, too, for one of all before them and one of all behind them.
Outputs Repeat(const Call& call) {
  constexpr size_t kAtOnce = (program::kMaxRank - 2) / 2;
  Graph& graph = call.graph();
  const Dims times = call.ints(1);
  Dims dims = call.DimsOf(call.tensor(0));
  if (times.size() < dims.size()) {
    return call.Refuse(absl::StrCat("has ", times.size(), " repetitions for ", dims.size(),
                                    " dimensions, must have one or more for each"));
  }
  for (int64_t each : times) {
    if (each < 0 || each > program::kMaxElements) {
      return call.Refuse(
          absl::StrCat("repetition ", each, " must be 0 to ", program::kMaxElements));
    }
  }
  dims.insert(dims.begin(), times.size() - dims.size(), 1);
  const auto joined = [&](size_t from, size_t to) {
    return std::accumulate(dims.begin() + from, dims.begin() + to, int64_t{1}, std::multiplies());
  };
  Tensor self = graph.Reshape(call.tensor(0), dims);
  for (size_t from = 0; from < dims.size() && graph.status().ok(); from += kAtOnce) {
    const size_t to = std::min(from + kAtOnce, dims.size());
    Dims apart = {joined(0, from)}, expanded = apart;
    for (size_t i = from; i < to; ++i) {
      apart.insert(apart.end(), {1, dims[i]});
      expanded.insert(expanded.end(), {times[i], dims[i]});
    }
    const int64_t behind = joined(to, dims.size());
    apart.push_back(behind);
    expanded.push_back(behind);
    for (size_t i = from; i < to; ++i) dims[i] *= times[i];
    self = graph.Reshape(graph.Expand(graph.Reshape(self, apart), expanded), dims);
  }
  return Tensors{self};
}

}  // namespace

std::vector<Row> MovementRows() {
  return {
      {"cat.default", "tensors, int=0", Cat},
      {"stack.default", "tensors, int=0", Stack},
      {"constant_pad_nd.default", "tensor, ints, number=0", ConstantPad},
      {"reflection_pad1d.default", "tensor, ints", ReflectionPad<1>},
      {"reflection_pad2d.default", "tensor, ints", ReflectionPad<2>},
      {"reflection_pad3d.default", "tensor, ints", ReflectionPad<3>},
      {"replication_pad1d.default", "tensor, ints", ReplicationPad<1>},
      {"replication_pad2d.default", "tensor, ints", ReplicationPad<2>},
      {"replication_pad3d.default", "tensor, ints", ReplicationPad<3>},
      {"roll.default", "tensor, ints, ints=[]", Roll},
      {"triu.default", "tensor, int=0", Triangle<true>},
      {"tril.default", "tensor, int=0", Triangle<false>},
      {"flip.default", "tensor, ints", Flip},
      {"rot90.default", "tensor, int=1, ints=[]", Rot90},
      {"pixel_shuffle.default", "tensor, int", PixelShuffle},
      {"pixel_unshuffle.default", "tensor, int", PixelUnshuffle},
      {"channel_shuffle.default", "tensor, int", ChannelShuffle},
      {"native_channel_shuffle.default", "tensor, int", ChannelShuffle},
      {"repeat.default", "tensor, ints", Repeat},
  };
}

}  // namespace vpod::aten
