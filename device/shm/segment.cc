#include "device/shm/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::shm {

Segment::Segment(base::UniqueFd fd, Mapping mapping)
    : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

absl::StatusOr<Segment> Segment::Create(size_t bytes) {
  base::UniqueFd fd(memfd_create("vpod", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot create ", bytes, " bytes of shared memory: ", std::strerror(errno)));
  }
  VPOD_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Shared(fd.get(), bytes));
  return Segment(std::move(fd), std::move(mapping));
}

absl::StatusOr<Segment> Segment::Map(base::UniqueFd fd, size_t bytes) {
  struct stat info = {};
  struct statfs system = {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);  // negative: a file that knows no seals
  // Huge pages come from a pool of their own, and who touches one when that is empty gets SIGBUS.
  const bool ordinary = fstatfs(fd.get(), &system) == 0 && system.f_type == TMPFS_MAGIC;
  if (fstat(fd.get(), &info) != 0 || static_cast<size_t>(info.st_size) < bytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0 || !ordinary) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shared segment is not a sealed one of ordinary pages with ", bytes, " bytes"));
  }
  VPOD_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Shared(fd.get(), bytes));
  return Segment(std::move(fd), std::move(mapping));
}

void Segment::Discard(size_t offset, size_t bytes) {
  // If that fails, memory is wasted, nothing else.
  (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes));
}

absl::Status SendFd(int socket, int fd, const void* data, size_t length) {
  iovec part{const_cast<void*>(data), length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  if (TEMP_FAILURE_RETRY(sendmsg(socket, &message, MSG_NOSIGNAL)) != static_cast<ssize_t>(length)) {
    return absl::UnavailableError(absl::StrCat("cannot pass a descriptor: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<base::UniqueFd> ReceiveFd(int socket, void* data, size_t length) {
  iovec part{data, length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received =
      TEMP_FAILURE_RETRY(recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL));
  // Alignment leaves room for more than one; all that came are ours to close.
  std::vector<base::UniqueFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int raw = -1;
      std::memcpy(&raw, reinterpret_cast<const std::byte*>(header) + at, sizeof(int));
      fds.emplace_back(raw);
    }
  }
  if (received != static_cast<ssize_t>(length)) {
    return absl::UnavailableError(received < 0 && errno == EAGAIN
                                      ? "the peer does not answer at the local socket"
                                      : "the peer closed the local socket");
  }
  if (fds.size() > 1)
    return absl::InvalidArgumentError(absl::StrCat("the peer passed ", fds.size(), " descriptors"));
  return fds.empty() ? base::UniqueFd() : std::move(fds.front());
}

}  // namespace vpod::shm
