#include "client/nn/resize.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/nn/term.h"

namespace vpod::nn {

using graph::Dims;
using graph::Graph;
using graph::Tensor;
using graph::TensorType;
using program::v1::FLOAT32;

namespace {

// One axis of an image, which becomes `to` pixels long. Places are computed in float32, as PyTorch
// computes them: a pixel of the result between two of the image takes the same one.
class Axis {
 public:
  // `scale` is 0 where the lengths tell it.
  Axis(Graph& graph, uint32_t axis, int64_t from, int64_t to, double scale, size_t rank)
      : graph_(graph),
        axis_(axis),
        from_(from),
        to_(to),
        step_(scale > 0 ? static_cast<double>(static_cast<float>(1 / scale)) : Ratio(from, to)),
        rank_(rank) {}

  Tensor Nearest(Tensor image, bool by_centre) const {
    Tensor place = graph_.Iota({FLOAT32, {to_}}, 0);
    if (by_centre) place = graph_.Add(place, Number(0.5));
    return Pixels(image, Floor(graph_.Multiply(place, Number(step_))));
  }

  Tensor Linear(Tensor image, bool align_corners) const {
    const Tensor place = graph_.Binary(program::v1::MAXIMUM, Place(align_corners), Number(0));
    const Tensor first = Floor(place), share = Subtract(place, first);
    return graph_.Add(graph_.Multiply(Pixels(image, first), Weights(Subtract(Number(1), share))),
                      graph_.Multiply(Pixels(image, graph_.Add(first, Number(1))), Weights(share)));
  }

  Tensor Cubic(Tensor image, bool align_corners) const {
    const Tensor place = Place(align_corners), first = Floor(place), share = Subtract(place, first);
    const std::array<Tensor, 4> weights = CubicWeights(graph_, share);
    Tensor sum;
    for (size_t i = 0; i < weights.size(); ++i) {
      const Tensor pixels = Pixels(image, graph_.Add(first, Number(static_cast<double>(i) - 1)));
      const Tensor part = graph_.Multiply(pixels, Weights(weights[i]));
      sum = sum.valid() ? graph_.Add(sum, part) : part;
    }
    return sum;
  }

 private:
  static double Ratio(int64_t from, int64_t to) {
    return static_cast<double>(static_cast<float>(from) / static_cast<float>(to));
  }
  Tensor Number(double value) const { return graph_.Constant({FLOAT32, {}}, value); }
  Tensor Floor(Tensor x) const { return graph_.Unary(program::v1::FLOOR, x); }
  Tensor Subtract(Tensor a, Tensor b) const { return graph_.Binary(program::v1::SUBTRACT, a, b); }

  // The place in the image of each pixel of the result, [to].
  Tensor Place(bool align_corners) const {
    const Tensor numbers = graph_.Iota({FLOAT32, {to_}}, 0);
    if (align_corners)
      return graph_.Multiply(numbers, Number(to_ == 1 ? 0 : Ratio(from_ - 1, to_ - 1)));
    return Subtract(graph_.Multiply(graph_.Add(numbers, Number(0.5)), Number(step_)), Number(0.5));
  }
  // The pixels at whole places, which are moved into the image.
  Tensor Pixels(Tensor image, Tensor places) const {
    const Tensor inside =
        graph_.Binary(program::v1::MINIMUM, graph_.Binary(program::v1::MAXIMUM, places, Number(0)),
                      Number(static_cast<double>(from_ - 1)));
    return graph_.Gather(image, graph_.Cast(inside, program::v1::INT32), axis_);
  }
  // [to] in the place of the axis.
  Tensor Weights(Tensor of_places) const {
    Dims dims(rank_, 1);
    dims[axis_] = to_;
    return graph_.Reshape(of_places, dims);
  }

  Graph& graph_;
  const uint32_t axis_;
  const int64_t from_, to_;
  const double step_;  // in the image, from a pixel of the result to the next
  const size_t rank_;
};

absl::Status Check(const TensorType& type, const Dims& size, const ResizeOptions& options) {
  bool fits = program::IsFloat(type.type) && !size.empty() && type.dims.size() == size.size() + 2;
  for (int64_t length : size) fits = fits && length >= 1;
  for (size_t axis = 2; axis < type.dims.size(); ++axis) fits = fits && type.dims[axis] >= 1;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resize needs floats [n, channels, spatial…] and as many lengths of 1 or more, and has ",
        type.ToString(), " and [", absl::StrJoin(size, ","), "]"));
  }
  bool scaled = options.scales.empty() || options.scales.size() == size.size();
  for (double scale : options.scales) scaled = scaled && scale > 0;
  if (!scaled) {
    return absl::InvalidArgumentError(absl::StrCat("resize has the scales [",
                                                   absl::StrJoin(options.scales, ","),
                                                   "], must have ", size.size(), " above 0"));
  }
  const bool nearest = options.interpolation == Interpolation::kNearest ||
                       options.interpolation == Interpolation::kNearestExact;
  if (nearest && options.align_corners) {
    return absl::InvalidArgumentError(
        "resize takes align_corners with linear and cubic interpolation only");
  }
  return absl::OkStatus();
}

}  // namespace

// Keys, "Cubic convolution interpolation for digital image processing", 1981.
std::array<Tensor, 4> CubicWeights(Graph& graph, Tensor share) {
  constexpr double kA = -0.75;
  const Term before(graph, share), behind = 1.0 - before;
  // The weights of pixels at a distance of 0 to 1, and of 1 to 2.
  const auto inner = [](Term x) { return (x * (kA + 2) - (kA + 3)) * (x * x) + 1.0; };
  const auto outer = [](Term x) { return ((x * kA - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  return {outer(before + 1.0), inner(before), inner(behind), outer(behind + 1.0)};
}

Tensor Resize(Graph& graph, Tensor image, const Dims& size, const ResizeOptions& options) {
  if (!graph.status().ok()) return {};
  const TensorType type = graph.TypeOf(image);
  if (const absl::Status status = Check(type, size, options); !status.ok())
    return graph.Fail(status);
  const bool nearest = options.interpolation == Interpolation::kNearest ||
                       options.interpolation == Interpolation::kNearestExact;
  Tensor result = nearest ? image : graph.Cast(image, FLOAT32);
  for (uint32_t axis = 2; axis < type.dims.size(); ++axis) {
    const double scale = options.scales.empty() ? 0 : options.scales[axis - 2];
    const Axis along(graph, axis, type.dims[axis], size[axis - 2], scale, type.dims.size());
    if (nearest) {
      result = along.Nearest(result, options.interpolation == Interpolation::kNearestExact);
    } else if (options.interpolation == Interpolation::kLinear) {
      result = along.Linear(result, options.align_corners);
    } else {
      result = along.Cubic(result, options.align_corners);
    }
  }
  return graph.Cast(result, type.type);
}

}  // namespace vpod::nn
