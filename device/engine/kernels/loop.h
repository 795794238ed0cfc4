// Walks tensors of one shape side by side, whatever their strides: rows along which every operand
// moves by a fixed step, in the order in which the first operand lies in memory.
#pragma once

#include <array>
#include <cstring>

#include "device/engine/kernels/operand.h"

namespace vpod::engine {

// Elements that a row is cut into, so that blocks of all operands stay in the first-level cache.
inline constexpr size_t kElementsOfABlock = 2048;

struct Loop {
  // Elements of a row and number of rows; steps of each operand along a row.
  size_t length = 1;
  size_t rows = 1;
  std::vector<int64_t> steps;
  // Axes outside the rows, outermost first, and the strides of each operand along them.
  program::Dims dims;
  std::vector<program::Dims> strides;

  Chunking chunking() const { return ChunkItems(length * rows, 1); }

  // Calls `visit(at, n)` for blocks of at most kElementsOfABlock elements that lie in one row and
  // make up elements [begin, end); `at[i]` is the position of operand i, in elements.
  template <class Visit>
  void ForBlocks(size_t begin, size_t end, const Visit& visit) const {
    if (begin >= end) return;
    Position row(*this, begin / length);
    size_t column = begin % length;
    while (true) {
      const size_t row_end = std::min(length, column + (end - begin));
      begin += row_end - column;
      for (; column < row_end; column += kElementsOfABlock) {
        // One by one: a copy of all at once would wait for what Next has just stored.
        std::array<int64_t, kMaxOperands> at;
        for (size_t o = 0; o < steps.size(); ++o)
          at[o] = row.at[o] + static_cast<int64_t>(column) * steps[o];
        visit(at, std::min(kElementsOfABlock, row_end - column));
      }
      if (begin == end) return;
      column = 0;
      row.Next(*this);
    }
  }

  static constexpr size_t kMaxOperands = 13;

 private:
  // Where a row begins, for each operand.
  struct Position {
    Position(const Loop& loop, size_t row) {
      for (size_t axis = loop.dims.size(); axis-- > 0;) {
        const auto dim = static_cast<size_t>(loop.dims[axis]);
        index[axis] = static_cast<int64_t>(row % dim);
        row /= dim;
        for (size_t o = 0; o < loop.steps.size(); ++o) at[o] += index[axis] * loop.strides[o][axis];
      }
    }
    void Next(const Loop& loop) {
      for (size_t axis = loop.dims.size(); axis-- > 0;) {
        for (size_t o = 0; o < loop.steps.size(); ++o) at[o] += loop.strides[o][axis];
        if (++index[axis] < loop.dims[axis]) return;
        index[axis] = 0;
        for (size_t o = 0; o < loop.steps.size(); ++o)
          at[o] -= loop.dims[axis] * loop.strides[o][axis];
      }
    }

    std::array<int64_t, kMaxOperands> at{};
    std::array<int64_t, program::kMaxRank> index{};
  };
};

// `strides` of each operand along `dims`, in elements; 0 where it is broadcast.
Loop PlanLoop(const program::Dims& dims, std::vector<program::Dims> strides);

// Strides of a tensor broadcast to `dims`.
program::Dims BroadcastStrides(const Operand& operand, const program::Dims& dims);

// A row's elements side by side: where they lie, or gathered in `buffer`. With a step of 0 only the
// first is there.
template <class T>
const T* Gather(const T* from, int64_t step, size_t n, T* buffer) {
  if (step == 0 || step == 1) return from;
  for (size_t i = 0; i < n; ++i) buffer[i] = from[static_cast<int64_t>(i) * step];
  return buffer;
}

template <class T>
void Scatter(const T* from, T* to, int64_t step, size_t n) {
  for (size_t i = 0; i < n; ++i) to[static_cast<int64_t>(i) * step] = from[i];
}

// Blocks of float32 or float16 elements as float32. Operand and workspace outlive it.
class FloatRow {
 public:
  FloatRow(const Operand& operand, const Workspace& at)
      : operand_(operand),
        at_(at),
        half_(operand.type.type == program::v1::FLOAT16),
        base_(operand.At(at)) {}

  const float* Read(int64_t position, int64_t step, size_t n) {
    if (!half_) return Gather(reinterpret_cast<const float*>(base_) + position, step, n, floats_);
    const _Float16* halves =
        Gather(reinterpret_cast<const _Float16*>(base_) + position, step, n, halves_);
    FloatsOfHalves(halves, floats_, step == 0 ? 1 : n);
    return floats_;
  }
  float* Write(int64_t position, int64_t step) {
    return !half_ && step == 1 ? reinterpret_cast<float*>(base_) + position : floats_;
  }
  // Stores elements of an output, which are numbered from `number`, `number_step` apart
  // (RoundToHalves).
  void Store(int64_t position, int64_t step, int64_t number, int64_t number_step, size_t n) {
    if (!half_) {
      if (step != 1) Scatter(floats_, reinterpret_cast<float*>(base_) + position, step, n);
      return;
    }
    _Float16* to = reinterpret_cast<_Float16*>(base_) + position;
    RoundToHalves(operand_, at_, static_cast<uint64_t>(number), number_step, floats_,
                  step == 1 ? to : halves_, n);
    if (step != 1) Scatter(halves_, to, step, n);
  }

 private:
  const Operand& operand_;
  const Workspace& at_;
  const bool half_;
  std::byte* const base_;
  alignas(64) float floats_[kElementsOfABlock];
  alignas(64) _Float16 halves_[kElementsOfABlock];
};

}  // namespace vpod::engine
