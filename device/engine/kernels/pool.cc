#include <algorithm>
#include <cstring>
#include <limits>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

VPOD_SIMD void MaxInto(float* best, const float* row, size_t n) {
  for (size_t i = 0; i < n; ++i) best[i] = row[i] > best[i] ? row[i] : best[i];
}

// Adds the gradient where the row holds the maximum and no earlier element of the window did.
VPOD_SIMD void RouteGradient(const float* row, const float* best, const float* gradient,
                             float* taken, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const bool hit = row[i] == best[i] && taken[i] == 0.0f;
    out[i] += hit ? gradient[i] : 0.0f;
    taken[i] = hit ? 1.0f : taken[i];
  }
}

// Visits the image positions under the window of result position (y, x) that lie inside the image.
struct Windows {
  int64_t images, height, width, channels;  // input
  int64_t out_height, out_width;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;

  Windows(const program::Dims& input, const program::Dims& output,
          const program::v1::Window& window)
      : images(input[0]),
        height(input[1]),
        width(input[2]),
        channels(input[3]),
        out_height(output[1]),
        out_width(output[2]),
        kernel_h(window.kernel_h()),
        kernel_w(window.kernel_w()),
        stride_h(window.stride_h()),
        stride_w(window.stride_w()),
        pad_top(window.pad_top()),
        pad_left(window.pad_left()) {}

  template <class Visit>
  void ForResult(const Visit& visit) const {
    int64_t result = 0;
    for (int64_t n = 0; n < images; ++n) {
      for (int64_t y = 0; y < out_height; ++y) {
        for (int64_t x = 0; x < out_width; ++x) visit(n, y, x, channels * result++);
      }
    }
  }

  template <class Visit>
  void ForWindow(int64_t n, int64_t y, int64_t x, const Visit& visit) const {
    const int64_t top = y * stride_h - pad_top, left = x * stride_w - pad_left;
    for (int64_t i = std::max<int64_t>(0, top); i < std::min(height, top + kernel_h); ++i) {
      for (int64_t j = std::max<int64_t>(0, left); j < std::min(width, left + kernel_w); ++j) {
        visit(((n * height + i) * width + j) * channels);
      }
    }
  }
};

absl::StatusOr<Kernel> PrepareMaxPool2d(const program::v1::Ipu& ipu,
                                        const Instruction& instruction) {
  const program::v1::MaxPool2d& op = instruction.max_pool2d();
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const Windows windows(input.type.dims, output.type.dims, op.window());
  return [=](std::byte* arena) {
    const float* in = ReadFloats(input, arena, 0);
    float* out = WriteFloats(output, arena, 1);
    std::fill_n(out, output.elements(), -std::numeric_limits<float>::infinity());
    windows.ForResult([&](int64_t n, int64_t y, int64_t x, int64_t to) {
      windows.ForWindow(n, y, x,
                        [&](int64_t from) { MaxInto(out + to, in + from, windows.channels); });
    });
    StoreFloats(output, arena, out);
    return absl::OkStatus();
  };
}

absl::StatusOr<Kernel> PrepareMaxPool2dGradient(const program::v1::Ipu& ipu,
                                                const Instruction& instruction) {
  const program::v1::MaxPool2dGradient& op = instruction.max_pool2d_gradient();
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output_gradient = Resolve(ipu, instruction.inputs(1)),
                input_gradient = Resolve(ipu, instruction.outputs(0));
  const Windows windows(input.type.dims, output_gradient.type.dims, op.window());
  return [=](std::byte* arena) {
    const float* in = ReadFloats(input, arena, 0);
    const float* gradient = ReadFloats(output_gradient, arena, 1);
    float* out = WriteFloats(input_gradient, arena, 2);
    std::fill_n(out, input_gradient.elements(), 0.0f);
    const size_t channels = windows.channels;
    float* best = Scratch::OfThisThread().Floats(3, 2 * channels);
    float* taken = best + channels;
    windows.ForResult([&](int64_t n, int64_t y, int64_t x, int64_t at) {
      std::fill_n(best, channels, -std::numeric_limits<float>::infinity());
      std::fill_n(taken, channels, 0.0f);
      windows.ForWindow(n, y, x, [&](int64_t from) { MaxInto(best, in + from, channels); });
      windows.ForWindow(n, y, x, [&](int64_t from) {
        RouteGradient(in + from, best, gradient + at, taken, out + from, channels);
      });
    });
    StoreFloats(input_gradient, arena, out);
    return absl::OkStatus();
  };
}

}  // namespace

std::vector<KernelDef> PoolKernels() {
  return {{Instruction::kMaxPool2D, PrepareMaxPool2d},
          {Instruction::kMaxPool2DGradient, PrepareMaxPool2dGradient}};
}

}  // namespace vpod::engine
