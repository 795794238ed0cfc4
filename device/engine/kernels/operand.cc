#include "device/engine/kernels/operand.h"

#include <cstring>

namespace vpod::engine {

Scratch& Scratch::OfThisThread() {
  thread_local Scratch scratch;
  return scratch;
}

std::byte* Scratch::Get(size_t slot, size_t bytes) {
  constexpr size_t kAlignment = 64;
  if (buffers_.size() <= slot) buffers_.resize(slot + 1);
  std::vector<std::byte>& buffer = buffers_[slot];
  if (buffer.size() < bytes + kAlignment) buffer.resize(bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(buffer.data());
  return buffer.data() + (kAlignment - address % kAlignment) % kAlignment;
}

Operand Resolve(const program::v1::Ipu& ipu, uint32_t tensor) {
  return {program::TypeOf(ipu.tensors(tensor)), ipu.tensors(tensor).offset()};
}

const float* ReadFloats(const Operand& operand, std::byte* arena, size_t slot) {
  if (operand.type.type == program::v1::FLOAT32) return operand.As<float>(arena);
  float* floats = Scratch::OfThisThread().Floats(slot, operand.elements());
  const auto* halves = operand.As<_Float16>(arena);
  for (size_t i = 0; i < operand.elements(); ++i) floats[i] = static_cast<float>(halves[i]);
  return floats;
}

float* WriteFloats(const Operand& operand, std::byte* arena, size_t slot) {
  if (operand.type.type == program::v1::FLOAT32) return operand.As<float>(arena);
  return Scratch::OfThisThread().Floats(slot, operand.elements());
}

void StoreFloats(const Operand& operand, std::byte* arena, const float* from) {
  if (operand.type.type == program::v1::FLOAT32) return;
  auto* halves = operand.As<_Float16>(arena);
  for (size_t i = 0; i < operand.elements(); ++i) halves[i] = static_cast<_Float16>(from[i]);
}

}  // namespace vpod::engine
