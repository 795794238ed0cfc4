#include "device/engine/kernels/convolution_plan.h"

#include <cmath>
#include <set>
#include <tuple>

namespace vpod::engine {
namespace {

int64_t Product(const program::Dims& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool HaveOneGeometry(const ConvolutionPart& a, const ConvolutionPart& b) {
  return a.image_size == b.image_size && a.result_size == b.result_size &&
         a.pad_before == b.pad_before;
}

}  // namespace

int64_t ConvolutionShape::weights() const { return outputs * (channels / groups) * taps(); }
double ConvolutionShape::operations() const {
  return static_cast<double>(images * result_pixels()) * static_cast<double>(weights());
}
int64_t ConvolutionShape::taps() const { return Product(kernel); }
int64_t ConvolutionShape::image_pixels() const { return Product(image); }
int64_t ConvolutionShape::result_pixels() const { return Product(result); }

ConvolutionLine::ConvolutionLine(const ConvolutionShape& s, size_t axis, CutBy by)
    : image(s.image[axis]),
      result(s.result[axis]),
      kernel(s.kernel[axis]),
      stride(s.stride[axis]),
      dilation(s.dilation[axis]),
      pad_before(s.pad_before[axis]),
      pad_after(s.pad_after[axis]),
      by(by) {}

// Equal parts, because oneDNN has no good implementation for some that are a row high.
void ConvolutionLine::Cut(int64_t count) {
  parts = CeilDiv(units(), std::max<int64_t>(1, size() / count / unit()));
}

int64_t ConvolutionLine::BeginOf(int64_t part) const {
  return std::clamp<int64_t>(part * units() / parts * unit() - ahead(), 0, size());
}

ConvolutionPart ConvolutionLine::operator[](int64_t part) const {
  if (parts == 1) {
    return {.image_size = image,
            .result_size = result,
            .pad_before = pad_before,
            .pad_after = pad_after};
  }
  const int64_t first = BeginOf(part), end = BeginOf(part + 1);
  return by == CutBy::kResults ? OfResults(first, end) : OfImage(first, end);
}

// Results [first, end) and the part of the image under their windows.
ConvolutionPart ConvolutionLine::OfResults(int64_t first, int64_t end) const {
  const int64_t top = first * stride - pad_before;
  const int64_t bottom = (end - 1) * stride - pad_before + extent();
  ConvolutionPart part;
  part.image = std::clamp<int64_t>(top, 0, image - 1);
  part.image_size = std::clamp<int64_t>(bottom, part.image + 1, image) - part.image;
  part.result = first;
  part.result_size = end - first;
  part.pad_before = part.image - top;
  part.pad_after = std::max<int64_t>(0, bottom - part.image - part.image_size);
  return part;
}

// Pixels [first, end) of the image and the results whose windows touch them. `first` is 0 or where
// a window begins.
ConvolutionPart ConvolutionLine::OfImage(int64_t first, int64_t end) const {
  const int64_t padded = first + pad_before;
  ConvolutionPart part;
  part.image = first;
  part.image_size = end - first;
  part.result = std::max<int64_t>(0, CeilDiv(padded - extent() + 1, stride));
  const int64_t result_end = std::min(result, (end - 1 + pad_before) / stride + 1);
  part.result_size = std::max<int64_t>(0, result_end - part.result);
  part.pad_before = padded - part.result * stride;
  part.pad_after = std::max<int64_t>(
      0, (part.result_size - 1) * stride + extent() - part.pad_before - part.image_size);
  return part;
}

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
  // However little work they are.
  const int64_t strips = CeilDiv(std::max(s.image.back(), s.result.back()), kMostWidth);
  const bool whole = of_image <= operations_of_image && of_one <= most_elements && strips == 1;
  images_ = {static_cast<size_t>(s.images), 1};
  if (whole) {
    const double fit = std::min(operations / of_image, most_elements / of_one);
    const auto most =
        static_cast<int64_t>(std::clamp<double>(fit, 1, static_cast<double>(s.images)));
    // Shared out evenly: the last chunk is about as large as the others.
    images_.per_chunk = static_cast<size_t>(CeilDiv(s.images, CeilDiv(s.images, most)));
  }
  // The share of an image that a piece has so far.
  const auto of_strip = [&](double of_all) { return of_all / static_cast<double>(strips); };
  double work = of_strip(of_image), image = of_strip(static_cast<double>(s.image_pixels())),
         result = of_strip(static_cast<double>(s.result_pixels()));
  bool is_cut = false, goes_on = !whole;
  for (size_t axis = 0; axis < s.rank(); ++axis) {
    Axis& cut = axes_.emplace_back(Axis{.line = ConvolutionLine(s, axis, by), .examples = {}});
    ConvolutionLine& line = cut.line;
    const int64_t at_least = axis + 1 == s.rank() ? strips : 1;
    const double count = static_cast<double>(at_least) *
                         (goes_on ? std::max(std::ceil(elements_of(image, result) / most_elements),
                                             std::ceil(work / operations))
                                  : 1);
    if (count > 1) line.Cut(static_cast<int64_t>(count));
    int64_t image_size = 0, result_size = 0, touched = 0;
    std::set<std::tuple<int64_t, int64_t, int64_t>> kinds;
    for (int64_t i = 0; i < line.parts; ++i) {
      const ConvolutionPart part = line[i];
      image_size = std::max(image_size, part.image_size);
      result_size = std::max(result_size, part.result_size);
      // A pair of a result and an element of its window is a pixel of the image.
      touched = std::max(touched, std::min(part.image_size, part.result_size));
      if (kinds.emplace(part.image_size, part.result_size, part.pad_before).second)
        cut.examples.push_back(part);
    }
    if (line.parts > 1) {
      const auto share = [&](int64_t part, int64_t all) {
        return static_cast<double>(part * at_least) / static_cast<double>(all);
      };
      contiguous_ &= axis == 0;
      is_cut = true;
      work *= std::min(static_cast<double>(at_least), share(touched, line.result));
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

size_t ConvolutionCut::Axis::KindOf(size_t part) const {
  const ConvolutionPart it = line[static_cast<int64_t>(part)];
  size_t kind = 0;
  while (!HaveOneGeometry(examples[kind], it)) ++kind;
  return kind;
}

size_t ConvolutionCut::size() const {
  size_t count = images_.chunks();
  for (const Axis& axis : axes_) count *= axis.Parts();
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
      piece, [](const Axis& axis) { return axis.Parts(); }, at);
  ConvolutionPiece result{.first_image = static_cast<int64_t>(images_.begin(image)),
                          .images = static_cast<int64_t>(images_.size(image))};
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    result.parts[axis] = axes_[axis].line[static_cast<int64_t>(at[axis])];
  return result;
}

size_t ConvolutionCut::GeometryOf(size_t piece) const {
  std::array<size_t, 3> at{};
  const size_t image = Split(
      piece, [](const Axis& axis) { return axis.Parts(); }, at);
  size_t geometry = ImageKinds() == 2 && image + 1 == images_.chunks() ? 1 : 0;
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    geometry = geometry * axes_[axis].examples.size() + axes_[axis].KindOf(at[axis]);
  return geometry;
}

ConvolutionPiece ConvolutionCut::ExampleOf(size_t geometry) const {
  std::array<size_t, 3> at{};
  const size_t kind = Split(
      geometry, [](const Axis& axis) { return axis.examples.size(); }, at);
  ConvolutionPiece result;
  result.images = static_cast<int64_t>(images_.size(kind == 0 ? 0 : images_.chunks() - 1));
  for (size_t axis = 0; axis < axes_.size(); ++axis)
    result.parts[axis] = axes_[axis].examples[at[axis]];
  return result;
}

}  // namespace vpod::engine
