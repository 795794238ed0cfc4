#include "device/engine/kernels/rounding.h"

#include <algorithm>

#include "device/base/simd.h"
#include "device/engine/kernels/operand.h"
#include "device/engine/kernels/philox.h"

namespace vpod::engine {
namespace {

constexpr float kLargest = 65504;
constexpr size_t kMost = kPhiloxLanes * kPhiloxWords;  // elements that are rounded together

// Without its sign, what lies between two neighbours of float16 becomes the upper one with a
// probability of its share of the way, in 2^24 steps. Values beyond the largest are left to
// the rounding to nearest. All else is exact. (No calls: they would not be inlined.)
VPOD_SIMD void RoundAtRandom(const float* x, const uint32_t* bits, float* rounded, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float size = __builtin_fabsf(x[i]);
    const bool in_range = size <= kLargest;  // not-a-number is not
    const float value = in_range ? size : 0;
    // The step is 2^(exponent - 10), and no less than 2^-24.
    const int32_t normal = (__builtin_bit_cast(int32_t, value) >> 23) - 127 - 10;
    const int32_t exponent = normal > -24 ? normal : -24;
    const auto step = __builtin_bit_cast(float, (exponent + 127) << 23);
    const float steps = value * __builtin_bit_cast(float, (127 - exponent) << 23);  // below 2^11
    const auto whole = static_cast<int32_t>(steps);
    const auto rest = static_cast<int32_t>((steps - static_cast<float>(whole)) * 0x1p24f);
    const int32_t up = static_cast<int32_t>(bits[i] >> 8) < rest ? 1 : 0;
    const float result = static_cast<float>(whole + up) * step;
    rounded[i] = in_range ? __builtin_copysignf(result, x[i]) : x[i];
  }
}

// The random word of each element.
void WordsOf(const Rounding& rounding, const Workspace& at, uint64_t first, int64_t step, size_t n,
             uint32_t* bits) {
  const auto* seed = reinterpret_cast<const uint32_t*>(at.arena + rounding.seed);
  const uint32_t counter = *reinterpret_cast<const uint32_t*>(at.arena + rounding.counter);
  PhiloxBlocks words;
  const bool dense = step == 1;
  const auto number = [&](size_t i) { return first + i * static_cast<uint64_t>(step); };
  for (size_t lane = 0; lane < kPhiloxLanes; ++lane) {
    words[0][lane] =
        static_cast<uint32_t>(dense ? first / kPhiloxWords + lane : number(lane) / kPhiloxWords);
    words[1][lane] = rounding.number;
    words[2][lane] = counter;
    words[3][lane] = rounding.stream;
  }
  Philox(seed, words);
  const size_t skipped = first % kPhiloxWords;
  for (size_t i = 0; i < n; ++i) {
    bits[i] = dense ? words[(skipped + i) % kPhiloxWords][(skipped + i) / kPhiloxWords]
                    : words[number(i) % kPhiloxWords][i];
  }
}

}  // namespace

void HalvesAtRandom(const Rounding& rounding, const Workspace& at, uint64_t first, int64_t step,
                    const float* floats, _Float16* halves, size_t n) {
  uint32_t bits[kMost];
  float rounded[kMost];
  while (n > 0) {
    const size_t most = step == 1 ? kMost - first % kPhiloxWords : kPhiloxLanes;
    const size_t count = std::min(n, most);
    HalvesOfFloats(floats, halves, count);
    FloatsOfHalves(halves, rounded, count);
    // Exact elements, as a RELU gives them, need no random ones.
    if (!std::equal(floats, floats + count, rounded)) {
      WordsOf(rounding, at, first, step, count, bits);
      RoundAtRandom(floats, bits, rounded, count);
      HalvesOfFloats(rounded, halves, count);
    }
    first += count * static_cast<uint64_t>(step);
    floats += count;
    halves += count;
    n -= count;
  }
}

}  // namespace vpod::engine
