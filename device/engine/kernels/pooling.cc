#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "device/base/simd.h"
#include "device/engine/kernels/pooling_windows.h"
#include "device/engine/kernels/read_once.h"

namespace vpod::engine {
namespace {

// --- Loops over channels, which lie side by side ---

// Places along a dimension: how many, and from one to the next in elements and in pixels.
struct Steps {
  int64_t count, elements, pixels;
};
using Walk = std::array<Steps, 3>;

// Takes the elements of the pixels that are larger, or not numbers, with their pixel; of equal ones
// the first counts. `is_first`: there is nothing to compare the first with.
template <class Float, class Int>
inline __attribute__((always_inline)) void TakeLargestOfLanes(const float* row, const Walk& walk,
                                                              int32_t pixel, bool is_first,
                                                              float* best, int32_t* pixels) {
  Float largest, x;
  Int place = Int{} + pixel;
  __builtin_memcpy(&largest, is_first ? row : best, sizeof(largest));
  if (!is_first) __builtin_memcpy(&place, pixels, sizeof(place));
  for (int64_t i = 0; i < walk[0].count; ++i) {
    for (int64_t j = 0; j < walk[1].count; ++j) {
      const float* from = row + i * walk[0].elements + j * walk[1].elements;
      auto at = static_cast<uint32_t>(pixel + i * walk[0].pixels + j * walk[1].pixels);
      for (int64_t k = 0; k < walk[2].count; ++k) {
        __builtin_memcpy(&x, from, sizeof(x));
        const auto takes = (x > largest) | ((x != x) & (largest == largest));
        largest = takes ? x : largest;
        place = takes ? Int{} + static_cast<int32_t>(at) : place;
        from += walk[2].elements;
        at += static_cast<uint32_t>(walk[2].pixels);
      }
    }
  }
  __builtin_memcpy(best, &largest, sizeof(largest));
  __builtin_memcpy(pixels, &place, sizeof(place));
}

// Windows side by side, and from one to the next.
struct Line {
  size_t windows;
  int64_t elements, pixels;  // of the image
  size_t results;
};

// Takes the largest elements of n channels, a vector of lanes at a time. The last vector overlaps
// the one before it, which changes nothing.
VPOD_SIMD void TakeLargest(const float* row, const Line& line, const Walk& walk, int32_t pixel,
                           bool is_first, float* best, int32_t* pixels, size_t n) {
  typedef float Floats __attribute__((vector_size(32)));
  typedef int32_t Ints __attribute__((vector_size(32)));
  constexpr size_t kLanes = 8;
  for (size_t window = 0; window < line.windows; ++window) {
    if (n < kLanes) {
      for (size_t c = 0; c < n; ++c)
        TakeLargestOfLanes<float, int32_t>(row + c, walk, pixel, is_first, best + c, pixels + c);
    } else {
      for (size_t c = 0; c < n; c += kLanes) {
        c = std::min(c, n - kLanes);
        TakeLargestOfLanes<Floats, Ints>(row + c, walk, pixel, is_first, best + c, pixels + c);
      }
    }
    row += line.elements;
    // Beyond the image after the last one.
    pixel = static_cast<int32_t>(static_cast<uint32_t>(pixel) + static_cast<uint32_t>(line.pixels));
    best += line.results;
    pixels += line.results;
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

// --- Operands of a chunk ---

// The input of a chunk as float32, read all at once if it is small.
class ChunkInput {
 public:
  ChunkInput(const FloatBlock& block, const Workspace& at) : block_(block), at_(at) {}

  void ReadAll(size_t begin, size_t n) {
    all_ = block_.Read(at_, begin, n);
    begin_ = begin;
  }
  // Elements around this one can be read, too.
  bool has_all() const { return all_ != nullptr; }
  const float* Row(size_t begin, size_t n) const {
    return has_all() ? all_ + (begin - begin_) : block_.Read(at_, begin, n);
  }

 private:
  const FloatBlock& block_;
  const Workspace& at_;
  const float* all_ = nullptr;
  size_t begin_ = 0;
};

// A pooling whose chunks write consecutive elements or, if channels are cut, rows of them.
struct Pooling {
  PoolCut cut;
  FloatBlock in, out;
  bool reads_all = false;   // what a chunk reads is read at once
  bool writes_all = false;  // what a chunk writes is stored at once

  Pooling(const Operand& input, const Operand& output, const PoolCut& of, MemoryPlan& scratch)
      : cut(of), writes_all(cut.channels.chunks() == 1 && cut.rounds == 1) {
    // More would leave the second-level cache, or take long to look at; float32 is read where it
    // lies.
    constexpr size_t kMostElements = size_t{1} << 19, kMostChunks = size_t{1} << 14;
    const size_t n = cut.channels.per_chunk;
    const bool half = input.type.type == program::v1::FLOAT16;
    size_t most = 0;
    if (writes_all && half && cut.points.chunks() <= kMostChunks) {
      for (size_t i = 0; i < cut.points.chunks(); ++i) {
        const PoolCut::Range range = cut.ReadBy(i);
        most = std::max(most, (range.end - range.begin) * n);
      }
    }
    reads_all = writes_all && (!half || (most > 0 && most <= kMostElements));
    in = FloatBlock(input, reads_all ? most : n, scratch);
    out = FloatBlock(output, writes_all ? cut.points.per_chunk * n : n, scratch);
  }

  // Calls `run(input, item, sums)`; the sums of an item are where it belongs or, over several
  // rounds, in shared memory. If the input has all, `run` may take more than one point.
  template <class Run>
  void ForItems(const Workspace& at, size_t chunk, const Run& run) const {
    ChunkInput input(in, at);
    const size_t n = cut.channels.items;
    if (writes_all) {
      if (reads_all) {
        const PoolCut::Range range = cut.ReadBy(chunk);
        input.ReadAll(range.begin * n, (range.end - range.begin) * n);
      }
      const size_t first = cut.points.begin(chunk) * n;
      float* all = out.Write(at, first);
      cut.ForItems(chunk, [&](auto& item) { run(input, item, all + (item.element - first)); });
      out.Store(at, first, cut.points.size(chunk) * n);
      return;
    }
    cut.ForItems(chunk, [&](PoolCut::Item& item) {
      float* sums = cut.rounds > 1 ? reinterpret_cast<float*>(at.shared) + item.element
                                   : out.Write(at, item.element);
      run(input, item, sums);
      if (!item.is_last) return;
      if (cut.rounds > 1) std::copy_n(sums, item.n, out.Write(at, item.element));
      out.Store(at, item.element, item.n);
    });
  }

  // Calls `visit(place, element)` for the places that an item reads in this round; `element` is the
  // first of the item's channels there.
  template <class Visit>
  void ForRows(const PoolCut::Item& item, const Visit& visit) const {
    const Windows::Point& sizes = cut.read();
    const size_t first = item.image * static_cast<size_t>(Windows::Size(sizes));
    Windows::ForPlaces(item.box, item.begin, item.end, [&](const Windows::Point& place) {
      const size_t index = first + static_cast<size_t>(Windows::Index(sizes, place));
      visit(place, index * cut.channels.items + item.first_channel);
    });
  }
};

// A kernel of one phase with `run(at, input, item, sums)`, which writes `elements` sums.
template <class Run>
Kernel MakeKernel(const Pooling& pooling, size_t elements, const MemoryPlan& scratch,
                  const Run& run) {
  const PoolCut& cut = pooling.cut;
  Kernel kernel =
      OnePhase(cut.chunks(), scratch.bytes(), [pooling, run](const Workspace& at, size_t chunk) {
        pooling.ForItems(at, chunk, [&](const auto& input, auto& item, float* sums) {
          run(at, input, item, sums);
        });
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
  MemoryPlan scratch;
  const Pooling pooling(input, output, PoolCut(windows, PoolBy::kResults), scratch);
  const auto stride = static_cast<int64_t>(windows.channels);
  const Windows::Point pixels{windows.image[1] * windows.image[2], windows.image[2], 1};
  return MakeKernel(
      pooling, output.elements(), scratch,
      [=](const Workspace& at, const ChunkInput& in, PoolCut::Item& item, float* best) {
        int32_t* places = indices.As<int32_t>(at) + item.element;
        const auto take = [&](const Windows::Point& place, size_t element, const Line& line,
                              const Walk& walk, bool is_first) {
          TakeLargest(in.Row(element, item.n), line, walk,
                      static_cast<int32_t>(Windows::Index(windows.image, place)), is_first, best,
                      places, item.n);
        };
        if (item.is_first && Windows::Count(item.box) == 0) {
          std::fill_n(best, item.n, -std::numeric_limits<float>::infinity());
          std::fill_n(places, item.n, -1);
          return;
        }
        if (!in.has_all()) {
          bool is_first = item.is_first;
          pooling.ForRows(item, [&](const Windows::Point& place, size_t element) {
            take(place, element, {1, 0, 0, 0}, {{{1, 0, 0}, {1, 0, 0}, {1, 0, 0}}}, is_first);
            is_first = false;
          });
          return;
        }
        Walk walk;
        Windows::Point first;
        for (size_t i = 0; i < 3; ++i) {
          const Windows::Places& along = item.box[i];
          first[i] = along.first;
          const int64_t step = along.count > 1 ? along.step * pixels[i] : 0;
          walk[i] = {along.count, step * stride, step};
        }
        const size_t pixel = item.image * windows.image_pixels() +
                             static_cast<size_t>(Windows::Index(windows.image, first));
        const auto like = static_cast<size_t>(pooling.cut.LikeWindow(item.point[2]));
        item.taken = std::min(like, item.left);
        const int64_t step = item.taken > 1 ? windows.stride[2] : 0;
        const Line line{item.taken, step * stride, step, windows.channels};
        take(first, pixel * windows.channels, line, walk, true);
      });
}

// --- Gradient of the maximum ---
// It is added where the largest element of each window was. Windows of an image follow one another,
// so that the sum of a pixel has one order.

// Chunks of images, and of channels, with few enough pixels and windows for one chunk.
struct ImageCut {
  Chunking images, channels;
  size_t points;  // of an image, pixels and windows

  explicit ImageCut(const Windows& windows)
      : points(windows.image_pixels() + windows.result_pixels()) {
    constexpr size_t kElements = size_t{1} << 15;
    const size_t few = std::min(windows.channels, kFewChannels);
    channels = {windows.channels,
                std::clamp(kElements / points / few * few, few, windows.channels)};
    const size_t fit = kElements / (points * channels.per_chunk);
    images = {windows.images, std::clamp<size_t>(fit, 1, std::max<size_t>(1, windows.images))};
  }

  static bool Fits(const Windows& windows) {
    constexpr size_t kMostElements = size_t{1} << 20;
    return windows.image_pixels() + windows.result_pixels() <=
           kMostElements / std::min(windows.channels, kFewChannels);
  }
  double operations() const {
    return static_cast<double>(images.per_chunk * channels.per_chunk * points);
  }

  static constexpr size_t kFewChannels = 16;
};

// Some channels of an image, float32 where they lie, float16 by way of scratch.
struct ImageGradient {
  size_t pixels, windows, channels;
  bool by_rows;  // float16 with channels cut is read and stored by rows
  Operand indices;
  FloatBlock dy, dx;
  size_t sums = 0;  // in scratch, if by rows

  void Run(const Workspace& at, size_t image, size_t first_channel, size_t n) const {
    const size_t first = image * pixels * channels + first_channel,
                 first_window = image * windows * channels + first_channel;
    float* to = by_rows ? reinterpret_cast<float*>(at.scratch + sums) : dx.Write(at, first);
    const size_t row = by_rows ? n : channels;
    const size_t fills = n == row ? 1 : pixels, filled = n == row ? pixels * n : n;
    for (size_t i = 0; i < fills; ++i) std::fill_n(to + i * row, filled, 0.0f);
    const float* all = by_rows ? nullptr : dy.Read(at, first_window, windows * channels);
    const int32_t* places = indices.As<int32_t>(at) + first_window;
    for (size_t window = 0; window < windows; ++window, places += channels) {
      const float* from =
          by_rows ? dy.Read(at, first_window + window * channels, n) : all + window * channels;
      for (size_t c = 0; c < n; ++c) {
        // -1 where a window is empty; what else is outside the image is not from a max-pooling.
        const auto place = static_cast<uint32_t>(ReadOnce(places + c));
        if (place < pixels) to[place * row + c] += from[c];
      }
    }
    if (!by_rows) return dx.Store(at, first, pixels * channels);
    for (size_t pixel = 0; pixel < pixels; ++pixel) {
      const size_t element = first + pixel * channels;
      std::copy_n(to + pixel * n, n, dx.Write(at, element));
      dx.Store(at, element, n);
    }
  }
};

Kernel MaxPoolGradientByImages(const Operand& gradient, const Operand& indices,
                               const Operand& output, const Windows& windows) {
  const ImageCut cut(windows);
  const size_t n = cut.channels.per_chunk;
  const bool by_rows = output.type.type == program::v1::FLOAT16 && cut.channels.chunks() > 1;
  MemoryPlan scratch;
  ImageGradient image{.pixels = windows.image_pixels(),
                      .windows = windows.result_pixels(),
                      .channels = windows.channels,
                      .by_rows = by_rows,
                      .indices = indices};
  image.dy = FloatBlock(gradient, by_rows ? n : image.windows * n, scratch);
  image.dx = FloatBlock(output, by_rows ? n : image.pixels * n, scratch);
  if (by_rows) image.sums = scratch.Add(image.pixels * n * sizeof(float));
  Kernel kernel =
      OnePhase(cut.images.chunks() * cut.channels.chunks(), scratch.bytes(),
               [cut, image](const Workspace& at, size_t chunk) {
                 const size_t of_images = chunk / cut.channels.chunks(),
                              block = chunk % cut.channels.chunks();
                 for (size_t i = cut.images.begin(of_images); i < cut.images.end(of_images); ++i)
                   image.Run(at, i, cut.channels.begin(block), cut.channels.size(block));
                 return absl::OkStatus();
               });
  kernel.phases[0].operations = cut.operations();
  return kernel;
}

absl::StatusOr<Kernel> PrepareMaxPoolGradient(const program::v1::Ipu& ipu,
                                              const Instruction& instruction) {
  const Operand gradient = Resolve(ipu, instruction.inputs(0)),
                indices = Resolve(ipu, instruction.inputs(1)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(output.type, gradient.type, instruction);
  if (ImageCut::Fits(windows)) return MaxPoolGradientByImages(gradient, indices, output, windows);
  MemoryPlan scratch;
  const Pooling pooling(gradient, output, PoolCut(windows, PoolBy::kImage), scratch);
  return MakeKernel(
      pooling, output.elements(), scratch,
      [=](const Workspace& at, const ChunkInput& dy, PoolCut::Item& item, float* sums) {
        if (item.is_first) std::fill_n(sums, item.n, 0.0f);
        const auto place = static_cast<int32_t>(Windows::Index(windows.image, item.point));
        pooling.ForRows(item, [&](const Windows::Point&, size_t element) {
          AddWherePlaceIs(place, indices.As<int32_t>(at) + element, dy.Row(element, item.n), sums,
                          item.n);
        });
      });
}

// --- Mean ---

absl::StatusOr<Kernel> PrepareAveragePool(const program::v1::Ipu& ipu,
                                          const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(input.type, output.type, instruction);
  MemoryPlan scratch;
  const Pooling pooling(input, output, PoolCut(windows, PoolBy::kResults), scratch);
  const bool count_padding = instruction.average_pool().count_padding();
  return MakeKernel(pooling, output.elements(), scratch,
                    [=](const Workspace&, const ChunkInput& in, PoolCut::Item& item, float* sums) {
                      if (item.is_first) std::fill_n(sums, item.n, 0.0f);
                      pooling.ForRows(item, [&](const Windows::Point&, size_t element) {
                        AddScaled(in.Row(element, item.n), 1, sums, item.n);
                      });
                      if (item.is_last)
                        Scale(sums, 1 / windows.Divisor(item.point, count_padding), item.n);
                    });
}

absl::StatusOr<Kernel> PrepareAveragePoolGradient(const program::v1::Ipu& ipu,
                                                  const Instruction& instruction) {
  const Operand gradient = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(output.type, gradient.type, instruction);
  MemoryPlan scratch;
  const Pooling pooling(gradient, output, PoolCut(windows, PoolBy::kImage), scratch);
  const bool count_padding = instruction.average_pool_gradient().count_padding();
  return MakeKernel(pooling, output.elements(), scratch,
                    [=](const Workspace&, const ChunkInput& dy, PoolCut::Item& item, float* sums) {
                      if (item.is_first) std::fill_n(sums, item.n, 0.0f);
                      pooling.ForRows(item, [&](const Windows::Point& window, size_t element) {
                        AddScaled(dy.Row(element, item.n),
                                  1 / windows.Divisor(window, count_padding), sums, item.n);
                      });
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
