#include "device/engine/kernels/convolution_plan.h"

#include <cmath>
#include <map>
#include <tuple>

namespace vpod::engine {
namespace {

int64_t Product(const program::Dims& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One dimension of a convolution.
struct Line {
  int64_t image, result, kernel, stride, dilation, pad_before, pad_after;

  Line(const ConvolutionShape& s, size_t axis)
      : image(s.image[axis]),
        result(s.result[axis]),
        kernel(s.kernel[axis]),
        stride(s.stride[axis]),
        dilation(s.dilation[axis]),
        pad_before(s.pad_before[axis]),
        pad_after(s.pad_after[axis]) {}

  int64_t extent() const { return dilation * (kernel - 1) + 1; }
  ConvolutionPart Whole() const {
    return {.image_size = image,
            .result_size = result,
            .pad_before = pad_before,
            .pad_after = pad_after};
  }
};

// Results [first, end) and the part of the image under their windows.
ConvolutionPart OfResults(const Line& s, int64_t first, int64_t end) {
  const int64_t top = first * s.stride - s.pad_before;
  const int64_t bottom = (end - 1) * s.stride - s.pad_before + s.extent();
  ConvolutionPart part;
  part.image = std::clamp<int64_t>(top, 0, s.image - 1);
  part.image_size = std::clamp<int64_t>(bottom, part.image + 1, s.image) - part.image;
  part.result = first;
  part.result_size = end - first;
  part.pad_before = part.image - top;
  part.pad_after = std::max<int64_t>(0, bottom - part.image - part.image_size);
  return part;
}

// Pixels [first, end) of the image and the results whose windows touch them. `first` is 0 or where
// a window begins.
ConvolutionPart OfImage(const Line& s, int64_t first, int64_t end) {
  const int64_t padded = first + s.pad_before;
  ConvolutionPart part;
  part.image = first;
  part.image_size = end - first;
  part.result = std::max<int64_t>(0, CeilDiv(padded - s.extent() + 1, s.stride));
  part.result_size = std::min(s.result, (end - 1 + s.pad_before) / s.stride + 1) - part.result;
  part.pad_before = padded - part.result * s.stride;
  part.pad_after = std::max<int64_t>(
      0, (part.result_size - 1) * s.stride + s.extent() - part.pad_before - part.image_size);
  return part;
}

// Parts of about `count`-th of the dimension.
std::vector<ConvolutionPart> CutLine(const Line& s, CutBy by, int64_t count) {
  const bool by_result = by == CutBy::kResults;
  const int64_t size = by_result ? s.result : s.image;
  // Images are cut where a window begins.
  const int64_t unit = by_result ? 1 : s.stride;
  const int64_t step = std::max<int64_t>(1, size / count / unit) * unit;
  std::vector<ConvolutionPart> parts;
  for (int64_t first = 0; first < size;) {
    int64_t end = std::min(size, first + step);
    if (!by_result && first == 0 && end < size)
      end = std::max<int64_t>(1, end - s.pad_before % unit);
    parts.push_back(by_result ? OfResults(s, first, end) : OfImage(s, first, end));
    first = end;
  }
  return parts;
}

}  // namespace

int64_t ConvolutionShape::weights() const { return outputs * (channels / groups) * taps(); }
double ConvolutionShape::operations() const {
  return static_cast<double>(images * result_pixels()) * static_cast<double>(weights());
}
int64_t ConvolutionShape::taps() const { return Product(kernel); }
int64_t ConvolutionShape::image_pixels() const { return Product(image); }
int64_t ConvolutionShape::result_pixels() const { return Product(result); }

bool ConvolutionPiece::is_empty(size_t rank) const {
  return std::any_of(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(rank),
                     [](const ConvolutionPart& part) { return part.result_size <= 0; });
}

ConvolutionCut::ConvolutionCut(const ConvolutionShape& s, CutBy by, double operations,
                               double operations_of_image, int64_t elements) {
  const double of_image = s.operations() / static_cast<double>(s.images);
  const auto elements_of = [&](double image_pixels, double result_pixels) {
    return std::max(image_pixels * static_cast<double>(s.channels),
                    result_pixels * static_cast<double>(s.outputs));
  };
  const auto most_elements = static_cast<double>(elements);
  const double of_one =
      elements_of(static_cast<double>(s.image_pixels()), static_cast<double>(s.result_pixels()));
  const bool whole = of_image <= operations_of_image && of_one <= most_elements;
  images_ = {static_cast<size_t>(s.images), 1};
  if (whole) {
    const double fit = std::min(operations / of_image, most_elements / of_one);
    images_.per_chunk =
        static_cast<size_t>(std::clamp<double>(std::floor(fit), 1, static_cast<double>(s.images)));
  }
  // The share of an image that a piece has so far.
  double work = of_image, image = static_cast<double>(s.image_pixels()),
         result = static_cast<double>(s.result_pixels());
  bool is_cut = false, goes_on = !whole;
  for (size_t axis = 0; axis < s.rank(); ++axis) {
    const Line line(s, axis);
    Axis& cut = axes_.emplace_back();
    const double count = goes_on ? std::max(std::ceil(elements_of(image, result) / most_elements),
                                            std::ceil(work / operations))
                                 : 1;
    cut.parts = count > 1 ? CutLine(line, by, static_cast<int64_t>(count))
                          : std::vector<ConvolutionPart>{line.Whole()};
    int64_t image_size = 0, result_size = 0, touched = 0;
    std::map<std::tuple<int64_t, int64_t, int64_t>, uint32_t> kinds;
    for (const ConvolutionPart& part : cut.parts) {
      image_size = std::max(image_size, part.image_size);
      result_size = std::max(result_size, part.result_size);
      // A pair of a result and an element of its window is a pixel of the image.
      touched = std::max(touched, std::min(part.image_size, part.result_size));
      const auto [it, is_new] = kinds.try_emplace(
          {part.image_size, std::max<int64_t>(0, part.result_size), part.pad_before},
          static_cast<uint32_t>(kinds.size()));
      if (is_new) cut.examples.push_back(static_cast<uint32_t>(cut.kinds.size()));
      cut.kinds.push_back(it->second);
    }
    const auto share = [](int64_t part, int64_t all) {
      return static_cast<double>(part) / static_cast<double>(all);
    };
    if (cut.parts.size() > 1) {
      contiguous_ &= axis == 0;
      is_cut = true;
      work *= std::min(1.0, share(touched, line.result));
      image *= share(image_size, line.image);
      result *= share(result_size, line.result);
    }
    image_pixels_ *= image_size;
    result_pixels_ *= result_size;
    const int64_t unit = by == CutBy::kResults ? 1 : line.stride;
    const bool smallest = (by == CutBy::kResults ? result_size : image_size) <= unit;
    goes_on = goes_on && ((work > operations && (smallest || !is_cut)) ||
                          elements_of(image, result) > 2 * most_elements);
  }
  operations_ = work;
}

size_t ConvolutionCut::size() const {
  size_t count = images_.chunks();
  for (const Axis& axis : axes_) count *= axis.parts.size();
  return count;
}

size_t ConvolutionCut::geometries() const {
  size_t count = ImageKinds();
  for (const Axis& axis : axes_) count *= axis.examples.size();
  return count;
}

template <class CountOf>
size_t ConvolutionCut::Split(size_t index, const CountOf& count_of,
                             std::array<size_t, 3>& of_axes) const {
  for (size_t axis = axes_.size(); axis-- > 0;) {
    const size_t count = count_of(axes_[axis]);
    of_axes[axis] = index % count;
    index /= count;
  }
  return index;
}

ConvolutionPiece ConvolutionCut::operator[](size_t piece) const {
  std::array<size_t, 3> at{};
  const size_t image = Split(
      piece, [](const Axis& axis) { return axis.parts.size(); }, at);
  ConvolutionPiece result{.first_image = static_cast<int64_t>(images_.begin(image)),
                          .images = static_cast<int64_t>(images_.size(image))};
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    result.parts[axis] = axes_[axis].parts[at[axis]];
  return result;
}

size_t ConvolutionCut::GeometryOf(size_t piece) const {
  std::array<size_t, 3> at{};
  const size_t image = Split(
      piece, [](const Axis& axis) { return axis.parts.size(); }, at);
  size_t geometry = ImageKinds() == 2 && image + 1 == images_.chunks() ? 1 : 0;
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    geometry = geometry * axes_[axis].examples.size() + axes_[axis].kinds[at[axis]];
  return geometry;
}

ConvolutionPiece ConvolutionCut::ExampleOf(size_t geometry) const {
  std::array<size_t, 3> at{};
  const size_t kind = Split(
      geometry, [](const Axis& axis) { return axis.examples.size(); }, at);
  ConvolutionPiece result;
  result.images = static_cast<int64_t>(images_.size(kind == 0 ? 0 : images_.chunks() - 1));
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    result.parts[axis] = axes_[axis].parts[axes_[axis].examples[at[axis]]];
  return result;
}

}  // namespace vpod::engine
