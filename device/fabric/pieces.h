// How the elements of a collective are cut into pieces and dealt to the processes that compute
// them. Pure, and the same on every process.
#pragma once

#include <cstddef>
#include <vector>

#include "device/fabric/tree_reduce.h"

namespace vpod::fabric {

enum class Kind { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast };

inline bool IsReduction(Kind kind) {
  return kind == Kind::kAllReduce || kind == Kind::kReduceScatter;
}

// A tensor of a collective: where it lies in the memory of each IPU, in bytes.
struct CollectiveTensor {
  size_t in_offset = 0;
  size_t out_offset = 0;
  size_t elements = 0;  // of the input on one replica
  Element in = Element::kFloat32;
  Element out = Element::kFloat32;
};

inline constexpr size_t kAll = ~size_t{0};

// Elements of one tensor, from the member `source` (kAll: reduced over all) to `target` (or all).
struct Span {
  size_t tensor = 0;
  size_t source = kAll, target = kAll;  // positions in the group
  size_t in_begin = 0, out_begin = 0;   // element of the input and of the output
  size_t elements = 0;
};

// Work that one process does at once. Small tensors share a piece.
struct Piece {
  size_t owner = 0;  // position among the processes that take part
  size_t to = kAll;  // the process that takes all of its results, or all take them
  std::vector<Span> spans;
};

// How pieces are dealt to the processes that compute them.
struct Dealing {
  size_t members = 1;  // of the group
  size_t owners = 1;   // processes that take part
  size_t piece_elements = 1;
  // The process of each member, where results travel by messages: a piece then belongs to whom
  // spares one. Empty: every process reaches all memory, pieces are dealt in turn.
  std::vector<size_t> owner_of;
};

// Pieces of at most `piece_elements` elements (1 or more). When there would be fewer pieces than
// owners they are made smaller, but not below 1024 elements. `root` is the position of the member
// that a broadcast begins at; elements are multiples of the members where a kind divides them.
std::vector<Piece> CutIntoPieces(Kind kind, size_t root,
                                 const std::vector<CollectiveTensor>& tensors,
                                 const Dealing& dealing);

}  // namespace vpod::fabric
