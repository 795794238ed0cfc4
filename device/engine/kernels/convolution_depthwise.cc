// Gradient of the weights where each channel is a group of its own, for windows of which oneDNN has
// no implementation for such groups: it would multiply blocks of 16 × 16 channels and use 16 of the
// 256 results.
#include <algorithm>
#include <memory>

#include "device/base/simd.h"
#include "device/engine/kernels/convolution_blocks.h"
#include "device/engine/kernels/convolution_box.h"

namespace vpod::engine {
namespace {

// Channels of a block, which lie side by side.
constexpr int64_t kLanes = 16;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

// Rows of the window that are summed at once, their sums in registers.
constexpr int64_t kMostTaps = 8;

// sums[tap] += x[pixel * step + tap * tap_step] * dy[pixel] over n pixels of a row, in order.
template <int64_t kTaps>
inline __attribute__((always_inline)) void AddTaps(const float* x, int64_t step, int64_t tap_step,
                                                   const float* dy, int64_t n, float* sums,
                                                   int64_t sums_step) {
  Lanes of_row[kTaps] = {};
  for (int64_t pixel = 0; pixel < n; ++pixel) {
    Lanes gradient;
    __builtin_memcpy(&gradient, dy + pixel * kLanes, sizeof(Lanes));
#pragma GCC unroll 8
    for (int64_t tap = 0; tap < kTaps; ++tap) {
      Lanes value;
      __builtin_memcpy(&value, x + pixel * step + tap * tap_step, sizeof(Lanes));
      of_row[tap] += value * gradient;
    }
  }
  for (int64_t tap = 0; tap < kTaps; ++tap) {
    Lanes sum;
    __builtin_memcpy(&sum, sums + tap * sums_step, sizeof(Lanes));
    sum += of_row[tap];
    __builtin_memcpy(sums + tap * sums_step, &sum, sizeof(Lanes));
  }
}

VPOD_SIMD void AddRow(int64_t taps, const float* x, int64_t step, int64_t tap_step, const float* dy,
                      int64_t n, float* sums, int64_t sums_step) {
  const auto add = [&]<int64_t kTaps>() __attribute__((always_inline)) {
    AddTaps<kTaps>(x, step, tap_step, dy, n, sums, sums_step);
  };
  switch (taps) {
    case 1:
      return add.template operator()<1>();
    case 2:
      return add.template operator()<2>();
    case 3:
      return add.template operator()<3>();
    case 4:
      return add.template operator()<4>();
    case 5:
      return add.template operator()<5>();
    case 6:
      return add.template operator()<6>();
    case 7:
      return add.template operator()<7>();
    default:
      return add.template operator()<kMostTaps>();
  }
}

int64_t CeilDiv(int64_t a, int64_t b) { return a <= 0 ? -(-a / b) : (a + b - 1) / b; }

// One of the two dimensions of a window.
struct Line {
  int64_t image, result, kernel, stride, dilation, before;

  Line(const ConvolutionShape& s, size_t axis)
      : image(s.image[axis]),
        result(s.result[axis]),
        kernel(s.kernel[axis]),
        stride(s.stride[axis]),
        dilation(s.dilation[axis]),
        before(s.pad_before[axis]) {}

  struct Range {
    int64_t begin, end;
  };
  // The pixel under an element of the window of a result, which may lie outside of the image.
  int64_t PixelOf(int64_t of_result, int64_t tap) const {
    return of_result * stride - before + tap * dilation;
  }
  // The results for which that pixel is inside.
  Range ResultsOf(int64_t tap) const {
    return {std::max<int64_t>(0, CeilDiv(before - tap * dilation, stride)),
            std::min(result, CeilDiv(image + before - tap * dilation, stride))};
  }
  // The elements of the window for which it is inside.
  Range TapsOf(int64_t of_result) const {
    const int64_t first = of_result * stride - before;
    return {std::max<int64_t>(0, CeilDiv(-first, dilation)),
            std::min(kernel, CeilDiv(image - first, dilation))};
  }
};

struct DepthwiseWeightGradient {
  ConvolutionStep step;
  Line rows, columns;
  BoxBlock image, gradient;
  size_t sums_at = 0;                              // in scratch
  size_t wide_image_at = 0, wide_gradient_at = 0;  // the last channels, as a whole block

  int64_t taps() const { return rows.kernel * columns.kernel; }

  // The last block may have fewer channels; zeros fill it up.
  static const float* Widen(const float* from, int64_t pixels, int64_t channels, float* to) {
    if (channels == kLanes) return from;
    std::fill_n(to, pixels * kLanes, 0.0f);
    for (int64_t pixel = 0; pixel < pixels; ++pixel)
      std::copy_n(from + pixel * channels, channels, to + pixel * kLanes);
    return to;
  }

  absl::Status Run(const Workspace& at, size_t block) const {
    const ConvolutionShape& s = step.shape;
    const int64_t first = static_cast<int64_t>(block) * kLanes;
    const Box::Span channels{first, std::min(kLanes, s.channels - first)};
    auto* sums = reinterpret_cast<float*>(at.scratch + sums_at);
    std::fill_n(sums, taps() * kLanes, 0.0f);
    for (int64_t i = 0; i < s.images; ++i) {
      const Box x{{i, 1}, channels, {{{0, s.image[0]}, {0, s.image[1]}}}},
          dy{{i, 1}, channels, {{{0, s.result[0]}, {0, s.result[1]}}}};
      AddImage(Widen(image.Read(at, x), s.image_pixels(), channels.size,
                     reinterpret_cast<float*>(at.scratch + wide_image_at)),
               Widen(gradient.Read(at, dy), s.result_pixels(), channels.size,
                     reinterpret_cast<float*>(at.scratch + wide_gradient_at)),
               sums);
    }
    Write(at, channels, sums);
    return absl::OkStatus();
  }

  // Sums of rows are added to those of all rows so far: long sums in float32 lose little.
  void AddImage(const float* x, const float* dy, float* sums) const {
    const int64_t row = columns.image * kLanes;
    for (int64_t column = 0; column < columns.kernel; ++column) {
      const Line::Range results = columns.ResultsOf(column);
      if (results.begin >= results.end) continue;
      const int64_t pixel = columns.PixelOf(results.begin, column);
      for (int64_t r = 0; r < rows.result; ++r) {
        const Line::Range taps = rows.TapsOf(r);
        const float* gradients = dy + (r * columns.result + results.begin) * kLanes;
        for (int64_t tap = taps.begin; tap < taps.end; tap += kMostTaps) {
          AddRow(std::min(kMostTaps, taps.end - tap),
                 x + rows.PixelOf(r, tap) * row + pixel * kLanes, columns.stride * kLanes,
                 rows.dilation * row, gradients, results.end - results.begin,
                 sums + (tap * columns.kernel + column) * kLanes, columns.kernel * kLanes);
        }
      }
    }
  }

  // Weights may lie in any order.
  void Write(const Workspace& at, const Box::Span& channels, const float* sums) const {
    const program::Dims& strides = step.output.strides;
    for (int64_t c = 0; c < channels.size; ++c) {
      for (int64_t tap = 0; tap < taps(); ++tap) {
        const int64_t place = (channels.first + c) * strides[0] +
                              tap / columns.kernel * strides[2] + tap % columns.kernel * strides[3];
        const float* sum = sums + tap * kLanes + c;
        if (step.output.type.type != program::v1::FLOAT16) {
          step.output.As<float>(at)[place] = *sum;
          continue;
        }
        const auto number = static_cast<uint64_t>(NumberAt(step.output, place));
        RoundToHalves(step.output, at, number, 1, sum, step.output.As<_Float16>(at) + place, 1);
      }
    }
  }
};

}  // namespace

std::optional<Kernel> PrepareDepthwiseWeightGradient(const ConvolutionStep& step,
                                                     const ConvolutionLimits& limits) {
  const ConvolutionShape& s = step.shape;
  const auto pixels = static_cast<size_t>(s.image_pixels()),
             results = static_cast<size_t>(s.result_pixels());
  const double operations = s.operations() / static_cast<double>(s.channels) * kLanes;
  const bool fits = operations <= limits.most_operations &&
                    std::max(s.image_pixels(), s.result_pixels()) * kLanes <= limits.elements;
  if (s.groups != s.channels || s.groups != s.outputs || s.rank() != 2 || !fits)
    return std::nullopt;
  MemoryPlan scratch;
  const bool gaps = s.channels > kLanes;
  const auto conv = std::make_shared<DepthwiseWeightGradient>(
      DepthwiseWeightGradient{.step = step, .rows = Line(s, 0), .columns = Line(s, 1)});
  conv->image = BoxBlock(step.a, pixels * kLanes, gaps, scratch);
  conv->gradient = BoxBlock(step.b, results * kLanes, gaps, scratch);
  conv->sums_at = scratch.Add(static_cast<size_t>(conv->taps() * kLanes) * sizeof(float));
  if (s.channels % kLanes != 0) {
    conv->wide_image_at = scratch.Add(pixels * kLanes * sizeof(float));
    conv->wide_gradient_at = scratch.Add(results * kLanes * sizeof(float));
  }
  Kernel kernel{.scratch_bytes = scratch.bytes()};
  kernel.implementations = {"depthwise"};
  AddPhase(kernel, static_cast<size_t>(CeilDiv(s.channels, kLanes)), operations,
           [conv](const Workspace& at, size_t block) { return conv->Run(at, block); });
  return kernel;
}

}  // namespace vpod::engine
