#include "device/program/ops/pooling.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <tuple>
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

// The geometry of a pooling in three spatial dimensions; those that are missing have size 1.
struct Windows {
  using Point = std::array<int64_t, 3>;
  size_t images = 1, channels = 1;
  Point image{1, 1, 1}, result{1, 1, 1};
  // Of windows that slide; the others divide the image.
  bool slide = false;
  Point kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, before{}, after{};

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
  }

  // The pixels of a window along an axis: `count` of them, a dilation apart, from the first, which
  // may be padding.
  struct Pixels {
    int64_t first, count;
  };
  Pixels Along(size_t axis, int64_t window) const {
    if (slide) return {window * stride[axis] - before[axis], kernel[axis]};
    const auto [begin, end] = program::DividingWindow(image[axis], result[axis], window);
    return {begin, end - begin};
  }

  static int64_t Size(const Point& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
  static Point At(const Point& sizes, int64_t index) {
    return {index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]};
  }
  static int64_t Index(const Point& sizes, const Point& point) {
    return (point[0] * sizes[1] + point[1]) * sizes[2] + point[2];
  }

  // Pixels of all images' results, or of all images, in chunks.
  Chunking Results() const { return ChunksOf(result); }
  Chunking ImagePixels() const { return ChunksOf(image); }
  Chunking ChunksOf(const Point& sizes) const {
    double pixels = 1;  // of all windows
    for (size_t i = 0; i < 3; ++i) {
      pixels *= slide ? static_cast<double>(kernel[i]) * static_cast<double>(result[i])
                      : static_cast<double>(program::DividingPixels(image[i], result[i]));
    }
    const double work = std::max(1.0, pixels / static_cast<double>(Size(sizes)));
    return ChunkItems(images * static_cast<size_t>(Size(sizes)),
                      static_cast<size_t>(work * static_cast<double>(channels)));
  }

  // Calls `visit(pixel of the image)` for the pixels of a window, in row-major order.
  template <class Visit>
  void ForPixels(const Point& window, const Visit& visit) const {
    Point k;
    std::array<Pixels, 3> along;
    for (size_t i = 0; i < 3; ++i) along[i] = Along(i, window[i]);
    const auto place = [&](size_t i) { return along[i].first + k[i] * dilation[i]; };
    const auto inside = [&](size_t i) { return place(i) >= 0 && place(i) < image[i]; };
    for (k[0] = 0; k[0] < along[0].count; ++k[0]) {
      if (!inside(0)) continue;
      for (k[1] = 0; k[1] < along[1].count; ++k[1]) {
        if (!inside(1)) continue;
        for (k[2] = 0; k[2] < along[2].count; ++k[2]) {
          if (inside(2)) visit(Index(image, {place(0), place(1), place(2)}));
        }
      }
    }
  }

  // The first and the last window that a pixel may be in along an axis.
  std::pair<int64_t, int64_t> Touching(size_t axis, int64_t pixel) const {
    if (!slide) {
      return {pixel * result[axis] / image[axis], ((pixel + 1) * result[axis] - 1) / image[axis]};
    }
    const int64_t at = pixel + before[axis], extent = dilation[axis] * (kernel[axis] - 1);
    return {at <= extent ? 0 : (at - extent + stride[axis] - 1) / stride[axis],
            std::min(result[axis] - 1, at / stride[axis])};
  }

  // Calls `visit(window)` for the windows that touch a pixel of the image, in row-major order.
  template <class Visit>
  void ForWindows(const Point& pixel, const Visit& visit) const {
    Point first, last;
    for (size_t i = 0; i < 3; ++i) std::tie(first[i], last[i]) = Touching(i, pixel[i]);
    const auto touches = [&](size_t i, int64_t window) {
      return !slide || (pixel[i] + before[i] - window * stride[i]) % dilation[i] == 0;
    };
    Point w;
    for (w[0] = first[0]; w[0] <= last[0]; ++w[0]) {
      if (!touches(0, w[0])) continue;
      for (w[1] = first[1]; w[1] <= last[1]; ++w[1]) {
        if (!touches(1, w[1])) continue;
        for (w[2] = first[2]; w[2] <= last[2]; ++w[2]) {
          if (touches(2, w[2])) visit(w);
        }
      }
    }
  }

  // What a window's sum is divided by: its elements in the image, or also those in the padding.
  float Divisor(const Point& window, bool count_padding) const {
    int64_t count = 1;
    for (size_t i = 0; i < 3; ++i) {
      const Pixels pixels = Along(i, window[i]);
      int64_t along = 0;
      for (int64_t k = 0; k < pixels.count; ++k) {
        const int64_t at = pixels.first + k * dilation[i];
        along += count_padding ? at < image[i] + after[i] : at >= 0 && at < image[i];
      }
      count *= along;
    }
    return static_cast<float>(count);
  }
};

// Runs `pixel(image, position, index)` for the pixels of a chunk; `index` counts over all images.
template <class Visit>
void ForChunk(const Chunking& pixels, size_t chunk, const Windows::Point& sizes,
              const Visit& visit) {
  const auto per_image = static_cast<size_t>(Windows::Size(sizes));
  for (size_t index = pixels.begin(chunk); index < pixels.end(chunk); ++index) {
    visit(index / per_image, Windows::At(sizes, static_cast<int64_t>(index % per_image)), index);
  }
}

absl::StatusOr<Kernel> PrepareMaxPool(const program::v1::Ipu& ipu, const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0),
                indices = ResolveOutput(ipu, instruction, 1);
  const Windows windows(input.type, output.type, instruction);
  const size_t n = windows.channels;
  const Chunking results = windows.Results();
  MemoryPlan scratch;
  const FloatBlock in(input, n, scratch), out(output, n, scratch);
  return OnePhase(results.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    ForChunk(results, chunk, windows.result, [&](size_t image, auto window, size_t index) {
      float* best = out.Write(at, index * n);
      int32_t* places = indices.As<int32_t>(at) + index * n;
      const size_t first = image * static_cast<size_t>(Windows::Size(windows.image));
      bool is_first = true;
      windows.ForPixels(window, [&](int64_t pixel) {
        const float* row = in.Read(at, (first + static_cast<size_t>(pixel)) * n, n);
        if (is_first) {
          std::copy_n(row, n, best);
          std::fill_n(places, n, static_cast<int32_t>(pixel));
          is_first = false;
        } else {
          TakeLargest(row, static_cast<int32_t>(pixel), best, places, n);
        }
      });
      if (is_first) {
        std::fill_n(best, n, -std::numeric_limits<float>::infinity());
        std::fill_n(places, n, -1);
      }
      out.Store(at, index * n, n);
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> PrepareMaxPoolGradient(const program::v1::Ipu& ipu,
                                              const Instruction& instruction) {
  const Operand gradient = Resolve(ipu, instruction.inputs(0)),
                indices = Resolve(ipu, instruction.inputs(1)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(output.type, gradient.type, instruction);
  const size_t n = windows.channels;
  const Chunking pixels = windows.ImagePixels();
  MemoryPlan scratch;
  const FloatBlock dy(gradient, n, scratch), dx(output, n, scratch);
  return OnePhase(pixels.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    ForChunk(pixels, chunk, windows.image, [&](size_t image, auto pixel, size_t index) {
      float* sums = dx.Write(at, index * n);
      std::fill_n(sums, n, 0.0f);
      const auto place = static_cast<int32_t>(Windows::Index(windows.image, pixel));
      const size_t first = image * static_cast<size_t>(Windows::Size(windows.result));
      windows.ForWindows(pixel, [&](const Windows::Point& window) {
        const size_t from =
            (first + static_cast<size_t>(Windows::Index(windows.result, window))) * n;
        AddWherePlaceIs(place, indices.As<int32_t>(at) + from, dy.Read(at, from, n), sums, n);
      });
      dx.Store(at, index * n, n);
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> PrepareAveragePool(const program::v1::Ipu& ipu,
                                          const Instruction& instruction) {
  const program::v1::AveragePool& op = instruction.average_pool();
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(input.type, output.type, instruction);
  const size_t n = windows.channels;
  const Chunking results = windows.Results();
  MemoryPlan scratch;
  const FloatBlock in(input, n, scratch), out(output, n, scratch);
  const bool count_padding = op.count_padding();
  return OnePhase(results.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    ForChunk(results, chunk, windows.result, [&](size_t image, auto window, size_t index) {
      float* sums = out.Write(at, index * n);
      std::fill_n(sums, n, 0.0f);
      const size_t first = image * static_cast<size_t>(Windows::Size(windows.image));
      windows.ForPixels(window, [&](int64_t pixel) {
        AddScaled(in.Read(at, (first + static_cast<size_t>(pixel)) * n, n), 1, sums, n);
      });
      Scale(sums, 1 / windows.Divisor(window, count_padding), n);
      out.Store(at, index * n, n);
    });
    return absl::OkStatus();
  });
}

absl::StatusOr<Kernel> PrepareAveragePoolGradient(const program::v1::Ipu& ipu,
                                                  const Instruction& instruction) {
  const program::v1::AveragePoolGradient& op = instruction.average_pool_gradient();
  const Operand gradient = Resolve(ipu, instruction.inputs(0)),
                output = ResolveOutput(ipu, instruction, 0);
  const Windows windows(output.type, gradient.type, instruction);
  const size_t n = windows.channels;
  const Chunking pixels = windows.ImagePixels();
  MemoryPlan scratch;
  const FloatBlock dy(gradient, n, scratch), dx(output, n, scratch);
  const bool count_padding = op.count_padding();
  return OnePhase(pixels.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    ForChunk(pixels, chunk, windows.image, [&](size_t image, auto pixel, size_t index) {
      float* sums = dx.Write(at, index * n);
      std::fill_n(sums, n, 0.0f);
      const size_t first = image * static_cast<size_t>(Windows::Size(windows.result));
      windows.ForWindows(pixel, [&](const Windows::Point& window) {
        const size_t from =
            (first + static_cast<size_t>(Windows::Index(windows.result, window))) * n;
        AddScaled(dy.Read(at, from, n), 1 / windows.Divisor(window, count_padding), sums, n);
      });
      dx.Store(at, index * n, n);
    });
    return absl::OkStatus();
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
