// Products of matrices, and convolutions.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

absl::Status CheckRank(const Call& call, size_t i, size_t rank) {
  const TensorType type = call.TypeOf(call.tensor(i));
  if (type.dims.size() == rank) return absl::OkStatus();
  return call.Refuse(
      absl::StrCat("argument ", i, " is ", type.ToString(), ", must have ", rank, " dimensions"));
}

// Multiplies arguments i and i + 1, which must have so many dimensions.
absl::StatusOr<Term> Product(const Call& call, size_t i, size_t rank) {
  VPOD_RETURN_IF_ERROR(CheckRank(call, i, rank));
  VPOD_RETURN_IF_ERROR(CheckRank(call, i + 1, rank));
  return call.term(call.graph().MatMul(call.tensor(i), call.tensor(i + 1)));
}

template <size_t kRank>
Outputs Multiply(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Term product, Product(call, 0, kRank));
  return Tensors{product};
}

Term Scaled(Term term, double factor) { return factor == 1 ? term : term * factor; }

// (self, first, second, beta, alpha): beta × self + alpha × product. PyTorch does not read self if
// beta is 0.
Outputs Added(const Call& call, Term product) {
  product = Scaled(product, call.number(4));
  if (call.number(3) == 0) return Tensors{product};
  return Tensors{Scaled(call.term(call.tensor(0)), call.number(3)) + product};
}

template <size_t kRank>
Outputs AddProduct(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Term product, Product(call, 1, kRank));
  return Added(call, product);
}

// Multiplies argument i, a matrix, with the vector that follows it.
absl::StatusOr<Term> ByVector(const Call& call, size_t i) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckRank(call, i, 2));
  VPOD_RETURN_IF_ERROR(CheckRank(call, i + 1, 1));
  const Tensor column = graph.Reshape(call.tensor(i + 1), {call.DimsOf(call.tensor(i + 1))[0], 1});
  const Tensor product = graph.MatMul(call.tensor(i), column);
  return call.term(graph.Reshape(product, {call.DimsOf(call.tensor(i))[0]}));
}

Outputs Mv(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Term product, ByVector(call, 0));
  return Tensors{product};
}

Outputs AddMv(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Term product, ByVector(call, 1));
  return Added(call, product);
}

// The sum of the products of a batch is one product, over the batch and the inner dimension.
Outputs AddBatches(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckRank(call, 1, 3));
  VPOD_RETURN_IF_ERROR(CheckRank(call, 2, 3));
  const Dims first = call.DimsOf(call.tensor(1)), second = call.DimsOf(call.tensor(2));
  if (first[0] != second[0] || first[2] != second[1]) {
    return call.Refuse(absl::StrCat("batches ", call.TypeOf(call.tensor(1)).ToString(), " and ",
                                    call.TypeOf(call.tensor(2)).ToString(), " do not fit"));
  }
  const int64_t inner = first[0] * first[2];
  const Tensor left = graph.Reshape(graph.Transpose(call.tensor(1), {1, 0, 2}), {first[1], inner});
  const Tensor right = graph.Reshape(call.tensor(2), {inner, second[2]});
  return Added(call, call.term(graph.MatMul(left, right)));
}

Outputs Dot(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckRank(call, 0, 1));
  VPOD_RETURN_IF_ERROR(CheckRank(call, 1, 1));
  const Tensor row = graph.Reshape(call.tensor(0), {1, call.DimsOf(call.tensor(0))[0]});
  const Tensor column = graph.Reshape(call.tensor(1), {call.DimsOf(call.tensor(1))[0], 1});
  return Tensors{graph.Reshape(graph.MatMul(row, column), {})};
}

Outputs Linear(const Call& call) {
  const Term product =
      call.term(call.graph().MatMul(call.tensor(0), call.tensor(1), false, /*transpose_b=*/true));
  return Tensors{call.has(2) ? product + call.term(call.tensor(2)) : product};
}

// --- Products of three, and of vectors in space ---

// Argument i with a dimension of 1 at each of these places of the result.
absl::StatusOr<Term> Unsqueezed(const Call& call, size_t i, const Dims& places, size_t rank) {
  Dims dims = call.DimsOf(call.tensor(i));
  if (dims.size() + places.size() != rank) {
    return call.Refuse(absl::StrCat("argument ", i, " is ", call.TypeOf(call.tensor(i)).ToString(),
                                    ", must have ", rank - places.size(), " dimensions"));
  }
  if (!places.empty()) {
    VPOD_ASSIGN_OR_RETURN(const std::vector<uint32_t> axes, call.Axes(places, rank));
    for (uint32_t axis : axes) dims.insert(dims.begin() + axis, 1);
  }
  return call.term(call.graph().Reshape(call.Wide(i), dims));
}

// (first, second, third, dimensions to add to each, summed dimensions, a hint): the product of all
// three, summed up. That of a bilinear layer, [n, 1, a, 1] × [1, out, a, b] × [n, 1, 1, b], is a
// product of matrices: what the first and third give, by the weights.
Outputs Trilinear(const Call& call) {
  Graph& graph = call.graph();
  const size_t rank = call.DimsOf(call.tensor(0)).size() + call.ints(3).size();
  VPOD_ASSIGN_OR_RETURN(const Term first, Unsqueezed(call, 0, call.ints(3), rank));
  VPOD_ASSIGN_OR_RETURN(const Term second, Unsqueezed(call, 1, call.ints(4), rank));
  VPOD_ASSIGN_OR_RETURN(const Term third, Unsqueezed(call, 2, call.ints(5), rank));
  VPOD_ASSIGN_OR_RETURN(const auto summed, call.Axes(call.ints(6), rank));
  const Term outer = first * third;
  VPOD_RETURN_IF_ERROR(graph.status());
  const Dims rows = call.DimsOf(outer), weights = call.DimsOf(second);
  const bool is_layer = rank == 4 && summed == std::vector<uint32_t>{2, 3} && rows[1] == 1 &&
                        weights[0] == 1 && rows[2] == weights[2] && rows[3] == weights[3];
  if (!is_layer)
    return Tensors{call.Narrow(graph.Reduce(v1::SUM, outer * second, summed), call.tensor(0))};
  const int64_t inner = rows[2] * rows[3];
  const Tensor product = graph.MatMul(graph.Reshape(outer, {rows[0], inner}),
                                      graph.Reshape(second, {weights[1], inner}), false,
                                      /*transpose_b=*/true);
  return Tensors{call.Narrow(product, call.tensor(0))};
}

// (self, other, dimension): each element of a vector in space is the difference of products of the
// two that follow it.
Outputs Cross(const Call& call) {
  Graph& graph = call.graph();
  VPOD_ASSIGN_OR_RETURN(const auto operands, call.Promoted(0, 1));
  const size_t rank = call.DimsOf(operands.first).size();
  VPOD_ASSIGN_OR_RETURN(const uint32_t axis, call.Axis(call.integer(2), rank));
  for (const Tensor operand : {Tensor(operands.first), Tensor(operands.second)}) {
    const TensorType type = call.TypeOf(operand);
    if (type.dims.size() != rank || rank == 0 || type.dims[axis] != 3) {
      return call.Refuse(absl::StrCat(type.ToString(), " must have 3 elements along dimension ",
                                      axis, " of ", rank));
    }
  }
  const auto part = [&](Tensor tensor, int64_t place) {
    Dims begin(rank, 0), size = call.DimsOf(tensor);
    begin[axis] = place % 3;
    size[axis] = 1;
    return call.Wide(graph.Slice(tensor, begin, size));
  };
  const auto [a, b] = operands;
  Tensors parts;
  for (int64_t i = 0; i < 3; ++i)
    parts.push_back(part(a, i + 1) * part(b, i + 2) - part(a, i + 2) * part(b, i + 1));
  return Tensors{call.Narrow(graph.Concat(parts, axis), a)};
}

// --- Convolutions ---

struct Geometry {
  v1::SlidingWindow window;
  bool transposed = false;
  Dims output_padding;
  uint32_t groups = 1;
};

// Stride, padding, dilation, transposed, output padding and groups are from argument `first` on.
absl::StatusOr<Geometry> GeometryOf(const Call& call, size_t image, size_t weight, size_t first) {
  const Dims dims = call.DimsOf(call.tensor(weight));
  if (dims.size() < 3 || dims.size() > 5) {
    return call.Refuse(absl::StrCat("the weights are ", call.TypeOf(call.tensor(weight)).ToString(),
                                    ", must have 3 to 5 dimensions"));
  }
  VPOD_RETURN_IF_ERROR(CheckRank(call, image, dims.size()));
  const size_t rank = dims.size() - 2;
  Geometry geometry;
  const auto set = [&](size_t i, int64_t least, auto... fields) -> absl::Status {
    VPOD_ASSIGN_OR_RETURN(const Dims numbers, call.PerDimension(i, rank));
    for (int64_t number : numbers) {
      if (number < least || number > program::kMaxElements) {
        return call.Refuse(absl::StrCat("argument ", i, " has ", number, ", must be ", least,
                                        " to ", program::kMaxElements));
      }
    }
    (fields->Assign(numbers.begin(), numbers.end()), ...);
    return absl::OkStatus();
  };
  v1::SlidingWindow& window = geometry.window;
  window.mutable_kernel()->Assign(dims.begin() + 2, dims.end());
  VPOD_RETURN_IF_ERROR(set(first, 1, window.mutable_stride()));
  VPOD_RETURN_IF_ERROR(set(first + 1, 0, window.mutable_pad_before(), window.mutable_pad_after()));
  VPOD_RETURN_IF_ERROR(set(first + 2, 1, window.mutable_dilation()));
  geometry.transposed = call.flag(first + 3);
  VPOD_RETURN_IF_ERROR(set(first + 4, 0));
  VPOD_ASSIGN_OR_RETURN(geometry.output_padding, call.PerDimension(first + 4, rank));
  const int64_t groups = call.integer(first + 5);
  if (groups < 1 || groups > program::kMaxElements)
    return call.Refuse(absl::StrCat("groups are ", groups, ", must be 1 or more"));
  geometry.groups = static_cast<uint32_t>(groups);
  return geometry;
}

// A transposed convolution is the gradient of one by its image.
Tensor Convolve(const Call& call, const Geometry& geometry, Tensor image, Tensor weights) {
  Graph& graph = call.graph();
  if (!geometry.transposed)
    return graph.Convolution(image, weights, geometry.window, geometry.groups);
  v1::Instruction op;
  v1::Convolution& convolution = *op.mutable_convolution();
  convolution.set_pass(v1::Convolution::INPUT_GRADIENT);
  *convolution.mutable_window() = geometry.window;
  convolution.set_groups(geometry.groups);
  const v1::SlidingWindow& window = geometry.window;
  const Dims dims = call.DimsOf(image);
  for (int i = 0; i < window.kernel_size(); ++i) {
    const int64_t extent = int64_t{window.dilation(i)} * (window.kernel(i) - 1) + 1;
    convolution.add_image_size((dims[i + 2] - 1) * window.stride(i) + extent -
                               window.pad_before(i) - window.pad_after(i) +
                               geometry.output_padding[i]);
  }
  const Tensors outputs = graph.AddOperation(std::move(op), {image, weights});
  return outputs.empty() ? Tensor{} : outputs[0];
}

// (input, weight, bias, stride, padding, dilation, transposed, output padding, groups)
Outputs Convolution(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(call, 0, 1, 3));
  const Term result = call.term(Convolve(call, geometry, call.tensor(0), call.tensor(1)));
  if (!call.has(2)) return Tensors{result};
  Dims channels(call.DimsOf(call.tensor(0)).size(), 1);
  channels[1] = call.TypeOf(call.tensor(2)).elements();
  return Tensors{result + call.term(call.graph().Reshape(call.tensor(2), channels))};
}

// (output gradient, input, weight, bias sizes, …, output mask): linear in both, so that the forward
// pass drops out.
Outputs ConvolutionBackward(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(call, 1, 2, 4));
  VPOD_ASSIGN_OR_RETURN(const Dims wanted, call.PerDimension(10, 3));
  const Tensor dy = call.tensor(0);
  const Tensors gradients =
      Pullback(call, {call.tensor(1), call.tensor(2)}, dy,
               [&](const Tensors& own) { return Convolve(call, geometry, own[0], own[1]); });
  Tensors outputs(3);
  if (wanted[0] != 0) outputs[0] = gradients[0];
  if (wanted[1] != 0) outputs[1] = gradients[1];
  if (wanted[2] != 0) {
    std::vector<uint32_t> others(call.DimsOf(dy).size());
    std::iota(others.begin(), others.end(), 0);
    others.erase(others.begin() + 1);
    outputs[2] = call.graph().Reduce(v1::SUM, dy, others);
  }
  return outputs;
}

}  // namespace

std::vector<Row> ProductRows() {
  return {
      {"mm.default", "tensor, tensor", Multiply<2>},
      {"bmm.default", "tensor, tensor", Multiply<3>},
      {"addmm.default", "tensor, tensor, tensor, number=1, number=1", AddProduct<2>},
      {"baddbmm.default", "tensor, tensor, tensor, number=1, number=1", AddProduct<3>},
      {"addbmm.default", "tensor, tensor, tensor, number=1, number=1", AddBatches},
      {"mv.default", "tensor, tensor", Mv},
      {"addmv.default", "tensor, tensor, tensor, number=1, number=1", AddMv},
      {"dot.default", "tensor, tensor", Dot},
      {"_trilinear.default", "tensor, tensor, tensor, ints, ints, ints, ints, int=1", Trilinear},
      {"linalg_cross.default", "tensor, tensor, int=-1", Cross},
      {"linear.default", "tensor, tensor, tensor?=None", Linear},
      {"convolution.default", "tensor, tensor, tensor?, ints, ints, ints, bool, ints, int",
       Convolution},
      {"convolution_backward.default",
       "tensor, tensor, tensor, ints?, ints, ints, ints, bool, ints, int, ints",
       ConvolutionBackward},
  };
}

}  // namespace vpod::aten
