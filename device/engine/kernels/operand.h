// Where a tensor lies and how its elements are read and written as float32.
#pragma once

#include "device/engine/kernels/kernel.h"

namespace vpod::engine {

// A tensor of an IPU, resolved once when a kernel is prepared.
struct Operand {
  program::TensorType type;
  uint64_t offset = 0;

  size_t elements() const { return static_cast<size_t>(type.elements()); }
  std::byte* At(std::byte* arena) const { return arena + offset; }
  template <class T>
  T* As(std::byte* arena) const {
    return reinterpret_cast<T*>(arena + offset);
  }
};

Operand Resolve(const program::v1::Ipu& ipu, uint32_t tensor);

// The elements of a float tensor as float32: the tensor itself, or for float16 a copy in scratch
// slot `slot`.
const float* ReadFloats(const Operand& operand, std::byte* arena, size_t slot);
// Where a kernel writes the float32 result of a float tensor; for float16 it is scratch that
// StoreFloats rounds.
float* WriteFloats(const Operand& operand, std::byte* arena, size_t slot);
void StoreFloats(const Operand& operand, std::byte* arena, const float* from);

}  // namespace vpod::engine
