// The functions that element-by-element ops apply to a block of elements that lie in the
// first-level cache; the kernel around them (map.cc) brings operands there and carries results
// away.
#pragma once

#include <functional>

#include "device/engine/kernels/operand.h"

namespace vpod::engine {

// Elements side by side, float16 as float32. An operand that does not move has one element, which
// goes with all of the others.
struct BlockOperand {
  const void* data;
  bool moves;

  template <class T>
  const T* As() const {
    return static_cast<const T*>(data);
  }
};

// Computes n elements; a float16 result is float32 that is not rounded yet. The result may lie
// where an operand that moves does, if their elements have the same size.
using BlockFunction = std::function<void(const BlockOperand* operands, void* result, size_t n)>;

// The function of a Unary, Binary, Select or Cast of tensors of these types (elementwise.cc).
absl::StatusOr<BlockFunction> FindBlockFunction(const Instruction& instruction,
                                                absl::Span<const program::v1::DataType> inputs,
                                                program::v1::DataType output);

}  // namespace vpod::engine
