// How the elements of a collective are cut into pieces and dealt to the processes that compute
// them. Pure, and the same on every process.
#pragma once

#include <cstddef>
#include <vector>

#include "device/fabric/tree_sum.h"

namespace vpod::fabric {

// A tensor of a collective: where it lies in the memory of each IPU, in bytes.
struct CollectiveTensor {
  size_t in_offset = 0;
  size_t out_offset = 0;
  size_t elements = 0;
  Element in = Element::kFloat32;
  Element out = Element::kFloat32;
};

// Elements [begin, end) of one tensor.
struct Span {
  size_t tensor = 0;
  size_t begin = 0, end = 0;
};

// What one process reduces at once. Small tensors share a piece.
struct Piece {
  size_t owner = 0;  // position among the processes that take part
  std::vector<Span> spans;
};

// Pieces of at most `piece_elements` elements (1 or more), dealt in turn to `owners` processes.
// When there would be fewer pieces than owners they are made smaller, but not below 1024 elements.
std::vector<Piece> CutIntoPieces(const std::vector<CollectiveTensor>& tensors, size_t owners,
                                 size_t piece_elements);

size_t ElementBytes(Element element);

}  // namespace vpod::fabric
