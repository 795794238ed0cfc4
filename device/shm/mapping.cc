#include "device/shm/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::shm {
namespace {

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t WholePages(size_t bytes) { return (bytes + PageBytes() - 1) / PageBytes() * PageBytes(); }

absl::Status Refused(size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot map ", bytes, " bytes of memory: ", std::strerror(errno)));
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept { *this = std::move(other); }

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_ - PageBytes(), WholePages(size_) + 2 * PageBytes());
}

// Addresses for the bytes and for the pages beside them, all of which are out of reach.
absl::StatusOr<Mapping> Mapping::Reserve(size_t bytes) {
  if (bytes == 0) return Mapping();
  void* place = mmap(nullptr, WholePages(bytes) + 2 * PageBytes(), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return Refused(bytes);
  return Mapping(static_cast<std::byte*>(place) + PageBytes(), bytes);
}

absl::StatusOr<Mapping> Mapping::Private(size_t bytes) {
  VPOD_ASSIGN_OR_RETURN(Mapping mapping, Reserve(bytes));
  if (bytes > 0 && mprotect(mapping.data_, WholePages(bytes), PROT_READ | PROT_WRITE) != 0)
    return Refused(bytes);
  return mapping;
}

absl::StatusOr<Mapping> Mapping::Shared(int fd, size_t bytes) {
  VPOD_ASSIGN_OR_RETURN(Mapping mapping, Reserve(bytes));
  if (bytes > 0) VPOD_RETURN_IF_ERROR(mapping.MapFile(fd, 0, bytes));
  return mapping;
}

absl::Status Mapping::MapFile(int fd, size_t offset, size_t bytes) {
  const void* mapped = mmap(data_ + offset, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? Refused(bytes) : absl::OkStatus();
}

}  // namespace vpod::shm
