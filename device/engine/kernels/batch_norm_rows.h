// How batch norm and its gradient go over rows of channels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "device/engine/kernels/operand.h"

namespace vpod::engine {

// Rows are pixels, whose channels lie side by side. Blocks of rows stay in the
// first-level cache while the steps of an op go over them.
inline constexpr size_t kBatchNormBlock = 4096;

// --- Rows of a tensor, and what there is one of for each channel ---

struct RowsOfChannels {
  size_t rows, channels, of_block;
  Chunking chunks;  // of rows
  Chunking blocks;  // of channels; several if rows are long

  explicit RowsOfChannels(const Operand& x) {
    constexpr size_t kMostChannels = 8192, kWiderChunks = 8;
    channels = static_cast<size_t>(x.type.dims[1]);
    rows = x.elements() / channels;
    const bool is_long = channels > kMostChannels;
    blocks = {channels, is_long ? kMostChannels : channels};
    // Sums of long rows are as long: there are fewer of them.
    chunks = ChunkItems(rows, is_long ? kMostChannels / kWiderChunks : channels);
    of_block = is_long ? 1 : std::max<size_t>(1, kBatchNormBlock / channels);
  }
  size_t block_elements() const { return of_block * blocks.per_chunk; }
  size_t num_chunks() const { return chunks.chunks() * blocks.chunks(); }
  double operations() const { return static_cast<double>(chunks.per_chunk * blocks.per_chunk); }
  // The place of a chunk: which of `chunks`, its first channel and the number of its channels.
  size_t OfRows(size_t chunk) const { return chunk / blocks.chunks(); }
  size_t FirstChannel(size_t chunk) const { return blocks.begin(chunk % blocks.chunks()); }
  size_t Channels(size_t chunk) const { return blocks.size(chunk % blocks.chunks()); }

  // Calls `visit(first element, rows)` for blocks of rows, from a channel on.
  template <class Visit>
  void ForBlocks(size_t row, size_t end, size_t channel, const Visit& visit) const {
    for (; row < end; row += of_block)
      visit(row * channels + channel, std::min(of_block, end - row));
  }
  // For the blocks of a chunk, which have its channels.
  template <class Visit>
  void ForBlocks(size_t chunk, const Visit& visit) const {
    ForBlocks(chunks.begin(OfRows(chunk)), chunks.end(OfRows(chunk)), FirstChannel(chunk), visit);
  }
};

// Chunks leave two sums for each channel in shared memory: [chunk of rows][sum][channel] of
// float64.
class Sums {
 public:
  explicit Sums(const RowsOfChannels& rows)
      : chunks_(rows.chunks.chunks()), channels_(rows.channels) {}

  size_t bytes() const { return chunks_ * 2 * channels_ * sizeof(double); }
  // From a channel on.
  double* Of(const Workspace& at, size_t chunk, size_t sum, size_t channel) const {
    return reinterpret_cast<double*>(at.shared) + (chunk * 2 + sum) * channels_ + channel;
  }
  // The sum of all chunks, in order.
  double Total(const Workspace& at, size_t sum, size_t channel) const {
    double total = 0;
    for (size_t chunk = 0; chunk < chunks_; ++chunk) total += *Of(at, chunk, sum, channel);
    return total;
  }
  // Channels whose totals one chunk takes.
  Chunking totals() const {
    constexpr size_t kOperations = size_t{1} << 20;
    return {channels_, std::clamp<size_t>(kOperations / chunks_, 1, channels_)};
  }

 private:
  size_t chunks_, channels_;
};

// Vectors of a float32 for each channel.
struct Vectors {
  size_t at = 0, channels = 0;
  float* Of(std::byte* memory, size_t index) const {
    return reinterpret_cast<float*>(memory + at) + index * channels;
  }
};

inline float Factor(float scale, float variance, float epsilon) {
  return static_cast<float>(scale / std::sqrt(static_cast<double>(variance) + epsilon));
}

// The gradient, for the table of batch_norm.cc.
absl::StatusOr<Kernel> PrepareBatchNormGradient(const program::v1::Ipu& ipu,
                                                const Instruction& instruction);

}  // namespace vpod::engine
