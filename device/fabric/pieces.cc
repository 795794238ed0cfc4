#include "device/fabric/pieces.h"

#include <algorithm>

namespace vpod::fabric {
namespace {

constexpr size_t kSmallestPiece = 1024;

}  // namespace

size_t ElementBytes(Element element) {
  switch (element) {
    case Element::kFloat64:
      return 8;
    case Element::kFloat32:
      return 4;
    case Element::kFloat16:
      return 2;
  }
  return 0;
}

std::vector<Piece> CutIntoPieces(const std::vector<CollectiveTensor>& tensors, size_t owners,
                                 size_t piece_elements) {
  size_t total = 0;
  for (const CollectiveTensor& tensor : tensors) total += tensor.elements;
  const size_t share = std::max(kSmallestPiece, (total + owners - 1) / owners);
  const size_t limit = std::min(piece_elements, share);
  std::vector<Piece> pieces;
  size_t room = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    for (size_t begin = 0; begin < tensors[t].elements;) {
      if (room == 0) {
        pieces.push_back({pieces.size() % owners, {}});
        room = limit;
      }
      const size_t end = std::min(tensors[t].elements, begin + room);
      pieces.back().spans.push_back({t, begin, end});
      room -= end - begin;
      begin = end;
    }
  }
  return pieces;
}

}  // namespace vpod::fabric
