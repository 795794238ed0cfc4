// Which replicas meet in a collective.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace vpod::fabric {

// The members of one group, in the order of the canonical tree: first, first + stride, … A group of
// all has stride 1 and begins at 0, consecutive ones have stride 1, orthogonal ones a larger one.
struct ReplicaGroup {
  uint32_t first = 0;
  uint32_t stride = 1;
  uint32_t size = 0;

  uint32_t Replica(size_t position) const {
    return first + stride * static_cast<uint32_t>(position);
  }
  bool Contains(size_t replica) const {
    return replica >= first && (replica - first) % stride == 0 && Position(replica) < size;
  }
  // Position of a member.
  size_t Position(size_t replica) const { return (replica - first) / stride; }
  friend auto operator<=>(const ReplicaGroup&, const ReplicaGroup&) = default;
};

}  // namespace vpod::fabric
