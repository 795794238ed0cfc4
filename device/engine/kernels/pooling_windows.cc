#include "device/engine/kernels/pooling_windows.h"

#include <numeric>
#include <utility>

#include "device/program/ops/pooling.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::engine {
namespace {

// x with x · a ≡ gcd(a, b) modulo b, for positive numbers; modulo b / gcd(a, b).
int64_t InverseOf(int64_t a, int64_t b) {
  const int64_t modulus = b / std::gcd(a, b);
  int64_t r0 = a, r1 = b, x0 = 1, x1 = 0;
  while (r1 != 0) {
    const int64_t quotient = r0 / r1;
    r0 = std::exchange(r1, r0 - quotient * r1);
    x0 = std::exchange(x1, x0 - quotient * x1);
  }
  return (x0 % modulus + modulus) % modulus;
}

// Pixels of all windows of an image.
double PixelsOfWindows(const Windows& windows) {
  double pixels = 1;
  for (size_t i = 0; i < 3; ++i) {
    pixels *= static_cast<double>(
        windows.slide ? windows.kernel[i] * windows.result[i]
                      : program::DividingPixels(windows.image[i], windows.result[i]));
  }
  return pixels;
}

// The most terms of a point.
int64_t MostTerms(const Windows& windows, PoolBy by) {
  int64_t most = 1;
  for (size_t i = 0; i < 3; ++i) {
    most *= by == PoolBy::kImage ? windows.MostWindows(i)
            : windows.slide      ? std::min(windows.kernel[i], windows.image[i])
                                 : windows.image[i] / windows.result[i] + 2;
  }
  return most;
}

}  // namespace

Windows::Windows(const program::TensorType& image_type, const program::TensorType& result_type,
                 const Instruction& instruction)
    : images(static_cast<size_t>(image_type.dims[0])),
      channels(static_cast<size_t>(image_type.dims[1])) {
  const auto* window = program::FindPoolingWindow(instruction);
  slide = window != nullptr;
  const size_t rank = image_type.dims.size() - program::kImageHead;
  for (size_t i = 0; i < rank; ++i) {
    const size_t to = 3 - rank + i;
    const int axis = static_cast<int>(i);
    image[to] = image_type.dims[program::kImageHead + i];
    result[to] = result_type.dims[program::kImageHead + i];
    if (!slide) continue;
    kernel[to] = window->kernel(axis);
    stride[to] = window->stride(axis);
    dilation[to] = window->dilation(axis);
    before[to] = window->pad_before(axis);
    after[to] = window->pad_after(axis);
  }
  for (size_t i = 0; i < 3; ++i) inverse[i] = InverseOf(stride[i], dilation[i]);
}

Windows::Places Windows::PixelsAlong(size_t i, int64_t window) const {
  if (!slide) {
    const auto [begin, end] = program::DividingWindow(image[i], result[i], window);
    return {begin, 1, end - begin};
  }
  const int64_t top = window * stride[i] - before[i];
  if (dilation[i] == 1) {  // without divisions, which take longer than few channels do
    const int64_t begin = std::max<int64_t>(0, top), end = std::min(image[i], top + kernel[i]);
    return {begin, 1, std::max<int64_t>(0, end - begin)};
  }
  const int64_t first = top >= 0 ? 0 : (-top + dilation[i] - 1) / dilation[i];
  const int64_t end =
      top >= image[i] ? 0 : std::min(kernel[i], (image[i] - 1 - top) / dilation[i] + 1);
  return {top + first * dilation[i], dilation[i], std::max<int64_t>(0, end - first)};
}

// If windows slide, w · stride + k · dilation is the pixel's place.
Windows::Places Windows::WindowsAlong(size_t i, int64_t pixel) const {
  if (!slide) {
    const int64_t least = pixel * result[i] / image[i];
    return {least, 1, ((pixel + 1) * result[i] - 1) / image[i] - least + 1};
  }
  const int64_t at = pixel + before[i], extent = dilation[i] * (kernel[i] - 1);
  const int64_t least = at <= extent ? 0 : (at - extent + stride[i] - 1) / stride[i];
  const int64_t last = std::min(result[i] - 1, at / stride[i]);
  if (dilation[i] == 1) return {least, 1, std::max<int64_t>(0, last - least + 1)};
  const int64_t divisor = std::gcd(stride[i], dilation[i]), step = dilation[i] / divisor;
  if (at % divisor != 0) return {};
  const int64_t remainder = at / divisor % step * inverse[i] % step;
  const int64_t first = least + ((remainder - least) % step + step) % step;
  return {first, step, last < first ? 0 : (last - first) / step + 1};
}

int64_t Windows::MostWindows(size_t i) const {
  if (!slide) return std::min(result[i], result[i] / image[i] + 2);
  return std::min(result[i], (kernel[i] - 1) * std::gcd(stride[i], dilation[i]) / stride[i] + 1);
}

float Windows::Divisor(const Point& window, bool count_padding) const {
  int64_t count = 1;
  for (size_t i = 0; i < 3; ++i) {
    if (!slide || !count_padding) {
      count *= PixelsAlong(i, window[i]).count;
    } else {
      const int64_t left = image[i] + after[i] - (window[i] * stride[i] - before[i]);
      count *= std::min(kernel[i], (left + dilation[i] - 1) / dilation[i]);
    }
  }
  return static_cast<float>(count);
}

PoolCut::PoolCut(const Windows& of, PoolBy cut_by) : windows(of), by(cut_by) {
  // Terms take time, however few channels they have.
  constexpr int64_t kOperations = 1 << 23, kOfATerm = 16, kFewChannels = 64;
  constexpr size_t kElements = size_t{1} << 15;  // some tens of microseconds
  const int64_t most = MostTerms(windows, by), all = static_cast<int64_t>(windows.channels);
  const int64_t fit = std::max(kFewChannels, kOperations / most - kOfATerm);
  channels = {windows.channels, static_cast<size_t>(std::min({all, fit, kOperations >> 7}))};
  const auto n = static_cast<int64_t>(channels.per_chunk);
  const auto per_image = static_cast<double>(Windows::Size(written()));
  const double average = std::max(1.0, PixelsOfWindows(windows) / per_image);
  points = ChunkItems(windows.images * static_cast<size_t>(per_image),
                      static_cast<size_t>(average * static_cast<double>(n)), kElements);
  terms_of_round = std::min(most, std::max<int64_t>(1, kOperations / (n + kOfATerm)));
  rounds = static_cast<size_t>((most + terms_of_round - 1) / terms_of_round);
}

PoolCut::Range PoolCut::ReadBy(size_t of_points) const {
  const auto per_image = static_cast<size_t>(Windows::Size(written())),
             read_per_image = static_cast<size_t>(Windows::Size(read()));
  const size_t begin = points.begin(of_points), last = points.end(of_points) - 1;
  const size_t image = begin / per_image, last_image = last / per_image;
  Range range{image * read_per_image, (last_image + 1) * read_per_image};
  if (image != last_image) return range;
  // Where windows have gaps, points side by side may read places far apart.
  if (windows.dilation != Windows::Point{1, 1, 1}) return range;
  const Windows::Point from = Windows::At(written(), static_cast<int64_t>(begin % per_image)),
                       to = Windows::At(written(), static_cast<int64_t>(last % per_image));
  Windows::Point first{}, end{};  // the corners of what is read
  bool differs = false;           // along a dimension further out: whole lines are read
  for (size_t i = 0; i < 3; ++i) {
    const Windows::Places least = Along(i, from[i]), most = Along(i, to[i]);
    first[i] = differs ? 0 : least.first;
    end[i] = differs ? read()[i] : std::min(read()[i], most.first + most.count);
    if (end[i] <= first[i]) return {range.begin, range.begin};  // nothing
    differs = differs || from[i] != to[i];
  }
  const size_t offset = range.begin;
  range.begin = offset + static_cast<size_t>(Windows::Index(read(), first));
  range.end = offset +
              static_cast<size_t>(Windows::Index(read(), {end[0] - 1, end[1] - 1, end[2] - 1})) + 1;
  return range;
}

}  // namespace vpod::engine
