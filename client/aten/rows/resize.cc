// Images of another size, and images that are sampled at given places.
#include "client/nn/resize.h"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"

namespace vpod::aten {
namespace {

using nn::Interpolation;

// --- Resizing ---

// Output size and scale factors, one of which is given, are arguments 1 and `scales`.
absl::StatusOr<Tensor> Resized(const Call& call, size_t rank, nn::ResizeOptions options,
                               size_t scales) {
  const Tensor image = call.tensor(0);
  const Dims dims = call.DimsOf(image);
  if (dims.size() != rank + 2) {
    return call.Refuse(absl::StrCat("the image is ", call.TypeOf(image).ToString(), ", must have ",
                                    rank + 2, " dimensions"));
  }
  Dims size = call.ints(1);
  options.scales = call.numbers(scales);
  if (size.empty() == options.scales.empty())
    return call.Refuse("needs either an output size or scale factors");
  if (size.empty()) {
    if (options.scales.size() != rank)
      return call.Refuse(absl::StrCat("needs ", rank, " scale factors"));
    for (size_t i = 0; i < rank; ++i) {
      const double length = std::floor(static_cast<double>(dims[i + 2]) * options.scales[i]);
      if (!(length >= 1 && length <= static_cast<double>(program::kMaxElements)))
        return call.Refuse(absl::StrCat("scale factor ", options.scales[i], " gives no image"));
      size.push_back(static_cast<int64_t>(length));
    }
  }
  return nn::Resize(call.graph(), image, size, options);
}

// (self, size, scales)
template <size_t kRank, Interpolation kInterpolation>
Outputs Nearest(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const Tensor result,
                        Resized(call, kRank, {.interpolation = kInterpolation}, 2));
  return Tensors{result};
}

// (self, size, whether corners are aligned, scales)
template <size_t kRank, Interpolation kInterpolation, bool kAntialias = false>
Outputs Blended(const Call& call) {
  const nn::ResizeOptions options{
      .interpolation = kInterpolation, .align_corners = call.flag(2), .antialias = kAntialias};
  VPOD_ASSIGN_OR_RETURN(const Tensor result, Resized(call, kRank, options, 3));
  return Tensors{result};
}

// --- Sampling ---

// PyTorch's numbers of how places outside the image are taken.
enum class Outside { kZeros, kBorder, kReflection };

// One dimension of an image, with places in pixels from the centre of the first one. Limits are
// chosen by conditions, so that no gradient flows from a place outside them.
struct Line {
  int64_t length = 0;
  Outside outside = Outside::kZeros;
  bool align_corners = false;

  double last() const { return static_cast<double>(length - 1); }

  // Places from -1 to 1, the centres of the outermost pixels or the edges of the image.
  Term PlacesOf(Term x) const {
    if (align_corners) return (x + 1.0) * (last() / 2);
    return ((x + 1.0) * static_cast<double>(length) - 1.0) * 0.5;
  }
  Term Clamped(Term x) const {
    const Term low = Where(x > 0.0, x, 0.0);
    return Where(low.Apply(v1::LESS, low.Number(last())), low, last());
  }
  // Reflected at the centres of the outermost pixels or at the edges of the image.
  Term Reflected(Term x) const {
    const double first = align_corners ? 0 : -0.5, span = last() - 2 * first;
    if (span == 0) return x * 0.0;
    const Term distance = Abs(x - first);
    const Term flips = (distance * (1 / span)).Apply(v1::FLOOR);
    const Term rest = distance - flips * span;
    const Term is_odd = (flips * 0.5).Apply(v1::FLOOR) * 2.0;
    return Where(is_odd.Apply(v1::EQUAL, flips), rest + first, (span + first) - rest);
  }
  Term Inside(Term x) const {
    if (outside == Outside::kZeros) return x;
    return Clamped(outside == Outside::kReflection ? Reflected(x) : x);
  }
};

// Pixels of images [n, channels, height, width], FLOAT32, at places [n, height', width'].
class Pixels {
 public:
  Pixels(const Call& call, Tensor images, Outside outside, bool align_corners)
      : call_(call),
        dims_(call.DimsOf(images)),
        column_{dims_[3], outside, align_corners},
        row_{dims_[2], outside, align_corners},
        rows_(call.graph().Reshape(call.graph().Transpose(images, {0, 2, 3, 1}),
                                   {dims_[0] * dims_[2] * dims_[3], dims_[1]})) {}

  const Line& column() const { return column_; }
  const Line& row() const { return row_; }
  // [n, height', width', channels] at whole places; 0 outside the images.
  Term At(Term x, Term y) const {
    Graph& graph = call_.graph();
    const auto whole = [&](Term place, const Line& line) {
      return call_.term(graph.Cast(line.Clamped(place), v1::INT32));
    };
    const Term image(graph, graph.Iota({v1::INT32, {dims_[0], 1, 1}}, 0));
    const Term row = image * static_cast<double>(dims_[2]) + whole(y, row_);
    const Term places = row * static_cast<double>(dims_[3]) + whole(x, column_);
    const Term is_inside = IsOn(column_, x).Apply(v1::LOGICAL_AND, IsOn(row_, y));
    return Where(Beside(is_inside), call_.term(graph.Gather(rows_, places, 0)), 0.0);
  }
  // Gives values of places a last dimension of 1, beside which the channels lie.
  Term Beside(Term of_places) const {
    Dims dims = call_.DimsOf(of_places);
    dims.push_back(1);
    return call_.term(call_.graph().Reshape(of_places, dims));
  }

 private:
  static Term IsOn(const Line& line, Term x) {
    return x.Apply(v1::GREATER_EQUAL, x.Number(0))
        .Apply(v1::LOGICAL_AND, x.Apply(v1::LESS_EQUAL, x.Number(line.last())));
  }

  const Call& call_;
  const Dims dims_;
  const Line column_, row_;
  const Tensor rows_;  // [n * height * width, channels]
};

Term Bilinear(const Pixels& pixels, Term x, Term y) {
  x = pixels.column().Inside(x);
  y = pixels.row().Inside(y);
  const Term left = x.Apply(v1::FLOOR), top = y.Apply(v1::FLOOR);
  const Term right_share = x - left, bottom_share = y - top;
  const auto part = [&](Term column, Term row, Term share) {
    return pixels.At(column, row) * pixels.Beside(share);
  };
  return part(left, top, (1.0 - right_share) * (1.0 - bottom_share)) +
         part(left + 1.0, top, right_share * (1.0 - bottom_share)) +
         part(left, top + 1.0, (1.0 - right_share) * bottom_share) +
         part(left + 1.0, top + 1.0, right_share * bottom_share);
}

Term Bicubic(const Call& call, const Pixels& pixels, Term x, Term y) {
  const Term left = x.Apply(v1::FLOOR), top = y.Apply(v1::FLOOR);
  const std::array<Tensor, 4> of_columns = nn::CubicWeights(call.graph(), x - left);
  const std::array<Tensor, 4> of_rows = nn::CubicWeights(call.graph(), y - top);
  const auto row_at = [&](double offset) {
    const Term row = pixels.row().Inside(top + offset).Apply(v1::ROUND);
    const auto part = [&](size_t i) {
      const Term column = pixels.column().Inside(left + (static_cast<double>(i) - 1));
      return pixels.At(column.Apply(v1::ROUND), row) * pixels.Beside(call.term(of_columns[i]));
    };
    return part(0) + part(1) + part(2) + part(3);
  };
  const auto weighted = [&](size_t i) {
    return row_at(static_cast<double>(i) - 1) * pixels.Beside(call.term(of_rows[i]));
  };
  return weighted(0) + weighted(1) + weighted(2) + weighted(3);
}

// (images, grid, interpolation, padding, whether corners are aligned): the grid is
// [n, height, width, 2], places (x, y).
Outputs GridSampler(const Call& call) {
  Graph& graph = call.graph();
  const TensorType images = call.TypeOf(call.tensor(0)), grid = call.TypeOf(call.tensor(1));
  if (images.rank() != 4 || grid.rank() != 4 || grid.dims[3] != 2 ||
      grid.dims[0] != images.dims[0] || !program::IsFloat(images.type)) {
    return call.Refuse(absl::StrCat("has images ", images.ToString(), " and a grid ",
                                    grid.ToString(),
                                    ", must have floats [n, channels, height, width] and [n, "
                                    "height, width, 2]"));
  }
  const int64_t interpolation = call.integer(2), padding = call.integer(3);
  if (interpolation < 0 || interpolation > 2 || padding < 0 || padding > 2)
    return call.Refuse("the interpolation and the padding must be 0 to 2");
  const Pixels pixels(call, call.Wide(0), static_cast<Outside>(padding), call.flag(4));
  const auto coordinate = [&](int64_t i) {
    const Tensor part = graph.Slice(graph.Cast(call.tensor(1), v1::FLOAT32), {0, 0, 0, i},
                                    {grid.dims[0], grid.dims[1], grid.dims[2], 1});
    return call.term(graph.Reshape(part, {grid.dims[0], grid.dims[1], grid.dims[2]}));
  };
  const Term x = pixels.column().PlacesOf(coordinate(0)), y = pixels.row().PlacesOf(coordinate(1));
  Term result = x;
  if (interpolation == 0) {
    result = Bilinear(pixels, x, y);
  } else if (interpolation == 1) {
    result = pixels.At(pixels.column().Inside(x).Apply(v1::ROUND),
                       pixels.row().Inside(y).Apply(v1::ROUND));
  } else {
    result = Bicubic(call, pixels, x, y);
  }
  return Tensors{call.Narrow(graph.Transpose(result, {0, 3, 1, 2}), call.tensor(0))};
}

// (matrices [n, 2, 3], size of the images [n, channels, height, width], whether corners are
// aligned): places for the sampler, the matrices times (x, y, 1).
Outputs AffineGrid(const Call& call) {
  Graph& graph = call.graph();
  const TensorType matrices = call.TypeOf(call.tensor(0));
  const Dims size = call.ints(1);
  if (size.size() != 4 || matrices.dims != Dims{size[0], 2, 3} || size[2] < 1 || size[3] < 1) {
    return call.Refuse(absl::StrCat("the matrices are ", matrices.ToString(),
                                    ", must be [n, 2, 3] for images of four dimensions"));
  }
  const int64_t height = size[2], width = size[3];
  // From -1 to 1 along an axis of [height, width], as a column.
  const auto places = [&](uint32_t axis, int64_t length) {
    const double pixels = static_cast<double>(length);
    const double range = call.flag(2) ? pixels - 1 : pixels;
    const Term number(graph, graph.Iota({v1::FLOAT32, {height, width}}, axis));
    const Term place = (number * 2.0 - (pixels - 1)) * (range == 0 ? 0 : 1 / range);
    return graph.Reshape(place, {height * width, 1});
  };
  const Tensor ones = graph.Constant({v1::FLOAT32, {height * width, 1}}, 1);
  const Tensor base = graph.Concat({places(1, width), places(0, height), ones}, 1);
  const Tensor grid = graph.MatMul(graph.Reshape(base, {1, height * width, 3}), call.Wide(0),
                                   /*transpose_a=*/false, /*transpose_b=*/true);
  return Tensors{graph.Reshape(call.Narrow(grid, call.tensor(0)), {size[0], height, width, 2})};
}

constexpr char kNearest[] = "tensor, ints?, numbers?";
constexpr char kBlended[] = "tensor, ints?, bool, numbers?";

}  // namespace

std::vector<Row> ResizeRows() {
  return {
      {"upsample_nearest1d.vec", kNearest, Nearest<1, Interpolation::kNearest>},
      {"upsample_nearest2d.vec", kNearest, Nearest<2, Interpolation::kNearest>},
      {"upsample_nearest3d.vec", kNearest, Nearest<3, Interpolation::kNearest>},
      {"_upsample_nearest_exact1d.vec", kNearest, Nearest<1, Interpolation::kNearestExact>},
      {"_upsample_nearest_exact2d.vec", kNearest, Nearest<2, Interpolation::kNearestExact>},
      {"_upsample_nearest_exact3d.vec", kNearest, Nearest<3, Interpolation::kNearestExact>},
      {"upsample_linear1d.vec", kBlended, Blended<1, Interpolation::kLinear>},
      {"upsample_bilinear2d.vec", kBlended, Blended<2, Interpolation::kLinear>},
      {"upsample_trilinear3d.vec", kBlended, Blended<3, Interpolation::kLinear>},
      {"upsample_bicubic2d.vec", kBlended, Blended<2, Interpolation::kCubic>},
      {"_upsample_bilinear2d_aa.vec", kBlended, Blended<2, Interpolation::kLinear, true>},
      {"_upsample_bicubic2d_aa.vec", kBlended, Blended<2, Interpolation::kCubic, true>},
      {"grid_sampler_2d.default", "tensor, tensor, int, int, bool", GridSampler},
      {"affine_grid_generator.default", "tensor, ints, bool", AffineGrid},
  };
}

}  // namespace vpod::aten
