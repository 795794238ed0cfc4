#include "device/engine/kernels/operand.h"

#include <algorithm>
#include <iterator>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vpod::engine {
namespace {

#if defined(__x86_64__)
bool HasF16c() {
  static const bool has = __builtin_cpu_supports("avx") != 0 && __builtin_cpu_supports("f16c") != 0;
  return has;
}

// Eight elements at a time, the last ones by way of a full eight: one alone would be converted in
// software, and rows of images often have few channels.
__attribute__((target("avx,f16c"))) void WidenByF16c(const _Float16* halves, float* floats,
                                                     size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i));
    _mm256_storeu_ps(floats + i, _mm256_cvtph_ps(eight));
  }
  if (i == n) return;
  alignas(16) _Float16 rest[8] = {};
  alignas(32) float widened[8];
  for (size_t k = 0; i + k < n; ++k) rest[k] = halves[i + k];
  _mm256_store_ps(widened, _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<__m128i*>(rest))));
  for (size_t k = 0; i + k < n; ++k) floats[i + k] = widened[k];
}

__attribute__((target("avx,f16c"))) void NarrowByF16c(const float* floats, _Float16* halves,
                                                      size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(floats + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), eight);
  }
  if (i == n) return;
  alignas(32) float rest[8] = {};
  alignas(16) _Float16 narrowed[8];
  for (size_t k = 0; i + k < n; ++k) rest[k] = floats[i + k];
  _mm_store_si128(reinterpret_cast<__m128i*>(narrowed),
                  _mm256_cvtps_ph(_mm256_load_ps(rest), _MM_FROUND_TO_NEAREST_INT));
  for (size_t k = 0; i + k < n; ++k) halves[i + k] = narrowed[k];
}
#endif

}  // namespace

Operand Resolve(const program::v1::Ipu& ipu, uint32_t tensor) {
  const auto& text = ipu.tensors(static_cast<int>(tensor));
  return {program::TypeOf(text), text.offset(), program::StridesOf(text)};
}

Operand ResolveOutput(const program::v1::Ipu& ipu, const Instruction& instruction, int position) {
  Operand output = Resolve(ipu, instruction.outputs(position));
  if (!instruction.has_rounding() || output.type.type != program::v1::FLOAT16) return output;
  const program::v1::StochasticRounding& rounding = instruction.rounding();
  output.rounding = {.stochastic = true,
                     .seed = Resolve(ipu, rounding.seed()).offset,
                     .counter = Resolve(ipu, rounding.counter()).offset,
                     .number = rounding.number(),
                     // 0 is that of random elements.
                     .stream = static_cast<uint32_t>(position) + 1};
  return output;
}

// Images mostly lie so.
program::Dims NumberStrides(const program::Dims& dims) {
  return dims.size() > 2 ? program::ChannelsLastStrides(dims) : program::RowMajorStrides(dims);
}

Operand Part(const Operand& whole, int64_t first, program::Dims dims, program::Dims strides) {
  return {{whole.type.type, std::move(dims)},
          whole.offset + static_cast<uint64_t>(first) * program::SizeOf(whole.type.type),
          std::move(strides)};
}

void FloatsOfHalves(const _Float16* halves, float* floats, size_t n) {
#if defined(__x86_64__)
  if (HasF16c()) return WidenByF16c(halves, floats, n);
#endif
  for (size_t i = 0; i < n; ++i) floats[i] = static_cast<float>(halves[i]);
}

void HalvesOfFloats(const float* floats, _Float16* halves, size_t n) {
#if defined(__x86_64__)
  if (HasF16c()) return NarrowByF16c(floats, halves, n);
#endif
  for (size_t i = 0; i < n; ++i) halves[i] = static_cast<_Float16>(floats[i]);
}

void RoundToFloat16(float* values, size_t n) {
  _Float16 halves[256];
  for (size_t i = 0; i < n; i += std::size(halves)) {
    const size_t count = std::min(std::size(halves), n - i);
    HalvesOfFloats(values + i, halves, count);
    FloatsOfHalves(halves, values + i, count);
  }
}

}  // namespace vpod::engine
