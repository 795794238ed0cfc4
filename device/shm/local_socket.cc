#include "device/shm/local_socket.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"

namespace vpod::shm {

absl::StatusOr<base::UniqueFd> Connect(absl::string_view name, std::chrono::milliseconds patience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The name follows a zero.
  if (name.empty() || name.size() >= sizeof(address.sun_path))
    return absl::NotFoundError("no name of a local socket");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  base::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{patience.count() / 1000, patience.count() % 1000 * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  // With a limit, signals interrupt calls whatever their handlers say.
  if (TEMP_FAILURE_RETRY(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length)) != 0) {
    if (errno == EAGAIN) return absl::UnavailableError("nobody accepts at the local socket");
    return absl::NotFoundError(
        absl::StrCat("cannot connect to the local socket: ", std::strerror(errno)));
  }
  return fd;
}

absl::Status Send(int connection, absl::string_view request) {
  if (TEMP_FAILURE_RETRY(send(connection, request.data(), request.size(), MSG_NOSIGNAL)) !=
      static_cast<ssize_t>(request.size())) {
    return absl::UnavailableError("the peer closed the local socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<base::UniqueFd> SendRequest(absl::string_view name, absl::string_view request,
                                           std::chrono::milliseconds patience) {
  VPOD_ASSIGN_OR_RETURN(base::UniqueFd connection, Connect(name, patience));
  VPOD_RETURN_IF_ERROR(Send(connection.get(), request));
  return connection;
}

}  // namespace vpod::shm
