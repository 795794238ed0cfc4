// Diagonals of matrices, and matrices of which a diagonal is given.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

// Elements of a matrix whose rows lie one after the other.
struct Diagonal {
  int64_t begin = 0, count = 0, step = 1;

  // The place of each among the elements of the matrix, INT32 [count].
  Term Places(Graph& graph) const {
    const Term number(graph, graph.Iota({v1::INT32, {count}}, 0));
    return number * static_cast<double>(step) + static_cast<double>(begin);
  }
};

// The diagonal that is `offset` above the main one, or below it if it is negative.
Diagonal DiagonalOf(int64_t rows, int64_t columns, int64_t offset) {
  offset = std::clamp(offset, -rows, columns);
  const int64_t row = std::max<int64_t>(-offset, 0), column = std::max<int64_t>(offset, 0);
  const int64_t count = std::min(rows - row, columns - column);
  if (count <= 0) return {};
  return {.begin = row * columns + column, .count = count, .step = columns + 1};
}

// Two dimensions of a tensor as rows and columns of matrices.
struct Matrices {
  std::vector<uint32_t> order;  // of the dimensions: the others, rows, columns
  Dims others;                  // dimensions but the rows and columns
  int64_t rows = 0, columns = 0;
  Diagonal diagonal;

  Dims permuted() const { return With({rows, columns}); }
  Dims flat() const { return With({rows * columns}); }
  Dims of_diagonal() const { return With({diagonal.count}); }
  uint32_t axis() const { return static_cast<uint32_t>(others.size()); }

 private:
  Dims With(const Dims& last) const {
    Dims dims = others;
    dims.insert(dims.end(), last.begin(), last.end());
    return dims;
  }
};

// Offset, and the dimensions of rows and columns, from argument i on.
absl::StatusOr<Matrices> MatricesOf(const Call& call, const Dims& dims, size_t i) {
  if (dims.size() < 2) return call.Refuse("the tensor must have 2 dimensions or more");
  VPOD_ASSIGN_OR_RETURN(const uint32_t row, call.Axis(call.integer(i + 1), dims.size()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t column, call.Axis(call.integer(i + 2), dims.size()));
  if (row == column) return call.Refuse("the two dimensions must be different");
  Matrices of;
  for (uint32_t axis = 0; axis < dims.size(); ++axis) {
    if (axis == row || axis == column) continue;
    of.order.push_back(axis);
    of.others.push_back(dims[axis]);
  }
  of.order.insert(of.order.end(), {row, column});
  of.rows = dims[row];
  of.columns = dims[column];
  of.diagonal = DiagonalOf(of.rows, of.columns, call.integer(i));
  return of;
}

Tensor Flat(const Call& call, Tensor self, const Matrices& of) {
  return call.graph().Reshape(call.graph().Transpose(self, of.order), of.flat());
}

// The tensor of which this is the flat form.
Tensor Restored(const Call& call, Tensor flat, const Matrices& of) {
  std::vector<uint32_t> inverse(of.order.size());
  for (uint32_t i = 0; i < of.order.size(); ++i) inverse[of.order[i]] = i;
  return call.graph().Transpose(call.graph().Reshape(flat, of.permuted()), inverse);
}

Tensor Taken(const Call& call, Tensor self, const Matrices& of) {
  Dims begin(of.others.size() + 1, 0), step(begin.size(), 1);
  begin.back() = of.diagonal.begin;
  step.back() = of.diagonal.step;
  return call.graph().Slice(Flat(call, self, of), begin, of.of_diagonal(), step);
}

Tensor Written(const Call& call, Tensor flat, Tensor diagonal, const Matrices& of) {
  if (of.diagonal.count == 0) return flat;
  return call.graph().Scatter(v1::Scatter::SET, flat, of.diagonal.Places(call.graph()), diagonal,
                              of.axis());
}

// (self, offset, dimension of rows, dimension of columns)
Outputs TakeDiagonal(const Call& call) {
  const Tensor self = call.tensor(0);
  VPOD_ASSIGN_OR_RETURN(const Matrices of, MatricesOf(call, call.DimsOf(self), 1));
  return Tensors{Taken(call, self, of)};
}

// (self, source, offset, dimension of rows, dimension of columns)
Outputs DiagonalScatter(const Call& call) {
  const Tensor self = call.tensor(0), source = call.tensor(1);
  VPOD_ASSIGN_OR_RETURN(const Matrices of, MatricesOf(call, call.DimsOf(self), 2));
  if (call.DimsOf(source) != of.of_diagonal()) {
    return call.Refuse(absl::StrCat("the source is ", call.TypeOf(source).ToString(),
                                    ", must have the dimensions of the diagonal"));
  }
  const Tensor diagonal = call.graph().Cast(source, call.TypeOf(self).type);
  return Tensors{Restored(call, Written(call, Flat(call, self, of), diagonal, of), of)};
}

// Matrices of zeros, with the last dimension of a tensor as this diagonal.
Tensor Embedded(const Call& call, Tensor diagonal, const Matrices& of) {
  const Tensor zeros = call.graph().Constant({call.TypeOf(diagonal).type, of.flat()}, 0);
  return Restored(call, Written(call, zeros, diagonal, of), of);
}

// How many rows there are beside a diagonal that is argument i away from the main one.
absl::StatusOr<int64_t> Beside(const Call& call, size_t i) {
  const int64_t offset = call.integer(i);
  if (offset < -program::kMaxElements || offset > program::kMaxElements)
    return call.Refuse(absl::StrCat("offset ", offset, " is too large"));
  return std::abs(offset);
}

// (self, offset, dimension of rows, dimension of columns) of the result
Outputs DiagEmbed(const Call& call) {
  const Tensor self = call.tensor(0);
  Dims dims = call.DimsOf(self);
  if (dims.empty()) return call.Refuse("a scalar cannot be a diagonal");
  VPOD_ASSIGN_OR_RETURN(const uint32_t row, call.Axis(call.integer(2), dims.size() + 1));
  VPOD_ASSIGN_OR_RETURN(const uint32_t column, call.Axis(call.integer(3), dims.size() + 1));
  VPOD_ASSIGN_OR_RETURN(const int64_t beside, Beside(call, 1));
  const int64_t length = dims.back() + beside;
  dims.pop_back();
  for (uint32_t axis : {std::min(row, column), std::max(row, column)})
    dims.insert(dims.begin() + std::min<size_t>(axis, dims.size()), length);
  VPOD_ASSIGN_OR_RETURN(const Matrices of, MatricesOf(call, dims, 1));
  return Tensors{Embedded(call, self, of)};
}

// (self, offset): the diagonal of a matrix, or the matrix of a diagonal.
Outputs Diag(const Call& call) {
  const Tensor self = call.tensor(0);
  const Dims dims = call.DimsOf(self);
  Matrices of{.order = {0, 1}};
  if (dims.size() == 2) {
    of.rows = dims[0];
    of.columns = dims[1];
  } else if (dims.size() == 1) {
    VPOD_ASSIGN_OR_RETURN(const int64_t beside, Beside(call, 1));
    of.rows = of.columns = dims[0] + beside;
  } else {
    return call.Refuse(
        absl::StrCat(call.TypeOf(self).ToString(), " is neither a vector nor a matrix"));
  }
  of.diagonal = DiagonalOf(of.rows, of.columns, call.integer(1));
  return Tensors{dims.size() == 2 ? Taken(call, self, of) : Embedded(call, self, of)};
}

// Ones on the diagonal; `type` is the argument that says which.
Outputs Identity(const Call& call, int64_t rows, int64_t columns, size_t type) {
  VPOD_ASSIGN_OR_RETURN(const v1::DataType chosen, call.type(type, v1::FLOAT32));
  if (rows < 0 || columns < 0)
    return call.Refuse("the numbers of rows and columns must be 0 or more");
  Graph& graph = call.graph();
  const TensorType places{v1::INT32, {rows, columns}};
  const Term row(graph, graph.Iota(places, 0)), column(graph, graph.Iota(places, 1));
  return Tensors{graph.Cast(row.Apply(v1::EQUAL, column), chosen)};
}

Outputs Eye(const Call& call) { return Identity(call, call.integer(0), call.integer(0), 1); }
Outputs EyeOfSize(const Call& call) { return Identity(call, call.integer(0), call.integer(1), 2); }

}  // namespace

std::vector<Row> DiagonalRows() {
  return {
      {"diagonal.default", "tensor, int=0, int=0, int=1", TakeDiagonal},
      {"diagonal_scatter.default", "tensor, tensor, int=0, int=0, int=1", DiagonalScatter},
      {"diag_embed.default", "tensor, int=0, int=-2, int=-1", DiagEmbed},
      {"diag.default", "tensor, int=0", Diag},
      {"eye.default", WithOptions("int"), Eye},
      {"eye.m", WithOptions("int, int"), EyeOfSize},
  };
}

}  // namespace vpod::aten
