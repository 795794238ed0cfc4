#include "device/fabric/pieces.h"

#include <algorithm>
#include <tuple>

namespace vpod::fabric {
namespace {

constexpr size_t kSmallestPiece = 1024;

// Appends the spans of one whole tensor for a kind of collective.
void AppendSpans(Kind kind, size_t root, size_t members, size_t tensor, size_t elements,
                 std::vector<Span>& spans) {
  const size_t part = elements / members;
  switch (kind) {
    case Kind::kAllReduce:
      spans.push_back({tensor, kAll, kAll, 0, 0, elements});
      break;
    case Kind::kReduceScatter:
      for (size_t to = 0; to < members; ++to)
        spans.push_back({tensor, kAll, to, to * part, 0, part});
      break;
    case Kind::kAllGather:
      for (size_t from = 0; from < members; ++from)
        spans.push_back({tensor, from, kAll, 0, from * elements, elements});
      break;
    case Kind::kAllToAll:
      for (size_t from = 0; from < members; ++from) {
        for (size_t to = 0; to < members; ++to)
          spans.push_back({tensor, from, to, to * part, from * part, part});
      }
      break;
    case Kind::kBroadcast:
      spans.push_back({tensor, root, kAll, 0, 0, elements});
      break;
  }
}

// The process that must compute a span, and the one that takes the result; kAll: any, or every.
struct Place {
  size_t owner = kAll, to = kAll;
  friend auto operator<=>(const Place&, const Place&) = default;
};

Place PlaceOf(const Span& span, const std::vector<size_t>& owner_of) {
  Place place;
  if (owner_of.empty()) return place;
  if (span.target != kAll) place.owner = place.to = owner_of[span.target];
  if (span.source != kAll) place.owner = owner_of[span.source];
  return place;
}

}  // namespace

std::vector<Piece> CutIntoPieces(Kind kind, size_t root,
                                 const std::vector<CollectiveTensor>& tensors,
                                 const Dealing& dealing) {
  std::vector<Span> whole;
  for (size_t t = 0; t < tensors.size(); ++t)
    AppendSpans(kind, root, dealing.members, t, tensors[t].elements, whole);
  const auto place_of = [&](const Span& span) { return PlaceOf(span, dealing.owner_of); };
  std::stable_sort(whole.begin(), whole.end(),
                   [&](const Span& a, const Span& b) { return place_of(a) < place_of(b); });
  size_t total = 0;
  for (const Span& span : whole) total += span.elements;
  const size_t share = std::max(kSmallestPiece, (total + dealing.owners - 1) / dealing.owners);
  const size_t limit = std::min(dealing.piece_elements, share);

  std::vector<Piece> pieces;
  Place current;
  size_t room = 0;
  for (const Span& span : whole) {
    const Place place = place_of(span);
    if (place != current) room = 0;
    current = place;
    for (size_t done = 0; done < span.elements;) {
      if (room == 0) {
        const size_t in_turn = pieces.size() % dealing.owners;
        pieces.push_back({place.owner == kAll ? in_turn : place.owner, place.to, {}});
        room = limit;
      }
      const size_t n = std::min(span.elements - done, room);
      pieces.back().spans.push_back(
          {span.tensor, span.source, span.target, span.in_begin + done, span.out_begin + done, n});
      room -= n;
      done += n;
    }
  }
  return pieces;
}

}  // namespace vpod::fabric
