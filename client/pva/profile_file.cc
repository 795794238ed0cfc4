#include "client/pva/profile_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/pva/schema.h"
#include "device/base/status.h"

namespace vpod::pva {
namespace {

// By the user and group that opening the file counts, too.
bool Permits(const std::string& path, int mode) {
  return faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS) == 0;
}

absl::Status CannotRead(const std::string& file) {
  return absl::PermissionDeniedError(
      absl::StrCat(file, ": cannot be read: ", std::strerror(errno)));
}

// Whether the journal belongs to a change of several databases. It then names a file that SQLite
// removes in the end, and which may be any.
bool NamesAnotherFile(const std::string& journal) {
  // The end of such a journal (https://sqlite.org/fileformat.html, "The Super-Journal Name").
  constexpr std::array<unsigned char, 8> kMark = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  std::array<char, kMark.size()> end{};
  std::ifstream file(journal, std::ios::binary);
  file.seekg(-static_cast<std::streamoff>(end.size()), std::ios::end);
  return file.read(end.data(), end.size()) && std::memcmp(end.data(), kMark.data(), 8) == 0;
}

absl::Status CheckFileBeside(const std::string& beside) {
  struct stat info {};
  if (stat(beside.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(beside, " is not a regular file"));
}

}  // namespace

absl::StatusOr<std::string> FindProfile(const std::string& path) {
  struct stat info {};
  std::string file = path;
  int found = stat(file.c_str(), &info);
  if (found == 0 && S_ISDIR(info.st_mode)) {
    file = (std::filesystem::path(path) / kProfileFile).string();
    found = stat(file.c_str(), &info);
    if (found != 0 && errno == ENOENT)
      return absl::NotFoundError(absl::StrCat(path, ": the directory has no ", kProfileFile));
  }
  if (found != 0 && (errno == ENOENT || errno == ENOTDIR))
    return absl::NotFoundError(absl::StrCat(file, ": there is no such profile"));
  if (found != 0) return CannotRead(file);
  // A pipe would be waited for.
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(file, " is not a regular file"));
  if (!Permits(file, R_OK)) return CannotRead(file);
  return file;
}

absl::StatusOr<std::unique_ptr<Database>> OpenProfile(const std::string& file) {
  const std::string journal = file + "-journal";
  for (const std::string& beside : {journal, file + "-wal", file + "-shm"})
    VPOD_RETURN_IF_ERROR(CheckFileBeside(beside));
  std::error_code error;
  if (!std::filesystem::exists(journal, error)) return Database::Open(file, Database::Mode::kRead);
  if (NamesAnotherFile(journal))
    return absl::InvalidArgumentError(absl::StrCat(journal, " is not the journal of a profile"));
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  const bool may_write =
      Permits(file, W_OK) && Permits(folder.empty() ? "." : folder.string(), W_OK);
  return Database::Open(file, may_write ? Database::Mode::kWrite : Database::Mode::kRead);
}

}  // namespace vpod::pva
