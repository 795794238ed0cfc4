#include "device/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "device/base/unique_fd.h"

namespace vpod::base {
namespace {

absl::Status CannotRead(const std::string& path, absl::string_view why) {
  return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", why));
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

absl::Status CheckIsFileOrNothing(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is ", S_ISDIR(info.st_mode) ? "a directory" : "not a file"));
}

absl::StatusOr<std::string> OutputPath(const std::string& path) {
  namespace fs = std::filesystem;
  if (const absl::Status is_file = CheckIsFileOrNothing(path); !is_file.ok()) return is_file;
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  const fs::path target = fs::canonical(path, error);
  if (!error) return target.string();
  return absl::NotFoundError(absl::StrCat("cannot write ", path, ": it is a link to nothing"));
}

absl::StatusOr<std::string> ReadNamedFile(const std::string& path, size_t most) {
  struct stat info {};
  // Asked before it is opened: a terminal or a tape may do something at that.
  if (stat(path.c_str(), &info) != 0) return CannotRead(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
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
      return absl::FailedPreconditionError(
          absl::StrCat("cannot read ", path, ": it has more than ", most, " bytes"));
    }
  }
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text, mode_t mode) {
  std::string temporary = path + ".XXXXXX";
  const UniqueFd file(mkostemp(temporary.data(), O_CLOEXEC));  // of mode 0600
  const bool written = file.valid() && WriteAll(file.get(), text) &&
                       fchmod(file.get(), mode) == 0 && fsync(file.get()) == 0 &&
                       std::rename(temporary.c_str(), path.c_str()) == 0;
  const int why = errno;
  if (!written) {
    if (file.valid()) unlink(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(why)));
  }
  // The new name is on the disk once its directory is. Some file systems cannot say.
  const UniqueFd directory(open(DirectoryOf(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid()) (void)fsync(directory.get());
  return absl::OkStatus();
}

}  // namespace vpod::base
