// Definitions that the sources of Collectives share.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/fabric/collectives.h"
#include "device/fabric/relays.h"

namespace vpod::fabric {

// Elements of a piece that travels: enough to make a message worth its while, few enough to be
// still in the caches of the thread that combines them.
inline constexpr size_t kMessagePiece = 1 << 17;

inline constexpr size_t kWhatBytes = 96;

// A payload of kReady, kCopyReady and kCopyFailed is the reason for which the sender's run failed.
enum MessageKind : uint8_t {
  kReady,
  kPartials,
  kResult,
  kFinished,
  kCopyReady,
  kCopyData,
  kCopyFailed
};

// Header of every message; both ends have the same byte order.
struct Collectives::Header {
  char token[kTokenBytes] = {};
  char what[kWhatBytes] = {};
  RendezvousKey key;
  uint64_t clock = 0, offset = 0;
  uint32_t site = 0, piece = 0;
  uint8_t kind = kReady;
};

// An operation that is under way. The first block is set, under the lock, when this process comes
// to the operation; the second collects what others send, perhaps before.
struct Collectives::Operation {
  RendezvousKey key;
  std::optional<Collective> collective;
  std::optional<CrossCopy> copy;
  Completed done;  // null once called
  Clock::time_point since;
  bool noticed = false;
  std::vector<size_t> sites;  // that take part, ascending
  Relays relays;              // between them
  std::vector<Piece> pieces;
  std::atomic<size_t> remaining = 0;   // things to wait for
  std::atomic<size_t> own_pieces = 0;  // in shared memory

  uint64_t clock = 0;                   // of the slowest that is ready
  absl::Status failure;                 // the first of those who are ready and failed
  std::map<size_t, std::string> ready;  // by site: what it does
  std::set<size_t> finished;            // sites that are through with their pieces
  std::map<size_t, std::map<size_t, BufferPtr>> partials;  // by piece, then site
  std::set<size_t> results;                                // pieces
  bool target_ready = false, source_ready = false;         // of a copy
  uint64_t target_offset = 0;

  bool here() const { return collective.has_value() || copy.has_value(); }
  size_t others() const { return sites.size() - 1; }
  bool all_ready() const { return collective.has_value() && ready.size() == others(); }
  bool Owns(size_t site, size_t piece) const {
    return piece < pieces.size() && sites[pieces[piece].owner] == site;
  }
  size_t Owner(size_t piece) const { return sites[pieces[piece].owner]; }
  // The site to which a site hands its partial results, and the sites that hand theirs to it.
  size_t Above(size_t site, size_t piece) const { return relays.Above(site, Owner(piece), piece); }
  std::vector<size_t> Below(size_t site, size_t piece) const {
    return relays.Below(site, Owner(piece), piece);
  }
  // Whether all who hand their partial results to a site have done so.
  bool HasPartials(size_t site, size_t piece) {
    return partials[piece].size() == Below(site, piece).size();
  }
  // Whether this site can reduce a piece: it has the others' partial results, and the taker of the
  // result is there. Data sent earlier would have to be kept unchecked.
  bool CanReduce(size_t here, size_t piece) {
    return HasPartials(here, piece) && (Owns(here, piece) || ready.contains(Above(here, piece)));
  }
  // Whether a site receives what another one computed, from whom, and whom it sends it to.
  bool Receives(size_t site, size_t piece) const {
    return !Owns(site, piece) && (pieces[piece].to == kAll || sites[pieces[piece].to] == site);
  }
  size_t ResultFrom(size_t site, size_t piece) const {
    return pieces[piece].to == kAll ? Above(site, piece) : Owner(piece);
  }
  std::vector<size_t> ResultTo(size_t site, size_t piece) const {
    if (pieces[piece].to == kAll) return Below(site, piece);
    const size_t to = sites[pieces[piece].to];
    return Owns(site, piece) && site != to ? std::vector<size_t>{to} : std::vector<size_t>{};
  }
};

}  // namespace vpod::fabric
