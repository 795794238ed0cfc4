// Parts of images as float32 blocks.
#pragma once

#include "device/engine/kernels/convolution_plan.h"

namespace vpod::engine {

// A part of a tensor with the channels innermost: images, ranges of each spatial dimension and of
// the channels.
struct Box {
  struct Span {
    int64_t first = 0, size = 0;
  };
  Span images, channels;
  std::array<Span, program::kMaxSpatialRank> spatial;

  size_t elements(size_t rank) const {
    int64_t count = images.size * channels.size;
    for (size_t i = 0; i < rank; ++i) count *= spatial[i].size;
    return static_cast<size_t>(count);
  }
};

// The part of the image, or of the result, that a piece takes.
Box ImageBox(const ConvolutionPiece& piece, size_t rank, Box::Span channels);
Box ResultBox(const ConvolutionPiece& piece, size_t rank, Box::Span channels);

// Boxes of a tensor, one at a time, densely packed: where they lie, or in scratch, if they have
// gaps or are float16.
class BoxBlock {
 public:
  BoxBlock() = default;
  // `elements` are the most that a box has. `has_gaps`: boxes are not contiguous in the tensor.
  BoxBlock(Operand operand, size_t elements, bool has_gaps, MemoryPlan& scratch)
      : operand_(std::move(operand)),
        half_(operand_.type.type == program::v1::FLOAT16),
        direct_(!half_ && !has_gaps),
        scratch_(direct_ ? 0 : scratch.Add(elements * sizeof(float))) {}

  float* Read(const Workspace& at, const Box& box) const;
  float* Write(const Workspace& at, const Box& box) const;
  // After all elements that Write gave were written.
  void Store(const Workspace& at, const Box& box) const;

 private:
  // Calls `visit(first element in the tensor, in the box, count)` for the box's runs of elements
  // that lie side by side.
  template <class Visit>
  void ForRuns(const Box& box, const Visit& visit) const;
  size_t FirstOf(const Box& box) const;
  float* Scratch(const Workspace& at) const {
    return reinterpret_cast<float*>(at.scratch + scratch_);
  }

  Operand operand_;
  bool half_ = false, direct_ = true;
  size_t scratch_ = 0;  // offset
};

}  // namespace vpod::engine
