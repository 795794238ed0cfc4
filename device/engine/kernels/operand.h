// Where a tensor lies and how its elements are read and written as float32; how work is cut into
// chunks.
#pragma once

#include <algorithm>

#include "device/engine/kernels/kernel.h"
#include "device/engine/kernels/rounding.h"

namespace vpod::engine {

// A tensor of an IPU, resolved once when a kernel is prepared.
struct Operand {
  program::TensorType type;
  uint64_t offset = 0;
  program::Dims strides;  // in elements, one for each dimension
  Rounding rounding;      // of a float16 output

  size_t elements() const { return static_cast<size_t>(type.elements()); }
  std::byte* At(const Workspace& at) const { return at.arena + offset; }
  template <class T>
  T* As(const Workspace& at) const {
    return reinterpret_cast<T*>(at.arena + offset);
  }
};

Operand Resolve(const program::v1::Ipu& ipu, uint32_t tensor);
// An output of an instruction, with its rounding.
Operand ResolveOutput(const program::v1::Ipu& ipu, const Instruction& instruction, int position);
// Elements of `whole` that begin `first` elements behind its own.
Operand Part(const Operand& whole, int64_t first, program::Dims dims, program::Dims strides);

// Calls `f` with a value-initialised element of the type; BOOL is a uint8_t.
template <class F>
auto WithElement(program::v1::DataType type, const F& f) {
  switch (type) {
    case program::v1::FLOAT32:
      return f(float{});
    case program::v1::FLOAT16:
      return f(_Float16{});
    case program::v1::INT8:
      return f(int8_t{});
    case program::v1::INT16:
      return f(int16_t{});
    case program::v1::INT32:
      return f(int32_t{});
    case program::v1::UINT16:
      return f(uint16_t{});
    case program::v1::UINT32:
      return f(uint32_t{});
    default:
      return f(uint8_t{});
  }
}

// Lays out the scratch or shared memory of a kernel.
class MemoryPlan {
 public:
  // Offset of a new block, a multiple of 64.
  size_t Add(size_t bytes) {
    const size_t offset = bytes_;
    bytes_ += RoundUp(bytes);
    return offset;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// --- Conversion of float16, with F16C where the processor has it ---
void FloatsOfHalves(const _Float16* halves, float* floats, size_t n);
void HalvesOfFloats(const float* floats, _Float16* halves, size_t n);  // to nearest, ties to even
void RoundToFloat16(float* values, size_t n);  // as HalvesOfFloats does; they stay float32

// Rounds elements of a float16 output as it asks for; `number` is that of the first one, and each
// next one is `step` behind it. Elements are numbered in the order in which an op with a fixed
// layout has them in memory, others as NumberStrides says, whatever their layout.
inline void RoundToHalves(const Operand& output, const Workspace& at, uint64_t number, int64_t step,
                          const float* floats, _Float16* halves, size_t n) {
  if (output.rounding.stochastic) {
    HalvesAtRandom(output.rounding, at, number, step, floats, halves, n);
  } else {
    HalvesOfFloats(floats, halves, n);
  }
}
// From the number of an element to that of the next one along each dimension, for ops that take any
// layout: the numbers do not depend on it.
program::Dims NumberStrides(const program::Dims& dims);

// A range of a dense float tensor as float32: the tensor itself, or for float16 a block of scratch
// that holds as many elements as one chunk reads or writes.
class FloatBlock {
 public:
  FloatBlock() = default;
  FloatBlock(Operand operand, size_t elements_of_a_chunk, MemoryPlan& scratch)
      : operand_(std::move(operand)),
        scratch_(is_half() ? scratch.Add(elements_of_a_chunk * sizeof(float)) : 0) {}

  // Elements [begin, begin + n), read or to be written.
  const float* Read(const Workspace& at, size_t begin, size_t n) const {
    if (!is_half()) return operand_.As<float>(at) + begin;
    FloatsOfHalves(operand_.As<_Float16>(at) + begin, Scratch(at), n);
    return Scratch(at);
  }
  float* Write(const Workspace& at, size_t begin) const {
    return is_half() ? Scratch(at) : operand_.As<float>(at) + begin;
  }
  // After the last of the elements that Write gave was written.
  void Store(const Workspace& at, size_t begin, size_t n) const {
    if (!is_half()) return;
    RoundToHalves(operand_, at, begin, 1, Scratch(at), operand_.As<_Float16>(at) + begin, n);
  }
  // Read and later written in place.
  float* ReadWrite(const Workspace& at, size_t begin, size_t n) const {
    return const_cast<float*>(Read(at, begin, n));
  }

 private:
  bool is_half() const { return operand_.type.type == program::v1::FLOAT16; }
  float* Scratch(const Workspace& at) const {
    return reinterpret_cast<float*>(at.scratch + scratch_);
  }

  Operand operand_;
  size_t scratch_ = 0;  // offset
};

// Items 0 … items-1 in chunks of `per_chunk`, the last one smaller.
struct Chunking {
  size_t items = 0;
  size_t per_chunk = 1;

  size_t chunks() const { return (items + per_chunk - 1) / per_chunk; }
  size_t begin(size_t chunk) const { return chunk * per_chunk; }
  size_t end(size_t chunk) const { return std::min(items, (chunk + 1) * per_chunk); }
  size_t size(size_t chunk) const { return end(chunk) - begin(chunk); }
};

// Elements of a chunk of element-by-element work: some tens of microseconds, operands within the
// second-level cache.
inline constexpr size_t kElementsOfAChunk = size_t{1} << 17;

// Chunks of whole items, each of `work` elements; about equal.
inline Chunking ChunkItems(size_t items, size_t work, size_t elements = kElementsOfAChunk) {
  const size_t most = std::max<size_t>(1, elements / std::max<size_t>(1, work));
  const size_t chunks = std::max<size_t>(1, (items + most - 1) / most);
  return {items, std::max<size_t>(1, (items + chunks - 1) / chunks)};
}

// Norms are sums over blocks of this many elements, each by itself and then added in order: they do
// not depend on how a variable is cut into chunks, or into shards of whole blocks.
inline constexpr size_t kNormBlock = 4096;
static_assert(kElementsOfAChunk % kNormBlock == 0);

inline size_t NormBlocks(size_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

// Chunks of whole blocks.
inline Chunking ChunkNormBlocks(size_t elements) {
  const Chunking blocks = ChunkItems(NormBlocks(elements), kNormBlock);
  return {elements, blocks.per_chunk * kNormBlock};
}

// A kernel of one phase.
inline Kernel OnePhase(size_t chunks, size_t scratch_bytes,
                       std::function<absl::Status(const Workspace&, size_t)> run) {
  return {.phases = {{chunks, std::move(run)}}, .scratch_bytes = scratch_bytes};
}

// A kernel that fills a dense tensor with zeros.
inline Kernel ZeroKernel(const Operand& output) {
  const Chunking bytes = ChunkItems(output.type.bytes(), 1);
  return OnePhase(bytes.chunks(), 0, [=](const Workspace& at, size_t chunk) {
    std::fill_n(output.At(at) + bytes.begin(chunk), bytes.size(chunk), std::byte{0});
    return absl::OkStatus();
  });
}

}  // namespace vpod::engine
