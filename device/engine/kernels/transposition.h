// Transposition of small squares of floats, in registers.
#pragma once

#include <cstddef>

namespace vpod::engine {

// Squares of 8 × 8 or 16 × 16 lie side by side in rows that are `row` floats apart; each becomes
// dense, with columns as rows, `step` floats behind the one before.
void TransposeSquares(size_t side, const float* from, size_t row, size_t squares, float* to,
                      size_t step);

}  // namespace vpod::engine
