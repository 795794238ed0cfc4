#include "server/controller/placement.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/counted.h"

namespace vpod::controller {
namespace {

uint64_t Ones(uint32_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

// Bits at the multiples of 2^level.
constexpr std::array<uint64_t, kBlockSizes> kStarts = {
    ~uint64_t{0},       0x5555555555555555, 0x1111111111111111, 0x0101010101010101,
    0x0001000100010001, 0x0000000100000001, 0x0000000000000001};

// Starts of the aligned free blocks of each size that lie in no larger free block.
std::array<uint64_t, kBlockSizes> MaximalBlocks(uint64_t free) {
  std::array<uint64_t, kBlockSizes> blocks;
  blocks[0] = free;
  for (int level = 1; level < kBlockSizes; ++level) {
    const uint64_t smaller = blocks[level - 1];
    const int half = 1 << (level - 1);
    blocks[level] = smaller & (smaller >> half) & kStarts[level];
    blocks[level - 1] = smaller & ~(blocks[level] | blocks[level] << half);
  }
  return blocks;
}

int LevelOf(uint32_t size) { return std::countr_zero(size); }

}  // namespace

Room::Room(std::string name, uint32_t ipus_per_ild, const std::vector<Run>& runs,
           uint64_t version_before)
    : name_(std::move(name)), ipus_per_ild_(ipus_per_ild), version_(version_before + 1) {
  for (const Run& run : runs) {
    runs_.push_back(
        {.start = ipus_, .ipus = run.ipus, .ild = run.ild, .is_whole_ild = run.is_whole_ild});
    ipus_ += run.ipus;
    Refresh(runs_.size() - 1);
  }
}

size_t Room::RunOf(uint32_t position) const {
  const auto after = std::upper_bound(runs_.begin(), runs_.end(), position,
                                      [](uint32_t p, const Block& run) { return p < run.start; });
  return static_cast<size_t>(after - runs_.begin()) - 1;
}

void Room::Refresh(size_t number) {
  ++version_;
  Block& run = runs_[number];
  free_ -= static_cast<uint32_t>(std::popcount(run.free));
  run.free = ~(run.used | run.broken) & Ones(run.ipus);
  free_ += static_cast<uint32_t>(std::popcount(run.free));
  const auto blocks = MaximalBlocks(run.free);
  for (int level = 0; level < kBlockSizes; ++level) {
    const bool had = run.levels >> level & 1, has = blocks[level] != 0;
    if (had == has) continue;
    run.levels ^= 1u << level;
    if (has) {
      runs_by_level_[level].insert(static_cast<uint32_t>(number));
    } else {
      runs_by_level_[level].erase(static_cast<uint32_t>(number));
    }
  }
}

void Room::SetUsed(uint32_t first, uint32_t count, bool used) {
  for (size_t number = RunOf(first); count > 0; ++number) {
    Block& run = runs_[number];
    const uint32_t offset = first - run.start;
    const uint32_t here = std::min(count, run.ipus - offset);
    const uint64_t mask = Ones(here) << offset;
    run.used = used ? run.used | mask : run.used & ~mask;
    Refresh(number);
    first += here;
    count -= here;
  }
}

void Room::SetOutOfService(uint32_t first_of_machine, uint32_t mask) {
  const size_t number = RunOf(first_of_machine);
  Block& run = runs_[number];
  const uint32_t offset = first_of_machine - run.start;
  const uint64_t before = run.broken;
  run.broken = (before & ~(uint64_t{0xf} << offset)) | uint64_t{mask & 0xf} << offset;
  if (run.broken == before) return;
  out_of_service_ -= static_cast<uint32_t>(std::popcount(before));
  out_of_service_ += static_cast<uint32_t>(std::popcount(run.broken));
  Refresh(number);
}

void Room::SetGwLinks(uint32_t first_of_machine, bool up) {
  const size_t number = RunOf(first_of_machine);
  Block& run = runs_[number];
  const uint64_t machine = uint64_t{0xf} << (first_of_machine - run.start);
  const uint64_t before = run.no_gw_links;
  run.no_gw_links = up ? before & ~machine : before | machine;
  if (run.no_gw_links != before) Refresh(number);
}

bool Room::HasGwLinks(uint32_t first, uint32_t size) const {
  if (size <= ipus_per_ild_) return true;
  const size_t begin = RunOf(first);
  return std::all_of(runs_.begin() + static_cast<int64_t>(begin),
                     runs_.begin() + static_cast<int64_t>(begin + size / ipus_per_ild_),
                     [](const Block& run) { return run.no_gw_links == 0; });
}

bool Room::IsFree(uint32_t first, uint32_t count) const {
  for (size_t number = RunOf(first); count > 0; ++number) {
    const Block& run = runs_[number];
    const uint32_t offset = first - run.start;
    const uint32_t here = std::min(count, run.ipus - offset);
    const uint64_t mask = Ones(here) << offset;
    if ((run.free & mask) != mask) return false;
    first += here;
    count -= here;
  }
  return true;
}

bool Room::IsFreeIld(const Block& run) const {
  return run.is_whole_ild && run.free == Ones(run.ipus) && run.no_gw_links == 0;
}

template <class Visit>
void Room::ForEachChain(const Visit& visit) const {
  for (size_t first = 0; first < runs_.size();) {
    size_t end = first;
    while (end < runs_.size() && IsFreeIld(runs_[end]) &&
           runs_[end].ild == runs_[first].ild + (end - first))
      ++end;
    if (end > first) visit(first, end - first);
    first = std::max(end, first + 1);
  }
}

absl::StatusOr<uint32_t> Room::Place(uint32_t size, int64_t index) const {
  if (size > ipus_) return Refusal(size);
  if (index >= 0) return PlaceAt(size, static_cast<uint64_t>(index));
  if (size > ipus_per_ild_) return PlaceIlds(size);
  for (int level = LevelOf(size); level < kBlockSizes; ++level) {
    if (runs_by_level_[level].empty()) continue;
    const Block& run = runs_[*runs_by_level_[level].begin()];
    return run.start + static_cast<uint32_t>(std::countr_zero(MaximalBlocks(run.free)[level]));
  }
  return Refusal(size);
}

absl::StatusOr<uint32_t> Room::PlaceAt(uint32_t size, uint64_t index) const {
  const uint64_t wanted = index * size;
  if (wanted + size > ipus_) {
    return absl::InvalidArgumentError(
        absl::StrCat("Position ", index, " does not exist in allocation ", name_, "; size ", size,
                     " has positions 0 to ", ipus_ / size - 1, "."));
  }
  const auto first = static_cast<uint32_t>(wanted);
  const size_t begin = RunOf(first), end = RunOf(first + size - 1) + 1;
  bool fits = end - begin == 1;
  if (size > ipus_per_ild_) {
    fits = size % ipus_per_ild_ == 0 && runs_[begin].start == first;
    for (size_t run = begin; run < end; ++run) {
      fits = fits && runs_[run].is_whole_ild && runs_[run].ild == runs_[begin].ild + (run - begin);
    }
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Position ", index, " is not within whole IPU-Link domains of allocation ", name_, "."));
  }
  if (!IsFree(first, size))
    return absl::ResourceExhaustedError(absl::StrCat("Position ", index, " is in use."));
  if (!HasGwLinks(first, size)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Position ", index, " has GW-Links that are down."));
  }
  return first;
}

// The shortest chain of free ILDs that holds it, the lowest of equals.
absl::StatusOr<uint32_t> Room::PlaceIlds(uint32_t size) const {
  if (size % ipus_per_ild_ != 0) return Refusal(size);
  const size_t wanted = size / ipus_per_ild_;
  size_t best = 0, best_length = 0;
  ForEachChain([&](size_t first, size_t length) {
    if (length < wanted || (best_length != 0 && length >= best_length)) return;
    best = first;
    best_length = length;
  });
  if (best_length == 0) return Refusal(size);
  return runs_[best].start;
}

uint32_t Room::Available(uint32_t size) const {
  uint32_t available = 0;
  if (size > ipus_per_ild_) {
    if (size % ipus_per_ild_ != 0) return 0;
    ForEachChain([&](size_t, size_t length) {
      available += static_cast<uint32_t>(length) / (size / ipus_per_ild_);
    });
    return available;
  }
  for (int level = LevelOf(size); level < kBlockSizes; ++level) {
    for (const uint32_t run : runs_by_level_[level]) {
      available += static_cast<uint32_t>(std::popcount(MaximalBlocks(runs_[run].free)[level]))
                   << (level - LevelOf(size));
    }
  }
  return available;
}

uint32_t Room::LargestPartition() const {
  std::vector<Run> runs;
  for (const Block& run : runs_)
    runs.push_back({.ipus = run.ipus, .ild = run.ild, .is_whole_ild = run.is_whole_ild});
  return static_cast<uint32_t>(Room(name_, ipus_per_ild_, runs).LargestFreeBlock());
}

uint64_t Room::LargestFreeBlock() const {
  size_t chain = 0;
  ForEachChain([&](size_t, size_t length) { chain = std::max(chain, length); });
  const uint64_t whole = chain * ipus_per_ild_;
  for (uint64_t size = whole == 0 ? 0 : std::bit_floor(whole); size > ipus_per_ild_; size /= 2) {
    if (size % ipus_per_ild_ == 0) return size;
  }
  for (int level = kBlockSizes - 1; level >= 0; --level) {
    if (!runs_by_level_[level].empty()) return uint64_t{1} << level;
  }
  return 0;
}

absl::Status Room::Refusal(uint32_t size) const {
  if (size > ipus_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        base::Counted(size, "IPU"), " requested, allocation ", name_, " has ", ipus_, "."));
  }
  uint32_t lacking = 0;  // IPUs that only partitions within an ILD can use
  for (const Block& run : runs_) {
    if (size > ipus_per_ild_) lacking += static_cast<uint32_t>(std::popcount(run.no_gw_links));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "No ", size == 1 ? "free IPU" : absl::StrCat(size, " free IPUs"), " in allocation ", name_,
      " (", free_, " free, largest free block ", LargestFreeBlock(),
      out_of_service_ == 0 ? "" : absl::StrCat(", ", out_of_service_, " out of service"),
      lacking == 0 ? "" : absl::StrCat(", ", lacking, " with GW-Links down"), ")."));
}

}  // namespace vpod::controller
