// Weights between their tensor, which is dense in any order of its dimensions, and the layouts that
// oneDNN packs them in.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "device/engine/kernels/convolution.h"
#include "device/engine/kernels/convolution_box.h"
#include "device/engine/kernels/dnnl.h"
#include "device/engine/kernels/loop.h"

namespace vpod::engine {

// A range of the weights, and the convolution with them alone. Groups are kept together; without
// groups it is outputs, or, for a gradient of the image, channels of it.
struct WeightsBlock {
  ConvolutionShape shape;
  Box::Span channels, outputs;
  size_t first = 0;             // element of the tensor
  program::Dims dims, strides;  // as oneDNN has them: ahead of all others the groups, if any
  size_t axis = 0;              // of the range

  size_t elements() const { return static_cast<size_t>(shape.weights()); }
};

// The number of the element of a dense float16 tensor that lies at a place, for its rounding.
int64_t NumberAt(const Operand& tensor, int64_t place);

// How many units there are to choose a range from, and a range of them.
int64_t BlockUnits(const ConvolutionShape& shape, program::v1::Convolution::Pass pass);
WeightsBlock BlockAt(const ConvolutionStep& step, int64_t first, int64_t units);

// Weights of any layout that oneDNN likes.
dnnl::memory::desc AnyWeights(const ConvolutionShape& shape);

// Elements of a weight tensor as float32: where they lie, or, of float16, in scratch.
class PlainWeights {
 public:
  PlainWeights(const Operand& tensor, const program::Dims& dims, const program::Dims& strides);

  size_t elements() const { return elements_; }
  // Strides of what Read and Write give.
  const program::Dims& strides() const { return strides_; }
  // The elements from `first` of the tensor on, read or to be written; `scratch` has place for
  // them.
  float* Read(const Operand& tensor, const Workspace& at, size_t first, float* scratch) const;
  float* Write(const Operand& tensor, const Workspace& at, size_t first, float* scratch) const;
  // After all that Write gave were written.
  void Store(const Operand& tensor, const Workspace& at, size_t first, const float* scratch) const;

 private:
  bool half_;
  size_t elements_ = 1;
  program::Dims strides_;
  Loop loop_;  // of float16: the tensor, scratch, numbers of elements
};

// Copies float32 weights from one layout into another.
class Repacking {
 public:
  Repacking(dnnl::memory::desc from, dnnl::memory::desc to);

  void Execute(float* from, float* to) const;
  // Whether our own transposition does it, not oneDNN.
  static bool Transposes(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

 private:
  // For a layout whose innermost blocks are squares, made of weights with the outputs innermost:
  // transposes them, faster than oneDNN does.
  struct Squares {
    size_t side = 0, of_a_row = 0, row = 0;  // of what is read
    size_t first = 0, step = 0;              // of what is written
    Loop rows;                               // of squares: read, written
  };
  static std::optional<Squares> FindSquares(const dnnl::memory::desc& from,
                                            const dnnl::memory::desc& to);

  dnnl::memory::desc from_, to_;
  std::optional<Squares> squares_;
  dnnl::reorder reorder_;  // otherwise
};

// A block, and the layout that oneDNN wants it in.
struct PackedBlock {
  WeightsBlock block;
  dnnl::memory::desc packed;
};

// How blocks of weights that follow one another are packed, or unpacked, in pieces that lie
// together.
struct WeightsPacking {
  enum class Direction { kPack, kUnpack };
  // The part of a piece that belongs to a block.
  struct Part {
    size_t block = 0;
    size_t first = 0;  // element of the piece, as PlainWeights has it
    Repacking repacking;
  };
  struct Piece {
    size_t first = 0;  // element, if the first block begins with element 0
    PlainWeights plain;
    std::vector<Part> parts;
  };
  std::vector<Piece> pieces;
  size_t elements = 0;  // of the largest piece

  WeightsPacking(const Operand& tensor, const std::vector<PackedBlock>& blocks,
                 Direction direction);

 private:
  // The pieces of blocks, which lie beside each other in the rows of the tensor's outermost
  // dimension, `outer`, if they are several.
  std::vector<Piece> CutBest(const Operand& tensor, absl::Span<const PackedBlock> blocks,
                             size_t outer) const;
  std::vector<Piece> Cut(const Operand& tensor, absl::Span<const PackedBlock> blocks, size_t outer,
                         size_t rows_of_a_piece) const;

  Direction direction_;
};

}  // namespace vpod::engine
