// Writes by masks, and what the true elements of a mask are.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/aten/rows/indices.h"

namespace vpod::aten {

Term Ranks(const Call& call, Tensor mask) {
  Graph& graph = call.graph();
  const Tensor flags = graph.Cast(mask, v1::BOOL);
  const TensorType type = call.TypeOf(flags);
  const Tensor flat = graph.Reshape(graph.Cast(flags, v1::INT32), {type.elements()});
  const Tensor before = graph.Cumulate(v1::SUM, flat, 0, {.exclusive = true});
  return Where(call.term(flags), call.term(graph.Reshape(before, type.dims)), 0.0);
}

namespace {

absl::Status CheckCovers(const Call& call, Tensor mask, size_t first) {
  const Dims dims = call.DimsOf(call.tensor(0)), covered = call.DimsOf(mask);
  if (first + covered.size() <= dims.size() &&
      std::equal(covered.begin(), covered.end(), dims.begin() + first))
    return absl::OkStatus();
  return call.Refuse(absl::StrCat("the mask ", call.TypeOf(mask).ToString(),
                                  " does not fit dimension ", first, " of ",
                                  call.TypeOf(call.tensor(0)).ToString()));
}

bool IsGivenMask(const Call& call, Tensor index) {
  return index.valid() && IsMask(call.TypeOf(index).type);
}

// The length that the indices beside the masks have in their last dimension, in which the true
// elements are counted; none if it is 1 in all of them.
std::optional<int64_t> LengthBeside(const Call& call) {
  for (Tensor index : call.tensors(1)) {
    if (!index.valid() || IsGivenMask(call, index)) continue;
    const Dims dims = call.DimsOf(index);
    if (!dims.empty() && dims.back() != 1) return dims.back();
  }
  return std::nullopt;
}

// The same length as the values have it. Behind it they have the dimensions of self that no index
// chooses, or those of them behind the indices, if these are neighbours.
std::optional<int64_t> LengthOfValues(const Call& call, const WithoutMasks& given) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < given.indices.size(); ++i)
    if (given.indices[i].valid()) chosen.push_back(i);
  const bool together = chosen.back() - chosen.front() + 1 == chosen.size();
  const size_t behind = given.dims.size() - (together ? chosen.back() + 1 : chosen.size());
  const Dims values = call.DimsOf(call.tensor(2));
  if (values.size() <= behind) return std::nullopt;
  const int64_t length = values[values.size() - 1 - behind];
  return length == 1 ? std::nullopt : std::optional(length);
}

// The dimensions of self, where the dimensions that a mask covers count as one.
absl::StatusOr<Dims> JoinedDims(const Call& call) {
  const TensorType self = call.TypeOf(call.tensor(0));
  Dims joined;
  size_t first = 0;
  for (Tensor index : call.tensors(1)) {
    const bool is_mask = IsGivenMask(call, index);
    if (is_mask) VPOD_RETURN_IF_ERROR(CheckCovers(call, index, first));
    const size_t covered = is_mask ? call.DimsOf(index).size() : 1;
    if (first + covered > self.dims.size())
      return call.Refuse(absl::StrCat("has more indices than dimensions of ", self.ToString()));
    joined.push_back(is_mask ? call.TypeOf(index).elements() : self.dims[first]);
    first += covered;
  }
  joined.insert(joined.end(), self.dims.begin() + first, self.dims.end());
  return joined;
}

// The places of the first `length` true elements, INT32. If there are fewer, the rest have the
// number of elements, which lies past the last place; if there are more, the run fails. With
// `repeats` a single true element is at every number.
Tensor PlacesOfTrue(const Call& call, Tensor mask, int64_t length, bool repeats) {
  Graph& graph = call.graph();
  const int64_t elements = call.TypeOf(mask).elements();
  const Tensor flags = graph.Reshape(graph.Cast(mask, v1::BOOL), {elements});
  // Place 0 takes all that are false.
  const Tensor numbers = Where(call.term(flags), Ranks(call, flags) + 1.0, 0.0);
  const Tensor none = graph.Constant({v1::INT32, {length + 1}}, static_cast<double>(elements));
  const Tensor all =
      graph.Scatter(v1::Scatter::SET, none, numbers, graph.Iota({v1::INT32, {elements}}, 0), 0);
  const Tensor places = graph.Slice(all, {1}, {length});
  if (!repeats) return places;
  const Term count = call.term(graph.Reduce(v1::SUM, graph.Cast(flags, v1::INT32), {0}));
  return Where(count == 1.0, call.term(graph.Slice(all, {1}, {1})), call.term(places));
}

}  // namespace

absl::StatusOr<WithoutMasks> ReplaceMasks(const Call& call) {
  WithoutMasks given{.indices = call.tensors(1)};
  VPOD_ASSIGN_OR_RETURN(given.dims, JoinedDims(call));
  std::vector<size_t> masks;
  for (size_t i = 0; i < given.indices.size(); ++i)
    if (IsGivenMask(call, given.indices[i])) masks.push_back(i);
  if (masks.empty()) return given;
  const std::optional<int64_t> beside = LengthBeside(call),
                               known = beside ? beside : LengthOfValues(call, given);
  // No more elements than the smallest mask has can be true in each of them.
  int64_t length = known.value_or(given.dims[masks[0]]);
  for (size_t i : masks)
    if (!known) length = std::min(length, given.dims[i]);
  for (size_t i : masks) {
    Tensor& index = given.indices[i];
    index = PlacesOfTrue(call, index, length, /*repeats=*/beside.has_value());
    if (known) continue;
    const Term is_none = call.term(index) == static_cast<double>(given.dims[i]);
    given.unused =
        given.unused.valid() ? is_none.Apply(v1::LOGICAL_AND, call.term(given.unused)) : is_none;
  }
  VPOD_RETURN_IF_ERROR(call.graph().status());
  return given;
}

Outputs PutWhere(const Call& call, size_t first) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0), mask = call.tensors(1)[first];
  VPOD_RETURN_IF_ERROR(CheckCovers(call, mask, first));
  const Dims dims = call.DimsOf(self), covered = call.DimsOf(mask);
  const size_t behind = dims.size() - first - covered.size();
  Tensor values = graph.Cast(call.tensor(2), call.TypeOf(self).type);
  Dims shape = call.DimsOf(values);
  if (shape.size() > behind) {
    const auto axis = static_cast<uint32_t>(shape.size() - behind - 1);
    if (shape[axis] == 1) {
      shape.erase(shape.begin() + axis);
      shape.insert(shape.begin() + axis, covered.size(), 1);
      values = graph.Reshape(values, shape);
    } else {
      values = graph.Gather(values, Ranks(call, mask), axis);
    }
  }
  Dims places = covered;
  places.insert(places.end(), behind, 1);
  const Term condition = call.term(graph.Reshape(graph.Cast(mask, v1::BOOL), places));
  const Tensor written = call.flag(3) ? graph.Add(self, values) : values;
  const Tensor result = Where(condition, call.term(written), call.term(self));
  VPOD_RETURN_IF_ERROR(graph.status());
  if (call.DimsOf(result) == dims) return Tensors{result};
  return call.Refuse(absl::StrCat("the values ", call.TypeOf(call.tensor(2)).ToString(),
                                  " do not fit ", call.TypeOf(self).ToString()));
}

}  // namespace vpod::aten
