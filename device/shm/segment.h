// Memory shared between processes of one host: sealed memfds, which survive their owner's death and
// leave no name behind.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"

namespace vpod::shm {

// A mapped segment, zero when created. Movable; unmaps when destroyed. The bytes may be touched
// from any thread; what another process writes is data, never trusted.
class Segment {
 public:
  Segment() = default;
  // Creates a segment of `bytes` (0 gives an empty one). The size is sealed: no process can shrink
  // it under us. ResourceExhausted when the kernel refuses.
  static absl::StatusOr<Segment> Create(size_t bytes);
  // Maps a descriptor received from a peer; InvalidArgument unless it is sealed against shrinking,
  // has ordinary pages and holds `bytes`: then touching them cannot end this process.
  static absl::StatusOr<Segment> Map(base::UniqueFd fd, size_t bytes);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  Segment(base::UniqueFd fd, std::byte* data, size_t size);
  base::UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Passes `fd` and `length` bytes of `data` over a connected Unix socket.
absl::Status SendFd(int socket, int fd, const void* data, size_t length);
// Receives what SendFd sent; the descriptor is invalid when none came along.
absl::StatusOr<base::UniqueFd> ReceiveFd(int socket, void* data, size_t length);

}  // namespace vpod::shm
