#include "device/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "device/base/unique_fd.h"

namespace vpod::base {
namespace {

absl::Status CannotRead(const std::string& path, absl::string_view why) {
  return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", why));
}

}  // namespace

absl::StatusOr<std::string> ReadNamedFile(const std::string& path, size_t most) {
  struct stat info {};
  // Asked before it is opened: a terminal or a tape may do something at that.
  if (stat(path.c_str(), &info) != 0) return CannotRead(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read ", path, ": it is ", S_ISDIR(info.st_mode) ? "a directory" : "not a file"));
  }
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return CannotRead(path, std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(file.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return CannotRead(path, std::strerror(errno));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read ", path, ": it has more than ", most, " bytes"));
    }
  }
}

}  // namespace vpod::base
