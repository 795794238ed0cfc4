// Images that are sampled at given places.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/aten/call.h"
#include "client/nn/resize.h"

namespace vpod::aten {
namespace {

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

// One for each spatial dimension, (x, y) or (x, y, z): the last dimension of an image comes first.
using Places = std::vector<Term>;

// Pixels of images [n, channels, spatial…], FLOAT32, at places [n, spatial'…].
class Pixels {
 public:
  Pixels(const Call& call, Tensor images, Outside outside, bool align_corners)
      : call_(call), images_(call.DimsOf(images)[0]) {
    const Dims dims = call.DimsOf(images);
    const auto rank = static_cast<uint32_t>(dims.size());
    std::vector<uint32_t> order = {0};
    int64_t pixels = dims[0];
    for (uint32_t axis = 2; axis < rank; ++axis) {
      order.push_back(axis);
      pixels *= dims[axis];
      lines_.push_back({dims[rank + 1 - axis], outside, align_corners});
    }
    order.push_back(1);
    rows_ = call.graph().Reshape(call.graph().Transpose(images, order), {pixels, dims[1]});
  }

  const std::vector<Line>& lines() const { return lines_; }
  // [n, spatial'…, channels] at whole places; 0 outside the images.
  Term At(const Places& places) const {
    Graph& graph = call_.graph();
    Dims column(lines_.size() + 1, 1);
    column[0] = images_;
    Term number(graph, graph.Iota({v1::INT32, column}, 0));
    for (size_t i = lines_.size(); i-- > 0;) {
      const Tensor whole = graph.Cast(lines_[i].Clamped(places[i]), v1::INT32);
      number = number * static_cast<double>(lines_[i].length) + call_.term(whole);
    }
    Term is_inside = IsOn(lines_[0], places[0]);
    for (size_t i = 1; i < lines_.size(); ++i)
      is_inside = is_inside.Apply(v1::LOGICAL_AND, IsOn(lines_[i], places[i]));
    return Where(Beside(is_inside), call_.term(graph.Gather(rows_, number, 0)), 0.0);
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
  const int64_t images_;
  std::vector<Line> lines_;  // in the order of Places
  Tensor rows_;              // [n * pixels of an image, channels]
};

// Between the two pixels beside a place along each dimension.
Term Linear(const Pixels& pixels, Places places) {
  const size_t rank = places.size();
  Places shares, first;
  for (size_t i = 0; i < rank; ++i) {
    places[i] = pixels.lines()[i].Inside(places[i]);
    first.push_back(places[i].Apply(v1::FLOOR));
    shares.push_back(places[i] - first[i]);
  }
  const auto corner = [&](size_t number) {
    const auto is_second = [&](size_t i) { return (number >> i & 1) != 0; };
    const auto share = [&](size_t i) { return is_second(i) ? shares[i] : 1.0 - shares[i]; };
    Places at = first;
    Term weight = share(0);
    for (size_t i = 1; i < rank; ++i) weight = weight * share(i);
    for (size_t i = 0; i < rank; ++i)
      if (is_second(i)) at[i] = first[i] + 1.0;
    return pixels.At(at) * pixels.Beside(weight);
  };
  Term sum = corner(0);
  for (size_t number = 1; number < size_t{1} << rank; ++number) sum = sum + corner(number);
  return sum;
}

// In the middle between two pixels PyTorch takes the even one of an image, and of a volume the one
// that is further from 0.
Term NearestOf(Term x, bool of_volume) {
  if (!of_volume) return x.Apply(v1::ROUND);
  const Term whole = x.Apply(v1::FLOOR), share = x - whole;
  const Term is_half =
      (share == 0.5).Apply(v1::LOGICAL_AND, x.Apply(v1::GREATER_EQUAL, x.Number(0)));
  return Where((share > 0.5).Apply(v1::LOGICAL_OR, is_half), whole + 1.0, whole);
}

Term Nearest(const Pixels& pixels, Places places) {
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = NearestOf(pixels.lines()[i].Inside(places[i]), places.size() == 3);
  return pixels.At(places);
}

Term Bicubic(const Call& call, const Pixels& pixels, const Places& places) {
  const Line &columns = pixels.lines()[0], &rows = pixels.lines()[1];
  const Term x = places[0], left = x.Apply(v1::FLOOR), y = places[1], top = y.Apply(v1::FLOOR);
  const std::array<Tensor, 4> of_columns = nn::CubicWeights(call.graph(), x - left);
  const std::array<Tensor, 4> of_rows = nn::CubicWeights(call.graph(), y - top);
  const auto row_at = [&](double offset) {
    const Term row = rows.Inside(top + offset).Apply(v1::ROUND);
    const auto part = [&](size_t i) {
      const Term column = columns.Inside(left + (static_cast<double>(i) - 1));
      return pixels.At({column.Apply(v1::ROUND), row}) * pixels.Beside(call.term(of_columns[i]));
    };
    return part(0) + part(1) + part(2) + part(3);
  };
  const auto weighted = [&](size_t i) {
    return row_at(static_cast<double>(i) - 1) * pixels.Beside(call.term(of_rows[i]));
  };
  return weighted(0) + weighted(1) + weighted(2) + weighted(3);
}

// The places that a grid [n, spatial'…, coordinates] from -1 to 1 has in the images.
Places PlacesOf(const Call& call, Tensor grid, const Pixels& pixels) {
  Graph& graph = call.graph();
  const Dims dims = call.DimsOf(grid), each(dims.begin(), dims.end() - 1);
  Dims begin(dims.size(), 0), size = dims;
  size.back() = 1;
  Places places;
  for (const Line& line : pixels.lines()) {
    begin.back() = static_cast<int64_t>(places.size());
    const Tensor coordinate = graph.Slice(graph.Cast(grid, v1::FLOAT32), begin, size);
    places.push_back(line.PlacesOf(call.term(graph.Reshape(coordinate, each))));
  }
  return places;
}

// (images, grid, interpolation, padding, whether corners are aligned)
template <size_t kRank>
Outputs GridSampler(const Call& call) {
  const TensorType images = call.TypeOf(call.tensor(0)), grid = call.TypeOf(call.tensor(1));
  if (images.dims.size() != kRank + 2 || grid.dims.size() != kRank + 2 ||
      grid.dims.back() != kRank || grid.dims[0] != images.dims[0] ||
      !program::IsFloat(images.type)) {
    constexpr absl::string_view kSpatial = kRank == 2 ? "height, width" : "depth, height, width";
    return call.Refuse(absl::StrCat("has images ", images.ToString(), " and a grid ",
                                    grid.ToString(), ", must have floats [n, channels, ", kSpatial,
                                    "] and [n, ", kSpatial, ", ", kRank, "]"));
  }
  constexpr int64_t kLastInterpolation = kRank == 2 ? 2 : 1;
  const int64_t interpolation = call.integer(2), padding = call.integer(3);
  if (interpolation < 0 || interpolation > kLastInterpolation || padding < 0 || padding > 2) {
    return call.Refuse(absl::StrCat("has interpolation ", interpolation, " and padding ", padding,
                                    ", must be 0 to ", kLastInterpolation, " and 0 to 2"));
  }
  const Pixels pixels(call, call.Wide(0), static_cast<Outside>(padding), call.flag(4));
  const Places places = PlacesOf(call, call.tensor(1), pixels);
  const Term result = interpolation == 0   ? Linear(pixels, places)
                      : interpolation == 1 ? Nearest(pixels, places)
                                           : Bicubic(call, pixels, places);
  std::vector<uint32_t> order = {0, kRank + 1};
  for (uint32_t axis = 1; axis <= kRank; ++axis) order.push_back(axis);
  return Tensors{call.Narrow(call.graph().Transpose(result, order), call.tensor(0))};
}

// (matrices [n, r, r + 1], size of the images [n, channels, spatial…], whether corners are aligned)
// for r spatial dimensions, two or three: places for the sampler, the matrices times (x, y, z, 1).
Outputs AffineGrid(const Call& call) {
  Graph& graph = call.graph();
  const TensorType matrices = call.TypeOf(call.tensor(0));
  const Dims size = call.ints(1);
  const int64_t rank = static_cast<int64_t>(size.size()) - 2;
  if (rank < 2 || rank > 3 || matrices.dims != Dims{size[0], rank, rank + 1} ||
      *std::min_element(size.begin() + 2, size.end()) < 1) {
    return call.Refuse(absl::StrCat("the matrices are ", matrices.ToString(),
                                    ", must be [n, 2, 3] for images of four dimensions, or [n, 3, "
                                    "4] for volumes of five"));
  }
  const Dims spatial(size.begin() + 2, size.end());
  const int64_t pixels =
      std::accumulate(spatial.begin(), spatial.end(), int64_t{1}, std::multiplies());
  // From -1 to 1 along an axis, as a column.
  const auto places = [&](uint32_t axis) {
    const double length = static_cast<double>(spatial[axis]);
    const double range = call.flag(2) ? length - 1 : length;
    const Term number(graph, graph.Iota({v1::FLOAT32, spatial}, axis));
    const Term place = (number * 2.0 - (length - 1)) * (range == 0 ? 0 : 1 / range);
    return graph.Reshape(place, {pixels, 1});
  };
  Tensors columns;
  for (int64_t axis = rank - 1; axis >= 0; --axis)
    columns.push_back(places(static_cast<uint32_t>(axis)));
  columns.push_back(graph.Constant({v1::FLOAT32, {pixels, 1}}, 1));
  const Tensor base = graph.Reshape(graph.Concat(columns, 1), {1, pixels, rank + 1});
  const Tensor grid = graph.MatMul(base, call.Wide(0), /*transpose_a=*/false, /*transpose_b=*/true);
  Dims dims = {size[0]};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  dims.push_back(rank);
  return Tensors{graph.Reshape(call.Narrow(grid, call.tensor(0)), dims)};
}

}  // namespace

std::vector<Row> SamplingRows() {
  constexpr char kGrid[] = "tensor, tensor, int, int, bool";
  return {
      {"grid_sampler_2d.default", kGrid, GridSampler<2>},
      {"grid_sampler_3d.default", kGrid, GridSampler<3>},
      {"affine_grid_generator.default", "tensor, ints, bool", AffineGrid},
  };
}

}  // namespace vpod::aten
