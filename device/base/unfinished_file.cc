#include "device/base/unfinished_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/base/random_id.h"
#include "device/base/unique_fd.h"

namespace vpod::base {
namespace {

namespace fs = std::filesystem;

std::string OfThisHost(const std::string& path) {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  return absl::StrCat(path, ".", host, ".");
}

// Whether a name goes on after the host's as one of Create's does: a number, a dot and a session.
bool IsOfCreate(absl::string_view rest) {
  const size_t digits = rest.size();
  while (!rest.empty() && absl::ascii_isdigit(rest[0])) rest.remove_prefix(1);
  if (rest.size() == digits || !absl::ConsumePrefix(&rest, ".") || rest.empty()) return false;
  for (const char c : rest) {
    if (!absl::ascii_isalnum(c)) return false;
  }
  return true;
}

// Whether a name leads to an open file: others may have renamed or removed it.
bool IsNamed(int file, const std::string& name) {
  struct stat opened = {}, named = {};
  return fstat(file, &opened) == 0 && lstat(name.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

absl::Status Failed(const std::string& path, int error) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message)
                                            : absl::UnavailableError(message);
}

}  // namespace

absl::StatusOr<UnfinishedFile> UnfinishedFile::Create(const std::string& path,
                                                      absl::string_view session) {
  const std::string name = absl::StrCat(OfThisHost(path), getpid(), ".", session);
  while (true) {
    const int lock = open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (lock < 0) return Failed(path, errno);
    int locked = flock(lock, LOCK_EX);
    while (locked != 0 && errno == EINTR) locked = flock(lock, LOCK_EX);
    // Where a file system has no locks, nobody removes anything. Before it was locked, somebody may
    // have taken the file for a leftover, or finished it.
    if (locked != 0 || IsNamed(lock, name)) {
      UnfinishedFile file(path, name, lock);
      if (ftruncate(lock, 0) != 0) return Failed(path, errno);  // it may be a leftover
      return file;
    }
    close(lock);
  }
}

UnfinishedFile::UnfinishedFile(UnfinishedFile&& other) noexcept
    : path_(std::move(other.path_)),
      name_(std::exchange(other.name_, "")),
      lock_(std::exchange(other.lock_, -1)) {}

UnfinishedFile::~UnfinishedFile() {
  if (!name_.empty()) unlink(name_.c_str());
  if (lock_ >= 0) close(lock_);
}

absl::Status UnfinishedFile::Finish() {
  if (rename(name_.c_str(), path_.c_str()) != 0) return Failed(path_, errno);
  name_.clear();
  return absl::OkStatus();
}

void RemoveLeftovers(const std::string& path) {
  const fs::path prefix = OfThisHost(path),
                 directory = prefix.has_parent_path() ? prefix.parent_path() : ".";
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, prefix.filename().string()) || !IsOfCreate(rest)) continue;
    // A pipe would be waited for.
    const int file = open(entry->path().c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) continue;
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && IsNamed(file, entry->path().string()))
      unlink(entry->path().c_str());
    close(file);
  }
}

absl::Status ReplaceWhole(const std::string& path,
                          const std::function<bool(const std::string& name)>& write) {
  const auto failed = [](absl::string_view why) {
    return absl::UnavailableError(absl::StrCat("cannot write ", why));
  };
  RemoveLeftovers(path);
  auto file = UnfinishedFile::Create(path, RandomId());
  if (!file.ok()) return failed(file.status().message());
  const std::string& name = file->name();
  struct stat before = {};
  const bool replaces = stat(path.c_str(), &before) == 0;
  errno = 0;
  if ((replaces && chmod(name.c_str(), 0600) != 0) || !write(name))
    return failed(Failed(path, errno == 0 ? EIO : errno).message());
  const UniqueFd written(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!written.valid() || (replaces && fchmod(written.get(), before.st_mode & 07777) != 0) ||
      fsync(written.get()) != 0)
    return failed(Failed(path, errno).message());
  const absl::Status finished = file->Finish();
  return finished.ok() ? finished : failed(finished.message());
}

}  // namespace vpod::base
