#include "client/compiler/checkpoints.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace vpod::compiler {
namespace {

constexpr uint64_t kUnreachable = std::numeric_limits<uint64_t>::max();

struct Parts {
  uint64_t kept = kUnreachable;    // bytes
  std::vector<size_t> beginnings;  // of all parts but the first
};

// The parts of at most `most` bytes that keep the least for each other: for each end of a part, the
// best beginning, given that what comes before is divided best.
Parts Divide(const std::vector<ChainLink>& chain, uint64_t most) {
  const size_t n = chain.size();
  std::vector<uint64_t> kept(n + 1, kUnreachable);
  std::vector<size_t> beginning(n + 1);
  kept[0] = 0;
  for (size_t end = 1; end <= n; ++end) {
    uint64_t held = 0, for_later = 0;
    for (size_t begin = end; begin-- > 0;) {
      const ChainLink& link = chain[begin];
      held += link.read_bytes;
      if (held > most) break;
      if (link.last_reader >= end) for_later += link.bytes;
      if (kept[begin] == kUnreachable || kept[begin] + for_later >= kept[end]) continue;
      kept[end] = kept[begin] + for_later;
      beginning[end] = begin;
    }
  }
  Parts parts{.kept = kept[n]};
  if (parts.kept == kUnreachable) return parts;
  for (size_t begin = beginning[n]; begin > 0; begin = beginning[begin])
    parts.beginnings.push_back(begin);
  std::reverse(parts.beginnings.begin(), parts.beginnings.end());
  return parts;
}

}  // namespace

std::vector<size_t> BeginningsOfParts(const std::vector<ChainLink>& chain) {
  const uint64_t all =
      std::accumulate(chain.begin(), chain.end(), uint64_t{0},
                      [](uint64_t sum, const ChainLink& link) { return sum + link.read_bytes; });
  // One part holds all and keeps nothing. Networks seldom gain from more than these.
  constexpr uint64_t kMostParts = 16;
  uint64_t least = all;
  std::vector<size_t> best;
  for (uint64_t number = 2; number <= kMostParts; ++number) {
    const uint64_t most = all / number + 1;
    Parts parts = Divide(chain, most);
    if (parts.kept == kUnreachable || parts.kept + most >= least) continue;
    least = parts.kept + most;
    best = std::move(parts.beginnings);
  }
  return best;
}

}  // namespace vpod::compiler
