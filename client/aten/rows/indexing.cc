// Operators that choose elements by index, and writes by indices of several dimensions.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/aten/rows/indices.h"

namespace vpod::aten {

namespace {

absl::Status DynamicShape() {
  return absl::UnimplementedError("a BOOL index has a result whose shape depends on its elements");
}

}  // namespace

absl::Status CheckIndices(const Call& call, Tensor indices) {
  const TensorType type = call.TypeOf(indices);
  if (type.type == v1::BOOL) return DynamicShape();
  if (program::IsInteger(type.type)) return absl::OkStatus();
  return call.Refuse(absl::StrCat("the indices are ", type.ToString(), ", must be integers"));
}

Term FromStart(const Call& call, Tensor indices, int64_t dim) {
  const Term index = call.term(call.graph().Cast(indices, v1::INT32));
  return Where(index.Apply(v1::LESS, index.Number(0)), index + static_cast<double>(dim), index);
}

absl::StatusOr<Tensor> Beginning(const Call& call, Tensor tensor, const Dims& indices,
                                 uint32_t axis, bool all) {
  const Dims dims = call.DimsOf(tensor);
  Dims size = indices;
  if (dims.size() != size.size())
    return call.Refuse("the indices must have as many dimensions as what they are for");
  if (!all) size[axis] = dims[axis];
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i] > dims[i]) {
      return call.Refuse(absl::StrCat("the indices [", absl::StrJoin(indices, ","),
                                      "] must not be larger than ",
                                      call.TypeOf(tensor).ToString()));
    }
  }
  return size == dims ? tensor : call.graph().Slice(tensor, Dims(dims.size(), 0), size);
}

namespace {

// --- Indices of several dimensions ---

// self[indices]: the dimensions that are indexed go to the front and become one.
struct Indexed {
  std::vector<uint32_t> order;  // of self's dimensions: those that are indexed, then the others
  Dims permuted;                // self's dimensions in this order
  Dims flat;                    // [product of those that are indexed, others…]
  Tensor places;                // in the first of them
  Dims index;                   // dimensions of the indices
  std::vector<uint32_t> back;   // from [index…, others…] to the order of the result
  Dims result;                  // dimensions of the result
};

absl::StatusOr<Indexed> IndexedBy(const Call& call, const TensorType& self,
                                  const Tensors& indices) {
  Graph& graph = call.graph();
  if (indices.size() > self.dims.size()) {
    return call.Refuse(absl::StrCat("has ", indices.size(), " indices for ", self.ToString()));
  }
  Indexed of;
  std::vector<uint32_t> chosen, others;
  for (uint32_t i = 0; i < self.dims.size(); ++i)
    (i < indices.size() && indices[i].valid() ? chosen : others).push_back(i);
  if (chosen.empty()) return call.Refuse("needs at least one index");
  of.order = chosen;
  of.order.insert(of.order.end(), others.begin(), others.end());
  for (uint32_t axis : of.order) of.permuted.push_back(self.dims[axis]);
  int64_t count = 1;
  Term places = call.term(call.Scalar(v1::INT32, 0));
  Term outside = call.term(call.Scalar(v1::BOOL, 0));
  for (uint32_t axis : chosen) {
    if (IsMask(call.TypeOf(indices[axis]).type)) return DynamicShape();
    VPOD_RETURN_IF_ERROR(CheckIndices(call, indices[axis]));
    const double dim = static_cast<double>(self.dims[axis]);
    const Term index = FromStart(call, indices[axis], self.dims[axis]);
    places = places * dim + index;
    outside = outside.Apply(v1::LOGICAL_OR, index.Apply(v1::LESS, index.Number(0)))
                  .Apply(v1::LOGICAL_OR, index > dim - 1);
    count *= self.dims[axis];
  }
  // An index that is too large must not reach the next row.
  if (chosen.size() > 1) places = Where(outside, -1.0, places);
  VPOD_RETURN_IF_ERROR(graph.status());
  of.places = places;
  of.index = call.DimsOf(places);
  of.flat = {count};
  for (uint32_t axis : others) of.flat.push_back(self.dims[axis]);
  // Neighbours among the indexed dimensions leave the result in their place, others at the front.
  const bool together = chosen.back() - chosen.front() + 1 == chosen.size();
  const size_t before = together ? chosen.front() : 0, rank = of.index.size();
  for (uint32_t i = 0; i < before; ++i) of.back.push_back(static_cast<uint32_t>(rank) + i);
  for (uint32_t i = 0; i < rank; ++i) of.back.push_back(i);
  for (size_t i = before; i < others.size(); ++i)
    of.back.push_back(static_cast<uint32_t>(rank + i));
  Dims gathered = of.index;
  gathered.insert(gathered.end(), of.flat.begin() + 1, of.flat.end());
  for (uint32_t axis : of.back) of.result.push_back(gathered[axis]);
  return of;
}

std::vector<uint32_t> Inverse(const std::vector<uint32_t>& order) {
  std::vector<uint32_t> inverse(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) inverse[order[i]] = i;
  return inverse;
}

Tensor Permuted(const Call& call, Tensor tensor, const std::vector<uint32_t>& order) {
  return order.empty() ? tensor : call.graph().Transpose(tensor, order);
}

Outputs Index(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  VPOD_ASSIGN_OR_RETURN(const Indexed of, IndexedBy(call, call.TypeOf(self), call.tensors(1)));
  const Tensor flat = graph.Reshape(Permuted(call, self, of.order), of.flat);
  return Tensors{Permuted(call, graph.Gather(flat, of.places, 0), of.back)};
}

// (self, indices, values, accumulate)
Outputs IndexPut(const Call& call) {
  Graph& graph = call.graph();
  const Tensor self = call.tensor(0);
  const Tensors& indices = call.tensors(1);
  const auto is_given = [](Tensor index) { return index.valid(); };
  const auto first = std::find_if(indices.begin(), indices.end(), is_given);
  if (first != indices.end() && IsMask(call.TypeOf(*first).type) &&
      std::none_of(first + 1, indices.end(), is_given)) {
    return PutWhere(call, static_cast<size_t>(first - indices.begin()));
  }
  VPOD_ASSIGN_OR_RETURN(const WithoutMasks given, ReplaceMasks(call));
  VPOD_ASSIGN_OR_RETURN(const Indexed of,
                        IndexedBy(call, {call.TypeOf(self).type, given.dims}, given.indices));
  Tensor rows = graph.Reshape(Permuted(call, graph.Reshape(self, given.dims), of.order), of.flat);
  Term places = call.term(of.places);
  if (given.unused.valid()) {
    const Dims none(of.flat.size(), 0);
    Dims spare = none;
    spare[0] = 1;
    rows = graph.Pad(rows, none, spare, 0);
    places = Where(call.term(given.unused), static_cast<double>(of.flat[0]), places);
  }
  const Tensor values = graph.Expand(call.tensor(2), of.result);
  Tensor written = graph.Scatter(call.flag(3) ? v1::Scatter::ADD : v1::Scatter::SET, rows, places,
                                 Permuted(call, values, Inverse(of.back)), 0);
  if (given.unused.valid()) written = graph.Slice(written, Dims(of.flat.size(), 0), of.flat);
  const Tensor result = Permuted(call, graph.Reshape(written, of.permuted), Inverse(of.order));
  return Tensors{graph.Reshape(result, call.DimsOf(self))};
}

// --- Rows ---

// (weight, indices, padding, scale by frequency, sparse)
Outputs Embedding(const Call& call) {
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(1)));
  const Tensor indices = call.graph().Cast(call.tensor(1), v1::INT32);
  return Tensors{call.graph().Gather(call.tensor(0), indices, 0)};
}

// (output gradient, indices, rows, padding, scale by frequency): rows add up; that of the padding
// takes none.
Outputs EmbeddingBackward(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(1)));
  const Tensor indices = graph.Cast(call.tensor(1), v1::INT32);
  const TensorType type = call.TypeOf(call.tensor(0));
  if (type.dims.empty()) return call.Refuse("the gradient must have rows");
  Term dy = call.Wide(0);
  Dims column = call.DimsOf(indices);
  column.push_back(1);
  const auto per_row = [&](Tensor tensor) { return call.term(graph.Reshape(tensor, column)); };
  if (call.integer(3) >= 0) {
    const Term padding = per_row(indices) == static_cast<double>(call.integer(3));
    dy = Where(padding, 0.0, dy);
  }
  if (call.flag(4)) {
    const Tensor ones = graph.Constant({v1::FLOAT32, call.DimsOf(indices)}, 1);
    const Tensor none = graph.Constant({v1::FLOAT32, {call.integer(2)}}, 0);
    const Tensor counts = graph.Scatter(v1::Scatter::ADD, none, indices, ones, 0);
    dy = dy / per_row(graph.Gather(counts, indices, 0));
  }
  const Tensor zeros = graph.Constant({v1::FLOAT32, {call.integer(2), type.dims.back()}}, 0);
  return Tensors{graph.Cast(graph.Scatter(v1::Scatter::ADD, zeros, indices, dy, 0), type.type)};
}

// (self, indices): elements by their number in row-major order.
Outputs Take(const Call& call) {
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(1)));
  const int64_t elements = call.TypeOf(call.tensor(0)).elements();
  const Tensor flat = call.graph().Reshape(call.tensor(0), {elements});
  return Tensors{call.graph().Gather(flat, FromStart(call, call.tensor(1), elements), 0)};
}

// (self, boundaries, int32, right): how many of the ascending boundaries are below each element, or
// equal to it with `right`. Not-a-number is above all of them.
Outputs Bucketize(const Call& call) {
  Graph& graph = call.graph();
  const TensorType boundaries = call.TypeOf(call.tensor(1));
  if (boundaries.rank() != 1)
    return call.Refuse(
        absl::StrCat("the boundaries are ", boundaries.ToString(), ", must be a vector"));
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  Dims dims = call.DimsOf(operands.first);
  const auto last = static_cast<uint32_t>(dims.size());
  dims.push_back(1);
  const Term elements = call.term(graph.Reshape(operands.first, dims));
  const Term is_above =
      operands.second.Apply(call.flag(3) ? v1::GREATER : v1::GREATER_EQUAL, elements);
  const Tensor counted = graph.Cast(is_above.Apply(v1::LOGICAL_NOT), v1::INT32);
  return Tensors{graph.Reduce(v1::SUM, counted, {last})};
}

// (self, dimension, indices)
Outputs IndexSelect(const Call& call) {
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(2)));
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis,
                        call.Axis(call.integer(1), call.DimsOf(call.tensor(0)).size()));
  const Tensor indices = call.graph().Cast(call.tensor(2), v1::INT32);
  return Tensors{call.graph().Gather(call.tensor(0), indices, axis)};
}

// --- Along a dimension ---

// (self, dimension, indices)
Outputs Gather(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckIndices(call, call.tensor(2)));
  const Tensor indices = graph.Cast(call.tensor(2), v1::INT32);
  const Dims dims = call.DimsOf(indices);
  if (dims.empty()) return Tensors{call.tensor(0)};
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(1), dims.size()));
  VPOD_ASSIGN_OR_RETURN(const Tensor self, Beginning(call, call.tensor(0), dims, axis, false));
  return Tensors{graph.Gather(self, indices, axis, /*along=*/true)};
}

}  // namespace

std::vector<Row> IndexRows() {
  return {
      {"index.Tensor", "tensor, tensors", Index},
      {"index_put.default", "tensor, tensors, tensor, bool=false", IndexPut},
      {"embedding.default", "tensor, tensor, int=-1, bool=false, bool=false", Embedding},
      {"embedding_dense_backward.default", "tensor, tensor, int, int, bool", EmbeddingBackward},
      {"take.default", "tensor, tensor", Take},
      {"bucketize.Tensor", "tensor, tensor, bool=false, bool=false", Bucketize},
      {"bucketize.Scalar", "number, tensor, bool=false, bool=false", Bucketize},
      {"index_select.default", "tensor, int, tensor", IndexSelect},
      {"gather.default", "tensor, int, tensor, bool=false", Gather},
  };
}

}  // namespace vpod::aten
