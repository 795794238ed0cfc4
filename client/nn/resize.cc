#include "client/nn/resize.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
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

// The weight of a pixel at this distance, as a part of the pixels of the result where those are the
// larger ones.
double LinearWeight(double distance) { return std::max(1 - std::abs(distance), 0.0); }

// Keys, "Cubic convolution interpolation for digital image processing", 1981.
double CubicWeight(double distance) {
  constexpr double kA = -0.5;
  const double x = std::abs(distance);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA : 0;
}

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

  // The pixels of the result, each of which is made of all pixels that it covers.
  Tensor Antialiased(Tensor image, double (*weight)(double distance), bool align_corners) const {
    const Dims dims = graph_.TypeOf(image).dims;
    const auto product = [](auto begin, auto end) {
      return std::accumulate(begin, end, int64_t{1}, std::multiplies());
    };
    const int64_t before = product(dims.begin(), dims.begin() + axis_),
                  behind = product(dims.begin() + axis_ + 1, dims.end());
    const std::vector<float> matrix = Matrix(weight, align_corners);
    const Tensor weights = graph_.Constant(
        {FLOAT32, {to_, from_}},
        std::string(reinterpret_cast<const char*>(matrix.data()), matrix.size() * sizeof(float)));
    Dims resized = dims;
    resized[axis_] = to_;
    if (behind == 1) {
      const Tensor lines = graph_.Reshape(image, {before, from_});
      return graph_.Reshape(graph_.MatMul(lines, weights, false, /*transpose_b=*/true), resized);
    }
    const Tensor lines = graph_.Reshape(image, {before, from_, behind});
    return graph_.Reshape(graph_.MatMul(weights, lines), resized);
  }

 private:
  static double Ratio(int64_t from, int64_t to) {
    return static_cast<double>(static_cast<float>(from) / static_cast<float>(to));
  }
  // The weight of each pixel of the image, row by row of the result; those of a row add up to 1,
  // unless it lies outside the image.
  std::vector<float> Matrix(double (*weight)(double distance), bool align_corners) const {
    const double step = Step(align_corners), widest = std::max(step, 1.0);
    std::vector<float> matrix;
    std::vector<double> row(static_cast<size_t>(from_));
    for (int64_t i = 0; i < to_; ++i) {
      const double centre = step * (static_cast<double>(i) + 0.5);
      for (size_t j = 0; j < row.size(); ++j)
        row[j] = weight((static_cast<double>(j) + 0.5 - centre) / widest);
      const double sum = std::accumulate(row.begin(), row.end(), 0.0);
      for (double each : row) matrix.push_back(static_cast<float>(sum == 0 ? each : each / sum));
    }
    return matrix;
  }
  Tensor Number(double value) const { return graph_.Constant({FLOAT32, {}}, value); }
  Tensor Floor(Tensor x) const { return graph_.Unary(program::v1::FLOOR, x); }
  Tensor Subtract(Tensor a, Tensor b) const { return graph_.Binary(program::v1::SUBTRACT, a, b); }

  double Step(bool align_corners) const {
    if (!align_corners) return step_;
    return to_ == 1 ? 0 : Ratio(from_ - 1, to_ - 1);
  }
  // The place in the image of each pixel of the result, [to].
  Tensor Place(bool align_corners) const {
    const Tensor numbers = graph_.Iota({FLOAT32, {to_}}, 0), step = Number(Step(align_corners));
    if (align_corners) return graph_.Multiply(numbers, step);
    return Subtract(graph_.Multiply(graph_.Add(numbers, Number(0.5)), step), Number(0.5));
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

// The most weights of a dimension: they take 256 MiB of the executable.
constexpr int64_t kMaxWeights = int64_t{1} << 26;

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
  if (nearest && (options.align_corners || options.antialias)) {
    return absl::InvalidArgumentError(
        absl::StrCat("resize takes ", options.align_corners ? "align_corners" : "antialias",
                     " with linear and cubic interpolation only"));
  }
  for (size_t i = 0; options.antialias && i < size.size(); ++i) {
    const int64_t from = type.dims[i + 2], to = size[i];
    if (from <= kMaxWeights / to) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "resize with antialias from ", from, " to ", to,
        " pixels has a weight for each pair of them, must have at most ", kMaxWeights));
  }
  return absl::OkStatus();
}

}  // namespace

// Keys, as above, with the constant that PyTorch has without antialiasing.
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
    } else if (options.antialias) {
      const bool is_linear = options.interpolation == Interpolation::kLinear;
      result =
          along.Antialiased(result, is_linear ? LinearWeight : CubicWeight, options.align_corners);
    } else if (options.interpolation == Interpolation::kLinear) {
      result = along.Linear(result, options.align_corners);
    } else {
      result = along.Cubic(result, options.align_corners);
    }
  }
  return graph.Cast(result, type.type);
}

}  // namespace vpod::nn
