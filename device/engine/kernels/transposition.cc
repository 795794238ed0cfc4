#include "device/engine/kernels/transposition.h"

#include <cstdint>
#include <cstring>

#include "device/base/simd.h"

namespace vpod::engine {
namespace {

template <size_t kSide>
struct Vectors;
template <>
struct Vectors<8> {
  typedef float Row __attribute__((vector_size(32)));
  typedef int32_t Places __attribute__((vector_size(32)));
};
template <>
struct Vectors<16> {
  typedef float Row __attribute__((vector_size(64)));
  typedef int32_t Places __attribute__((vector_size(64)));
};

template <size_t kSide>
struct Square {
  using Row = typename Vectors<kSide>::Row;
  using Places = typename Vectors<kSide>::Places;
  Row rows[kSide];

  // Exchanges the two squares beside the diagonal in each square of 2 × kHalf rows.
  template <size_t kHalf>
  __attribute__((always_inline)) void ExchangeHalves() {
    Places upper, lower;  // below kSide: of the upper row
    for (size_t i = 0; i < kSide; ++i) {
      upper[i] = static_cast<int32_t>(i & kHalf ? kSide + i - kHalf : i);
      lower[i] = static_cast<int32_t>(i & kHalf ? kSide + i : i + kHalf);
    }
    for (size_t i = 0; i < kSide; ++i) {
      if (i & kHalf) continue;
      const Row above = rows[i], below = rows[i + kHalf];
      rows[i] = __builtin_shuffle(above, below, upper);
      rows[i + kHalf] = __builtin_shuffle(above, below, lower);
    }
  }
};

template <size_t kSide>
__attribute__((always_inline)) inline void Transpose(const float* from, size_t row, size_t squares,
                                                     float* to, size_t step) {
  for (size_t s = 0; s < squares; ++s, from += kSide, to += step) {
    Square<kSide> square;
    for (size_t i = 0; i < kSide; ++i)
      std::memcpy(&square.rows[i], from + i * row, sizeof(square.rows[i]));
    square.template ExchangeHalves<1>();
    square.template ExchangeHalves<2>();
    square.template ExchangeHalves<4>();
    if constexpr (kSide > 8) square.template ExchangeHalves<8>();
    std::memcpy(to, square.rows, sizeof(square.rows));
  }
}

VPOD_SIMD void TransposeBy8(const float* from, size_t row, size_t squares, float* to, size_t step) {
  Transpose<8>(from, row, squares, to, step);
}
VPOD_SIMD void TransposeBy16(const float* from, size_t row, size_t squares, float* to,
                             size_t step) {
  Transpose<16>(from, row, squares, to, step);
}

}  // namespace

void TransposeSquares(size_t side, const float* from, size_t row, size_t squares, float* to,
                      size_t step) {
  (side == 8 ? TransposeBy8 : TransposeBy16)(from, row, squares, to, step);
}

}  // namespace vpod::engine
