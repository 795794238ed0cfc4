// Mapped memory with a page on either side that nobody may touch: what runs past its end ends in a
// fault, never in what happens to lie beside it.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"

namespace vpod::shm {

// Movable; unmaps when destroyed. The bytes may be touched from any thread.
class Mapping {
 public:
  Mapping() = default;
  // Memory of this process alone, zero at first: no descriptor leads to it. ResourceExhausted when
  // the kernel refuses, as for the next one.
  static absl::StatusOr<Mapping> Private(size_t bytes);
  // The first bytes of a file, shared with everybody who maps it.
  static absl::StatusOr<Mapping> Shared(int fd, size_t bytes);

  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // From now on the bytes [offset, offset + bytes) are those of a file at the same place. Whole
  // pages; nobody touches them meanwhile.
  absl::Status MapFile(int fd, size_t offset, size_t bytes);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Mapping(std::byte* data, size_t size) : data_(data), size_(size) {}
  static absl::StatusOr<Mapping> Reserve(size_t bytes);

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace vpod::shm
