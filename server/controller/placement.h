// Where partitions go: best-fit buddy placement over the IPUs of one allocation (spec/vipu.md 6).
//
// The IPUs of an allocation are numbered in cluster order; position p is IPU# 3 - p%4 of its
// machine p/4. Machines that are neighbours in one IPU-Link domain (ILD) form a run; an allocation
// that has whole ILDs has one run for each. A partition of at most an ILD lies in one run, aligned
// to its size from the run's start; a larger one takes whole ILDs that follow one another.
//
// The free blocks of every size are indexed, so that placing costs a look into seven sets (larger
// than an ILD: a walk over the runs), whatever the size of the POD and however full it is. Pure;
// not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vpod::controller {

inline constexpr int kBlockSizes = 7;  // blocks of 1, 2, … 64 IPUs

// Machines of an allocation that are neighbours in one ILD.
struct Run {
  uint32_t ipus = 0;         // at most 64
  uint32_t ild = 0;          // of the cluster
  bool is_whole_ild = true;  // no machine of the ILD is missing
};

class Room {
 public:
  Room() = default;
  // `name` is the allocation's, for messages; `version_before` that of the room whose place it
  // takes.
  Room(std::string name, uint32_t ipus_per_ild, const std::vector<Run>& runs,
       uint64_t version_before = 0);

  // First position for a partition of `size` IPUs (a power of two): the smallest free block that
  // holds it, the lowest of equals. With `index` >= 0 the position is index × size or none.
  // ResourceExhausted says what is free and how it is cut up; InvalidArgument names an index that
  // no partition can have.
  absl::StatusOr<uint32_t> Place(uint32_t size, int64_t index = -1) const;
  // Whether a partition could be at a place that it can have: nothing there is used or out of
  // service, nor lacks the GW-Links that it needs.
  bool CanHold(uint32_t first, uint32_t size) const {
    return IsFree(first, size) && HasGwLinks(first, size);
  }
  // How many partitions of `size` could be placed one after the other.
  uint32_t Available(uint32_t size) const;

  // Marks positions as used by a partition, or no longer.
  void Take(uint32_t first, uint32_t count) { SetUsed(first, count, true); }
  void Release(uint32_t first, uint32_t count) { SetUsed(first, count, false); }
  // Positions out of service are not placed upon, used or not. `mask`: bit i for position first +
  // i; the four positions of one machine.
  void SetOutOfService(uint32_t first_of_machine, uint32_t mask);
  // A partition over several ILDs needs the GW-Links of all its machines.
  void SetGwLinks(uint32_t first_of_machine, bool up);

  uint32_t ipus() const { return ipus_; }
  // Size of the largest partition that it can have, while nothing is used or out of service.
  uint32_t LargestPartition() const;
  uint32_t free() const { return free_; }  // neither used nor out of service
  // Rises with every change. A request that found no place need not be tried again before.
  uint64_t version() const { return version_; }

 private:
  struct Block {
    uint32_t start = 0, ipus = 0, ild = 0;
    bool is_whole_ild = false;
    uint64_t used = 0, broken = 0;  // by position in the run
    uint64_t free = 0;              // neither
    uint64_t no_gw_links = 0;       // all positions of machines whose GW-Links are down
    uint32_t levels = 0;            // bit l: it has a free block of 2^l that no larger one holds
  };

  size_t RunOf(uint32_t position) const;
  void SetUsed(uint32_t first, uint32_t count, bool used);
  void Refresh(size_t run);
  bool IsFree(uint32_t first, uint32_t count) const;
  bool HasGwLinks(uint32_t first, uint32_t size) const;
  bool IsFreeIld(const Block& run) const;
  // Calls visit(first run, number) for the longest chains of free whole ILDs.
  template <class Visit>
  void ForEachChain(const Visit& visit) const;
  absl::StatusOr<uint32_t> PlaceAt(uint32_t size, uint64_t index) const;
  absl::StatusOr<uint32_t> PlaceIlds(uint32_t size) const;
  uint64_t LargestFreeBlock() const;
  absl::Status Refusal(uint32_t size) const;

  std::string name_;
  uint32_t ipus_per_ild_ = 64;
  uint32_t ipus_ = 0, free_ = 0, out_of_service_ = 0;
  uint64_t version_ = 0;
  std::vector<Block> runs_;
  std::array<std::set<uint32_t>, kBlockSizes> runs_by_level_;  // runs that have the level's bit
};

}  // namespace vpod::controller
