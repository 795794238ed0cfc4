#include "device/program/ops/pooling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"
#include "device/program/ops/sliding_window.h"

namespace vpod::engine {
namespace {

// Takes the row's elements that are larger, or not numbers, with their place in the image.
VPOD_SIMD void TakeLargest(const float* row, int32_t place, float* best, int32_t* places,
                           size_t n) {
  for (size_t c = 0; c < n; ++c) {
    const bool takes = row[c] > best[c] || (row[c] != row[c] && best[c] == best[c]);
    best[c] = takes ? row[c] : best[c];
    places[c] = takes ? place : places[c];
  }
}

VPOD_SIMD void AddWherePlaceIs(int32_t place, const int32_t* places, const float* gradient,
                               float* sums, size_t n) {
  for (size_t c = 0; c < n; ++c) sums[c] += places[c] == place ? gradient[c] : 0.0f;
}

VPOD_SIMD void AddScaled(const float* row, float factor, float* sums, size_t n) {
  for (size_t c = 0; c < n; ++c) sums[c] += row[c] * factor;
}

VPOD_SIMD void Scale(float* row, float factor, size_t n) {
  for (size_t c = 0; c < n; ++c) row[c] *= factor;
}

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

// The geometry of a pooling in three spatial dimensions; those that are missing have size 1.
struct Windows {
  using Point = std::array<int64_t, 3>;
  size_t images = 1, channels = 1;
  Point image{1, 1, 1}, result{1, 1, 1};
  // Of windows that slide; the others divide the image.
  bool slide = false;
  Point kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, before{}, after{};
  Point inverse{};  // of stride / divisor modulo dilation / divisor, their greatest common one

  Windows(const program::TensorType& image_type, const program::TensorType& result_type,
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

  static int64_t Size(const Point& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
  static Point At(const Point& sizes, int64_t index) {
    return {index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]};
  }
  // To the next point in row-major order; false, and the first point, after the last.
  static bool Advance(const Point& sizes, Point& point) {
    for (size_t axis = 3; axis-- > 0;) {
      if (++point[axis] < sizes[axis]) return true;
      point[axis] = 0;
    }
    return false;
  }
  static int64_t Index(const Point& sizes, const Point& point) {
    return (point[0] * sizes[1] + point[1]) * sizes[2] + point[2];
  }

  // Places along a dimension, or in all, in ascending order.
  struct Places {
    int64_t first = 0, step = 1, count = 0;
  };
  using Box = std::array<Places, 3>;
  static int64_t Count(const Box& box) { return box[0].count * box[1].count * box[2].count; }

  // The pixels of the image in a window.
  Box PixelsOf(const Point& window) const {
    Box box;
    for (size_t i = 0; i < 3; ++i) {
      if (!slide) {
        const auto [begin, end] = program::DividingWindow(image[i], result[i], window[i]);
        box[i] = {begin, 1, end - begin};
        continue;
      }
      const int64_t top = window[i] * stride[i] - before[i];
      if (dilation[i] == 1) {  // without divisions, which take longer than few channels do
        const int64_t begin = std::max<int64_t>(0, top), end = std::min(image[i], top + kernel[i]);
        box[i] = {begin, 1, std::max<int64_t>(0, end - begin)};
        continue;
      }
      const int64_t first = top >= 0 ? 0 : (-top + dilation[i] - 1) / dilation[i];
      const int64_t end =
          top >= image[i] ? 0 : std::min(kernel[i], (image[i] - 1 - top) / dilation[i] + 1);
      box[i] = {top + first * dilation[i], dilation[i], std::max<int64_t>(0, end - first)};
    }
    return box;
  }

  // The windows that touch a pixel of the image. If they slide, w · stride + k · dilation is the
  // pixel's place.
  Box WindowsOf(const Point& pixel) const {
    Box box;
    for (size_t i = 0; i < 3; ++i) {
      if (!slide) {
        const int64_t least = pixel[i] * result[i] / image[i];
        box[i] = {least, 1, ((pixel[i] + 1) * result[i] - 1) / image[i] - least + 1};
        continue;
      }
      const int64_t at = pixel[i] + before[i], extent = dilation[i] * (kernel[i] - 1);
      const int64_t least = at <= extent ? 0 : (at - extent + stride[i] - 1) / stride[i];
      const int64_t last = std::min(result[i] - 1, at / stride[i]);
      if (dilation[i] == 1) {
        box[i] = {least, 1, std::max<int64_t>(0, last - least + 1)};
        continue;
      }
      const int64_t divisor = std::gcd(stride[i], dilation[i]), step = dilation[i] / divisor;
      if (at % divisor != 0) return {};
      const int64_t remainder = at / divisor % step * inverse[i] % step;
      const int64_t first = least + ((remainder - least) % step + step) % step;
      box[i] = {first, step, last < first ? 0 : (last - first) / step + 1};
    }
    return box;
  }
  // The most that WindowsOf gives along a dimension.
  int64_t MostWindows(size_t i) const {
    if (!slide) return std::min(result[i], result[i] / image[i] + 2);
    return std::min(result[i], (kernel[i] - 1) * std::gcd(stride[i], dilation[i]) / stride[i] + 1);
  }

  // Calls `visit(place)` for places [begin, end) of a box, in row-major order.
  template <class Visit>
  static void ForPlaces(const Box& box, int64_t begin, int64_t end, const Visit& visit) {
    end = std::min(end, Count(box));
    if (begin >= end) return;
    const Point counts{box[0].count, box[1].count, box[2].count};
    Point index{};
    if (begin > 0) index = At(counts, begin);
    for (int64_t i = begin; i < end; ++i) {
      Point place{};
      for (size_t axis = 0; axis < 3; ++axis)
        place[axis] = box[axis].first + index[axis] * box[axis].step;
      visit(place);
      Advance(counts, index);
    }
  }

  // What a window's sum is divided by: its elements in the image, or also those in the padding.
  float Divisor(const Point& window, bool count_padding) const {
    if (!slide || !count_padding) return static_cast<float>(Count(PixelsOf(window)));
    int64_t count = 1;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t left = image[i] + after[i] - (window[i] * stride[i] - before[i]);
      count *= std::min(kernel[i], (left + dilation[i] - 1) / dilation[i]);
    }
    return static_cast<float>(count);
  }
};

// How the work of a pooling is cut: by pixels of the results, or of the image for a gradient, and
// by channels. If a pixel has more terms, windows or their elements, than fit into a chunk, the
// next round goes on.
struct Cut {
  Windows::Point sizes;
  size_t images;
  Chunking pixels, channels;
  int64_t terms_of_round = 0;
  size_t rounds = 1;

  // `average` and the most terms of a pixel.
  Cut(const Windows& windows, const Windows::Point& of, double average, int64_t most)
      : sizes(of), images(windows.images) {
    // Terms take time, however few channels they have.
    constexpr int64_t kOperations = 1 << 23, kOfATerm = 16, kFewChannels = 64;
    const auto all = static_cast<int64_t>(windows.channels);
    const int64_t fit = std::max(kFewChannels, kOperations / most - kOfATerm);
    channels = {windows.channels, static_cast<size_t>(std::min({all, fit, kOperations >> 7}))};
    const auto n = static_cast<int64_t>(channels.per_chunk);
    pixels = ChunkItems(images * static_cast<size_t>(Windows::Size(of)),
                        static_cast<size_t>(std::max(1.0, average) * static_cast<double>(n)));
    terms_of_round = std::min(most, std::max<int64_t>(1, kOperations / (n + kOfATerm)));
    rounds = static_cast<size_t>((most + terms_of_round - 1) / terms_of_round);
  }

  size_t chunks() const { return pixels.chunks() * channels.chunks(); }
  double operations() const {
    return static_cast<double>(pixels.per_chunk * channels.per_chunk) *
           static_cast<double>(terms_of_round);
  }

  // A pixel of a chunk, some of its channels, and the terms of a round.
  struct Item {
    size_t image;
    Windows::Point point;
    size_t element, first_channel, n;  // element: the first channel's
    int64_t begin, end;                // terms
    bool is_first, is_last;            // round
  };
  template <class Visit>
  void ForItems(size_t numbered, const Visit& visit) const {
    const size_t round = numbered / chunks(), chunk = numbered % chunks();
    const size_t of_pixels = chunk / channels.chunks(), block = chunk % channels.chunks();
    const auto per_image = static_cast<size_t>(Windows::Size(sizes));
    const int64_t begin = static_cast<int64_t>(round) * terms_of_round;
    size_t pixel = pixels.begin(of_pixels), image = pixel / per_image;
    Windows::Point point = Windows::At(sizes, static_cast<int64_t>(pixel % per_image));
    for (; pixel < pixels.end(of_pixels); ++pixel) {
      visit(Item{.image = image,
                 .point = point,
                 .element = pixel * channels.items + channels.begin(block),
                 .first_channel = channels.begin(block),
                 .n = channels.size(block),
                 .begin = begin,
                 .end = begin + terms_of_round,
                 .is_first = round == 0,
                 .is_last = round + 1 == rounds});
      if (!Windows::Advance(sizes, point)) ++image;
    }
  }
};

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

Cut CutResults(const Windows& windows) {
  int64_t most = 1;
  for (size_t i = 0; i < 3; ++i) {
    most *= windows.slide ? std::min(windows.kernel[i], windows.image[i])
                          : windows.image[i] / windows.result[i] + 2;
  }
  return {windows, windows.result,
          PixelsOfWindows(windows) / static_cast<double>(Windows::Size(windows.result)), most};
}
Cut CutImage(const Windows& windows) {
  int64_t most = 1;
  for (size_t i = 0; i < 3; ++i) most *= windows.MostWindows(i);
  return {windows, windows.image,
          PixelsOfWindows(windows) / static_cast<double>(Windows::Size(windows.image)), most};
}

// Float32 values of results on their way: where they belong or, over several rounds, in shared
// memory.
struct Pending {
  FloatBlock out;
  bool shared = false;

  float* Of(const Workspace& at, const Cut::Item& item) const {
    return shared ? reinterpret_cast<float*>(at.shared) + item.element
                  : out.Write(at, item.element);
  }
  void Finish(const Workspace& at, const Cut::Item& item) const {
    if (!item.is_last) return;
    if (shared) std::copy_n(Of(at, item), item.n, out.Write(at, item.element));
    out.Store(at, item.element, item.n);
  }
};

// A kernel of one phase, whose results have this many elements.
Kernel MakeKernel(const Cut& cut, size_t elements, const MemoryPlan& scratch,
                  std::function<void(const Workspace&, const Cut::Item&)> run) {
  Kernel kernel = OnePhase(cut.chunks(), scratch.bytes(),
                           [cut, run = std::move(run)](const Workspace& at, size_t chunk) {
                             cut.ForItems(chunk, [&](const Cut::Item& item) { run(at, item); });
                             return absl::OkStatus();
                           });
  kernel.phases[0].rounds = cut.rounds;
  kernel.phases[0].operations = cut.operations();
  if (cut.rounds > 1) kernel.shared_bytes = elements * sizeof(float);
  return kernel;
}

absl::StatusOr<Kernel> PrepareMaxPool(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0),
                indices = ResolveOutput(ipu, instruction, 1);
  const Windows windows(input.type, output.type, instruction);
  const Cut cut = CutResults(windows);
  const size_t n = cut.channels.per_chunk;
  MemoryPlan scratch;
  const FloatBlock in(input, n, scratch);
  const Pending results{FloatBlock(output, n, scratch), cut.rounds > 1};
  return MakeKernel(
      cut, output.elements(), scratch, [=](const Workspace& at, const Cut::Item& item) {
        float* best = results.Of(at, item);
        int32_t* places = indices.As<int32_t>(at) + item.element;
        const size_t first = item.image * static_cast<size_t>(Windows::Size(windows.image));
        const Windows::Box box = windows.PixelsOf(item.point);
        bool is_first = item.is_first;
        if (is_first && Windows::Count(box) == 0) {
          std::fill_n(best, item.n, -std::numeric_limits<float>::infinity());
          std::fill_n(places, item.n, -1);
        }
        Windows::ForPlaces(box, item.begin, item.end, [&](const Windows::Point& point) {
          const int64_t pixel = Windows::Index(windows.image, point);
          const size_t from =
              (first + static_cast<size_t>(pixel)) * windows.channels + item.first_channel;
          const float* row = in.Read(at, from, item.n);
          if (is_first) {
            std::copy_n(row, item.n, best);
            std::fill_n(places, item.n, static_cast<int32_t>(pixel));
            is_first = false;
          } else {
            TakeLargest(row, static_cast<int32_t>(pixel), best, places, item.n);
          }
        });
        results.Finish(at, item);
      });
}

absl::StatusOr<Kernel> PrepareMaxPoolGradient(const program::v1::Ipu& ipu,
                                              const Instruction& instruction) {
  const Operand gradient = Resolve(ipu, instruction.inputs(0)),
                indices = Resolve(ipu, instruction.inputs(1)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(output.type, gradient.type, instruction);
  const Cut cut = CutImage(windows);
  const size_t n = cut.channels.per_chunk;
  MemoryPlan scratch;
  const FloatBlock dy(gradient, n, scratch);
  const Pending results{FloatBlock(output, n, scratch), cut.rounds > 1};
  return MakeKernel(
      cut, output.elements(), scratch, [=](const Workspace& at, const Cut::Item& item) {
        float* sums = results.Of(at, item);
        if (item.is_first) std::fill_n(sums, item.n, 0.0f);
        const auto place = static_cast<int32_t>(Windows::Index(windows.image, item.point));
        const size_t first = item.image * static_cast<size_t>(Windows::Size(windows.result));
        Windows::ForPlaces(
            windows.WindowsOf(item.point), item.begin, item.end, [&](const auto& window) {
              const auto index = static_cast<size_t>(Windows::Index(windows.result, window));
              const size_t from = (first + index) * windows.channels + item.first_channel;
              AddWherePlaceIs(place, indices.As<int32_t>(at) + from, dy.Read(at, from, item.n),
                              sums, item.n);
            });
        results.Finish(at, item);
      });
}

absl::StatusOr<Kernel> PrepareAveragePool(const program::v1::Ipu& ipu,
                                          const Instruction& instruction) {
  const program::v1::AveragePool& op = instruction.average_pool();
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(input.type, output.type, instruction);
  const Cut cut = CutResults(windows);
  const size_t n = cut.channels.per_chunk;
  MemoryPlan scratch;
  const FloatBlock in(input, n, scratch);
  const Pending results{FloatBlock(output, n, scratch), cut.rounds > 1};
  const bool count_padding = op.count_padding();
  return MakeKernel(
      cut, output.elements(), scratch, [=](const Workspace& at, const Cut::Item& item) {
        float* sums = results.Of(at, item);
        if (item.is_first) std::fill_n(sums, item.n, 0.0f);
        const size_t first = item.image * static_cast<size_t>(Windows::Size(windows.image));
        Windows::ForPlaces(
            windows.PixelsOf(item.point), item.begin, item.end, [&](const auto& point) {
              const auto pixel = static_cast<size_t>(Windows::Index(windows.image, point));
              const size_t from = (first + pixel) * windows.channels + item.first_channel;
              AddScaled(in.Read(at, from, item.n), 1, sums, item.n);
            });
        if (item.is_last) Scale(sums, 1 / windows.Divisor(item.point, count_padding), item.n);
        results.Finish(at, item);
      });
}

absl::StatusOr<Kernel> PrepareAveragePoolGradient(const program::v1::Ipu& ipu,
                                                  const Instruction& instruction) {
  const program::v1::AveragePoolGradient& op = instruction.average_pool_gradient();
  const Operand gradient = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(output.type, gradient.type, instruction);
  const Cut cut = CutImage(windows);
  const size_t n = cut.channels.per_chunk;
  MemoryPlan scratch;
  const FloatBlock dy(gradient, n, scratch);
  const Pending results{FloatBlock(output, n, scratch), cut.rounds > 1};
  const bool count_padding = op.count_padding();
  return MakeKernel(
      cut, output.elements(), scratch, [=](const Workspace& at, const Cut::Item& item) {
        float* sums = results.Of(at, item);
        if (item.is_first) std::fill_n(sums, item.n, 0.0f);
        const size_t first = item.image * static_cast<size_t>(Windows::Size(windows.result));
        Windows::ForPlaces(
            windows.WindowsOf(item.point), item.begin, item.end, [&](const auto& window) {
              const auto index = static_cast<size_t>(Windows::Index(windows.result, window));
              const size_t from = (first + index) * windows.channels + item.first_channel;
              AddScaled(dy.Read(at, from, item.n), 1 / windows.Divisor(window, count_padding), sums,
                        item.n);
            });
        results.Finish(at, item);
      });
}

}  // namespace

std::vector<KernelDef> PoolingKernels() {
  return {{Instruction::kMaxPool, PrepareMaxPool},
          {Instruction::kMaxPoolGradient, PrepareMaxPoolGradient},
          {Instruction::kAveragePool, PrepareAveragePool},
          {Instruction::kAveragePoolGradient, PrepareAveragePoolGradient}};
}

}  // namespace vpod::engine
