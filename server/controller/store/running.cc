#include "server/controller/store/running.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "device/base/file.h"
#include "device/base/status.h"

namespace vpod::controller {
namespace {

constexpr size_t kSlotBytes = 512;
constexpr std::array<const char*, 3> kNames = {"starting", "running", "restoring"};

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

uint32_t Checksum(absl::string_view text) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

std::string Line(uint64_t sequence, const RunRecord& record) {
  const WalPosition& at = record.position;
  std::string line = absl::StrCat("vipu-server ", kNames[static_cast<size_t>(record.state)], " ",
                                  sequence, " ", at.salt1, " ", at.salt2, " ", at.frame, " ",
                                  at.checksum1, " ", at.checksum2, " ");
  absl::StrAppend(&line, Checksum(line), "\n");
  return line;
}

struct Slot {
  uint64_t sequence = 0;
  RunRecord record;
};

std::optional<Slot> Parse(const std::string& file, size_t number) {
  if (file.size() < (number + 1) * kSlotBytes) return std::nullopt;
  const std::string text = file.substr(number * kSlotBytes, kSlotBytes);
  const std::string line = text.substr(0, text.find('\n') + 1);
  Slot slot;
  WalPosition& at = slot.record.position;
  char name[16] = "";
  unsigned long long sequence = 0;
  if (std::sscanf(line.c_str(), "vipu-server %15s %llu %u %u %u %u %u", name, &sequence, &at.salt1,
                  &at.salt2, &at.frame, &at.checksum1, &at.checksum2) != 7)
    return std::nullopt;
  slot.sequence = sequence;
  for (size_t state = 0; state < kNames.size(); ++state) {
    slot.record.state = static_cast<RunState>(state);
    if (Line(slot.sequence, slot.record) == line) return slot;  // its checksum too
  }
  return std::nullopt;
}

std::optional<Slot> Newest(const std::string& file) {
  const std::optional<Slot> first = Parse(file, 0), second = Parse(file, 1);
  if (!first.has_value() || !second.has_value()) return first.has_value() ? first : second;
  return first->sequence > second->sequence ? first : second;
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const base::UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return Failed("sync", directory);
  return absl::OkStatus();
}

// It gets its name when it has its content, so that there is never one without.
absl::Status Create(const std::string& path) {
  const std::string unnamed = path + ".new";
  std::string bytes(2 * kSlotBytes, '\0');
  const std::string line = Line(0, {});
  bytes.replace(0, line.size(), line);
  const base::UniqueFd fd(open(unnamed.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid() ||
      pwrite(fd.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) ||
      fsync(fd.get()) != 0 || rename(unnamed.c_str(), path.c_str()) != 0) {
    const absl::Status failed = Failed("write", path);
    unlink(unnamed.c_str());
    return failed;
  }
  return SyncDirectoryOf(path);
}

}  // namespace

absl::StatusOr<std::optional<RunRecord>> RunningFile::Read(const std::string& database) {
  const std::string path = PathOf(database);
  if (access(path.c_str(), F_OK) != 0 && errno == ENOENT) return std::nullopt;
  const std::optional<Slot> slot = Newest(base::ReadFile(path));
  if (slot.has_value()) return slot->record;
  if (access(path.c_str(), R_OK) != 0)
    return absl::DataLossError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  return absl::DataLossError(absl::StrCat(path, " is damaged"));
}

absl::StatusOr<std::unique_ptr<RunningFile>> RunningFile::Open(const std::string& database) {
  const std::string path = PathOf(database);
  const std::optional<Slot> slot = Newest(base::ReadFile(path));
  if (!slot.has_value()) VPOD_RETURN_IF_ERROR(Create(path));
  base::UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return Failed("write", path);
  return std::unique_ptr<RunningFile>(
      new RunningFile(path, std::move(fd), slot.has_value() ? slot->sequence : 0));
}

absl::Status RunningFile::Write(const RunRecord& record, bool sync) {
  const std::string line = Line(sequence_ + 1, record);
  const auto offset = static_cast<off_t>((sequence_ + 1) % 2 * kSlotBytes);
  if (pwrite(fd_.get(), line.data(), line.size(), offset) != static_cast<ssize_t>(line.size()))
    return Failed("write", path_);
  ++sequence_;
  synced_ = false;
  return sync ? Sync() : absl::OkStatus();
}

absl::Status RunningFile::Sync() {
  if (synced_) return absl::OkStatus();
  if (fdatasync(fd_.get()) != 0) return Failed("sync", path_);
  synced_ = true;
  return absl::OkStatus();
}

absl::Status RunningFile::Remove() {
  if (unlink(path_.c_str()) != 0) return Failed("remove", path_);
  return SyncDirectoryOf(path_);
}

}  // namespace vpod::controller
