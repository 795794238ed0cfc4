// Memory shared between processes of one host: sealed memfds, which survive their owner's death and
// leave no name behind.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"
#include "device/shm/mapping.h"

namespace vpod::shm {

// A mapped segment, zero when created, between two pages that nobody may touch (mapping.h).
// Movable; unmaps when destroyed. The bytes may be touched from any thread; what another process
// writes is data, never trusted.
class Segment {
 public:
  Segment() = default;
  // Creates a segment of `bytes` (0 gives an empty one). The size is sealed: no process can shrink
  // it under us. ResourceExhausted when the kernel refuses.
  static absl::StatusOr<Segment> Create(size_t bytes);
  // Maps a descriptor received from a peer; InvalidArgument unless it is sealed against shrinking,
  // has ordinary pages and holds `bytes`: then touching them cannot end this process.
  static absl::StatusOr<Segment> Map(base::UniqueFd fd, size_t bytes);

  // From now on the bytes [offset, offset + bytes) at data() are those of `other` at the same
  // place, or the segment's own again; what they were stays where it is. Whole pages; nobody
  // touches them meanwhile. ResourceExhausted when the kernel refuses.
  absl::Status MapFrom(const Segment& other, size_t offset, size_t bytes) {
    return mapping_.MapFile(other.fd(), offset, bytes);
  }
  absl::Status MapOwn(size_t offset, size_t bytes) { return MapFrom(*this, offset, bytes); }
  // Gives whole pages of the segment's own back to the system: they are zero again.
  void Discard(size_t offset, size_t bytes);

  std::byte* data() const { return mapping_.data(); }
  size_t size() const { return mapping_.size(); }
  int fd() const { return fd_.get(); }

 private:
  Segment(base::UniqueFd fd, Mapping mapping);
  base::UniqueFd fd_;
  Mapping mapping_;
};

// Passes `fd` and `length` bytes of `data` over a connected Unix socket.
absl::Status SendFd(int socket, int fd, const void* data, size_t length);
// Receives what SendFd sent; the descriptor is invalid when none came along.
absl::StatusOr<base::UniqueFd> ReceiveFd(int socket, void* data, size_t length);

}  // namespace vpod::shm
