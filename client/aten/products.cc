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
template <size_t kRank>
Outputs AddProduct(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(Term product, Product(call, 1, kRank));
  product = Scaled(product, call.number(4));
  if (call.number(3) == 0) return Tensors{product};
  return Tensors{Scaled(call.term(call.tensor(0)), call.number(3)) + product};
}

Outputs Mv(const Call& call) {
  Graph& graph = call.graph();
  VPOD_RETURN_IF_ERROR(CheckRank(call, 0, 2));
  VPOD_RETURN_IF_ERROR(CheckRank(call, 1, 1));
  const Dims vector = call.DimsOf(call.tensor(1));
  const Tensor product =
      graph.MatMul(call.tensor(0), graph.Reshape(call.tensor(1), {vector[0], 1}));
  return Tensors{graph.Reshape(product, {call.DimsOf(call.tensor(0))[0]})};
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
      {"mv.default", "tensor, tensor", Mv},
      {"dot.default", "tensor, tensor", Dot},
      {"linear.default", "tensor, tensor, tensor?=None", Linear},
      {"convolution.default", "tensor, tensor, tensor?, ints, ints, ints, bool, ints, int",
       Convolution},
      {"convolution_backward.default",
       "tensor, tensor, tensor, ints?, ints, ints, ints, bool, ints, int, ints",
       ConvolutionBackward},
  };
}

}  // namespace vpod::aten
