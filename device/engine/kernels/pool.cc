#include <algorithm>
#include <cstring>
#include <limits>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"

namespace vpod::engine {
namespace {

// Not-a-number wins against any number.
VPOD_SIMD void MaxInto(float* best, const float* row, size_t n) {
  for (size_t i = 0; i < n; ++i) best[i] = row[i] > best[i] || row[i] != row[i] ? row[i] : best[i];
}

// Adds the gradient where the row holds the maximum and no earlier element of the window did.
VPOD_SIMD void RouteGradient(const float* row, const float* best, const float* gradient,
                             float* taken, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const bool equal = row[i] == best[i] || (row[i] != row[i] && best[i] != best[i]);
    const bool hit = equal && taken[i] == 0.0f;
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

  // Windows of all images.
  Chunking results() const {
    return ChunkItems(static_cast<size_t>(images * out_height * out_width),
                      static_cast<size_t>(channels * kernel_h * kernel_w));
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
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output = Resolve(ipu, instruction.outputs(0));
  const Windows windows(input.type.dims, output.type.dims, instruction.max_pool2d().window());
  const Chunking results = windows.results();
  const auto channels = static_cast<size_t>(windows.channels);
  MemoryPlan scratch;
  const FloatBlock in_block(input, channels, scratch), out_block(output, channels, scratch);
  return OnePhase(results.chunks(), scratch.bytes(), [=](const Workspace& at, size_t chunk) {
    for (size_t result = results.begin(chunk); result < results.end(chunk); ++result) {
      const auto row = static_cast<int64_t>(result) / windows.out_width,
                 x = static_cast<int64_t>(result) % windows.out_width;
      float* out = out_block.Write(at, result * channels);
      std::fill_n(out, channels, -std::numeric_limits<float>::infinity());
      windows.ForWindow(row / windows.out_height, row % windows.out_height, x, [&](int64_t from) {
        MaxInto(out, in_block.Read(at, static_cast<size_t>(from), channels), channels);
      });
      out_block.Store(at, result * channels, channels);
    }
    return absl::OkStatus();
  });
}

// Windows overlap, so a chunk has all results of an image.
absl::StatusOr<Kernel> PrepareMaxPool2dGradient(const program::v1::Ipu& ipu,
                                                const Instruction& instruction) {
  const Operand input = Resolve(ipu, instruction.inputs(0)),
                output_gradient = Resolve(ipu, instruction.inputs(1)),
                input_gradient = Resolve(ipu, instruction.outputs(0));
  const Windows windows(input.type.dims, output_gradient.type.dims,
                        instruction.max_pool2d_gradient().window());
  const auto channels = static_cast<size_t>(windows.channels);
  const size_t image_size = static_cast<size_t>(windows.height * windows.width) * channels;
  MemoryPlan scratch;
  const FloatBlock in_block(input, channels, scratch),
      gradient_block(output_gradient, channels, scratch),
      out_block(input_gradient, image_size, scratch);
  const size_t best_at = scratch.Add(channels * sizeof(float)),
               taken_at = scratch.Add(channels * sizeof(float));
  return OnePhase(
      static_cast<size_t>(windows.images), scratch.bytes(), [=](const Workspace& at, size_t image) {
        float* out = out_block.Write(at, image * image_size);
        std::fill_n(out, image_size, 0.0f);
        auto* best = reinterpret_cast<float*>(at.scratch + best_at);
        auto* taken = reinterpret_cast<float*>(at.scratch + taken_at);
        const auto n = static_cast<int64_t>(image);
        size_t result = image * static_cast<size_t>(windows.out_height * windows.out_width);
        for (int64_t y = 0; y < windows.out_height; ++y) {
          for (int64_t x = 0; x < windows.out_width; ++x, ++result) {
            std::fill_n(best, channels, -std::numeric_limits<float>::infinity());
            std::fill_n(taken, channels, 0.0f);
            windows.ForWindow(n, y, x, [&](int64_t from) {
              MaxInto(best, in_block.Read(at, static_cast<size_t>(from), channels), channels);
            });
            const float* gradient = gradient_block.Read(at, result * channels, channels);
            windows.ForWindow(n, y, x, [&](int64_t from) {
              const auto position = static_cast<size_t>(from);
              RouteGradient(in_block.Read(at, position, channels), best, gradient, taken,
                            out + position - image * image_size, channels);
            });
          }
        }
        out_block.Store(at, image * image_size, image_size);
        return absl::OkStatus();
      });
}

}  // namespace

std::vector<KernelDef> PoolKernels() {
  return {{Instruction::kMaxPool2D, PrepareMaxPool2d},
          {Instruction::kMaxPool2DGradient, PrepareMaxPool2dGradient}};
}

}  // namespace vpod::engine
