#include "server/controller/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace vpod::controller {
namespace {

bool AllFree(const std::vector<bool>& free, uint64_t first, uint64_t count) {
  if (first + count > free.size()) return false;
  return std::all_of(free.begin() + static_cast<int64_t>(first),
                     free.begin() + static_cast<int64_t>(first + count),
                     [](bool is_free) { return is_free; });
}

// Size of the largest aligned free block around [first, first+size) inside its ILD.
uint64_t EnclosingBlock(const PlacementRequest& request, uint64_t ild_start, uint64_t first) {
  uint64_t block = request.size;
  while (block * 2 <= request.ipus_per_ild) {
    const uint64_t start = ild_start + (first - ild_start) / (block * 2) * (block * 2);
    if (start + block * 2 > ild_start + request.ipus_per_ild ||
        !AllFree(request.free, start, block * 2))
      break;
    block *= 2;
  }
  return block;
}

absl::Status Refusal(const PlacementRequest& request) {
  const auto free = std::count(request.free.begin(), request.free.end(), true);
  if (static_cast<uint64_t>(request.size) > request.free.size()) {
    return absl::ResourceExhaustedError(absl::StrCat(request.size, " IPUs requested, allocation ",
                                                     request.allocation_id, " has ",
                                                     request.free.size(), "."));
  }
  // Aligned blocks within an IPU-Link domain, then whole domains.
  uint64_t largest = 0;
  const uint64_t ild_ipus = request.ipus_per_ild;
  for (uint64_t size = 1; size <= request.free.size(); size *= 2) {
    if (size > ild_ipus && size % ild_ipus != 0) continue;
    for (uint64_t ild = 0; ild < request.free.size(); ild += ild_ipus) {
      for (uint64_t start = ild; start + std::min(size, ild_ipus) <= ild + ild_ipus; start += size)
        if (AllFree(request.free, start, size)) largest = size;
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat("No ", request.size, " free IPUs in allocation ",
                                                   request.allocation_id, " (", free,
                                                   " free, largest free block ", largest, ")."));
}

}  // namespace

absl::StatusOr<uint32_t> Place(const PlacementRequest& request) {
  if (request.index >= 0) {
    const uint64_t first = static_cast<uint64_t>(request.index) * request.size;
    if (request.size > request.free.size()) return Refusal(request);
    if (first + request.size > request.free.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("Position ", request.index, " does not exist in allocation ",
                       request.allocation_id, "; size ", request.size, " has positions 0 to ",
                       request.free.size() / request.size - 1, "."));
    }
    const bool within_domains =
        request.size > request.ipus_per_ild
            ? first % request.ipus_per_ild == 0 && request.size % request.ipus_per_ild == 0
            : first / request.ipus_per_ild == (first + request.size - 1) / request.ipus_per_ild;
    if (!within_domains) {
      return absl::InvalidArgumentError(absl::StrCat("Position ", request.index,
                                                     " is not within whole IPU-Link domains of "
                                                     "allocation ",
                                                     request.allocation_id, "."));
    }
    if (!AllFree(request.free, first, request.size)) {
      return absl::ResourceExhaustedError(absl::StrCat("Position ", request.index, " is in use."));
    }
    return static_cast<uint32_t>(first);
  }
  if (request.size > request.ipus_per_ild) {
    // Whole ILDs.
    if (request.size % request.ipus_per_ild == 0) {
      for (uint64_t start = 0; start + request.size <= request.free.size();
           start += request.ipus_per_ild) {
        if (AllFree(request.free, start, request.size)) return static_cast<uint32_t>(start);
      }
    }
    return Refusal(request);
  }
  uint64_t best = 0, best_block = 0;
  for (uint64_t ild = 0; ild < request.free.size(); ild += request.ipus_per_ild) {
    for (uint64_t first = ild; first + request.size <= ild + request.ipus_per_ild;
         first += request.size) {
      if (!AllFree(request.free, first, request.size)) continue;
      const uint64_t block = EnclosingBlock(request, ild, first);
      if (best_block == 0 || block < best_block) {
        best = first;
        best_block = block;
      }
    }
  }
  if (best_block == 0) return Refusal(request);
  return static_cast<uint32_t>(best);
}

}  // namespace vpod::controller
