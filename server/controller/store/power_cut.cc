#include "server/controller/store/power_cut.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <utility>

#include "device/base/file.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kSector = 512;

RecordingDisk* disk = nullptr;  // sqlite3_vfs has no room for whose it is

// A file with what may have become of it since its last sync.
struct UnsyncedFile {
  std::string synced, now;
  std::map<uint64_t, std::vector<std::string>> history;  // states of a sector since then

  void Sync() {
    synced = now;
    history.clear();
  }
  void Write(uint64_t offset, const std::string& bytes) {
    const uint64_t end = offset + bytes.size();
    if (now.size() < end) now.resize(end, '\0');
    now.replace(offset, bytes.size(), bytes);
    for (uint64_t sector = offset / kSector; sector * kSector < end; ++sector)
      history[sector].push_back(now.substr(sector * kSector, kSector));
  }
  std::string AfterPowerCut(std::mt19937_64& random) const {
    std::string result = synced;
    const uint64_t kind = random() % 4;  // nothing, all, or each sector by itself, rarely or mostly
    for (const auto& [sector, states] : history) {
      const bool kept =
          kind == 1 || (kind == 2 && random() % 8 == 0) || (kind == 3 && random() % 8);
      if (!kept) continue;
      const std::string& state = kind == 1 ? states.back() : states[random() % states.size()];
      if (result.size() < sector * kSector + state.size())
        result.resize(sector * kSector + state.size(), '\0');
      result.replace(sector * kSector, state.size(), state);
    }
    // If a file has grown, sectors that were never written may have anything in them.
    if (kind >= 2 && random() % 4 == 0 && now.size() > result.size()) {
      const size_t from = result.size();
      result.resize(from + random() % (now.size() - from + 1));
      for (size_t i = from; i < result.size(); ++i) result[i] = static_cast<char>(random());
    }
    return result;
  }
};

}  // namespace

struct RecordedFile {
  sqlite3_file base;
  std::string* suffix;  // null: not recorded
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  static RecordedFile* Of(sqlite3_file* file) { return reinterpret_cast<RecordedFile*>(file); }
  static const sqlite3_io_methods* Real(sqlite3_file* file) { return Of(file)->real()->pMethods; }
  void Record(RecordingDisk::Operation::Kind kind, uint64_t offset = 0, std::string bytes = "") {
    if (suffix != nullptr) disk->Record({kind, *suffix, offset, std::move(bytes)});
  }

  static int Close(sqlite3_file* file) {
    const int code = Real(file)->xClose(Of(file)->real());
    delete Of(file)->suffix;
    return code;
  }
  static int Read(sqlite3_file* file, void* into, int bytes, sqlite3_int64 offset) {
    return Real(file)->xRead(Of(file)->real(), into, bytes, offset);
  }
  static int Write(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 offset) {
    Of(file)->Record(RecordingDisk::Operation::kWrite, static_cast<uint64_t>(offset),
                     {static_cast<const char*>(from), static_cast<size_t>(bytes)});
    return Real(file)->xWrite(Of(file)->real(), from, bytes, offset);
  }
  static int Truncate(sqlite3_file* file, sqlite3_int64 size) {
    Of(file)->Record(RecordingDisk::Operation::kTruncate, static_cast<uint64_t>(size));
    return Real(file)->xTruncate(Of(file)->real(), size);
  }
  static int Sync(sqlite3_file* file, int) {
    Of(file)->Record(RecordingDisk::Operation::kSync);
    return SQLITE_OK;  // nobody pulls the plug of the machine that tests
  }
  static int FileSize(sqlite3_file* file, sqlite3_int64* size) {
    return Real(file)->xFileSize(Of(file)->real(), size);
  }
  static int Lock(sqlite3_file* file, int level) {
    return Real(file)->xLock(Of(file)->real(), level);
  }
  static int Unlock(sqlite3_file* file, int level) {
    return Real(file)->xUnlock(Of(file)->real(), level);
  }
  static int CheckReservedLock(sqlite3_file* file, int* result) {
    return Real(file)->xCheckReservedLock(Of(file)->real(), result);
  }
  static int FileControl(sqlite3_file* file, int what, void* argument) {
    return Real(file)->xFileControl(Of(file)->real(), what, argument);
  }
  static int SectorSize(sqlite3_file* file) { return Real(file)->xSectorSize(Of(file)->real()); }
  static int DeviceCharacteristics(sqlite3_file* file) {
    return Real(file)->xDeviceCharacteristics(Of(file)->real());
  }
  // Version 1: without shared memory, which exclusive locking does not need.
  static constexpr sqlite3_io_methods kMethods = {1,
                                                  Close,
                                                  Read,
                                                  Write,
                                                  Truncate,
                                                  Sync,
                                                  FileSize,
                                                  Lock,
                                                  Unlock,
                                                  CheckReservedLock,
                                                  FileControl,
                                                  SectorSize,
                                                  DeviceCharacteristics,
                                                  {},
                                                  {},
                                                  {},
                                                  {},
                                                  {},
                                                  {}};

  static int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* given) {
    auto* real_vfs = static_cast<sqlite3_vfs*>(vfs->pAppData);
    RecordedFile* recorded = Of(file);
    const int code = real_vfs->xOpen(real_vfs, path, recorded->real(), flags, given);
    recorded->base.pMethods = recorded->real()->pMethods == nullptr ? nullptr : &kMethods;
    recorded->suffix = nullptr;
    if (code == SQLITE_OK && path != nullptr && disk != nullptr)
      recorded->suffix = new std::string(disk->Suffix(path));
    return code;
  }
  static int Delete(sqlite3_vfs* vfs, const char* path, int sync) {
    auto* real_vfs = static_cast<sqlite3_vfs*>(vfs->pAppData);
    if (disk != nullptr) {
      disk->Record({RecordingDisk::Operation::kDelete, disk->Suffix(path), 0, ""});
    }
    return real_vfs->xDelete(real_vfs, path, sync);
  }
};

RecordingDisk::RecordingDisk(const std::string& name, std::string database, bool by_default)
    : name_(name), database_(fs::absolute(database).string()) {
  sqlite3_vfs* real = sqlite3_vfs_find(nullptr);
  vfs_ = *real;
  vfs_.zName = name_.c_str();
  vfs_.pNext = nullptr;
  vfs_.pAppData = real;
  vfs_.szOsFile = static_cast<int>(sizeof(RecordedFile)) + real->szOsFile;
  vfs_.xOpen = RecordedFile::Open;
  vfs_.xDelete = RecordedFile::Delete;
  disk = this;
  sqlite3_vfs_register(&vfs_, by_default ? 1 : 0);
}

RecordingDisk::~RecordingDisk() {
  sqlite3_vfs_unregister(&vfs_);
  disk = nullptr;
}

std::string RecordingDisk::Suffix(const char* path) const {
  const std::string text = path;
  return text.compare(0, database_.size(), database_) == 0 ? text.substr(database_.size()) : "?";
}

void RecordingDisk::Start() {
  before_ = ReadFiles(database_);
  operations_.clear();
  recording_ = true;
}

DiskFiles RecordingDisk::Cut(size_t operations, std::mt19937_64& random) const {
  std::map<std::string, UnsyncedFile> files;
  for (const auto& [suffix, bytes] : before_) files[suffix] = {bytes, bytes, {}};
  for (size_t i = 0; i < operations; ++i) {
    const Operation& operation = operations_[i];
    UnsyncedFile& file = files[operation.file];
    switch (operation.kind) {
      case Operation::kWrite:
        file.Write(operation.offset, operation.bytes);
        break;
      case Operation::kSync:
        file.Sync();
        break;
      case Operation::kTruncate:  // of a synced file, here
        file.now.resize(operation.offset);
        if (random() % 2 == 0) file.Sync();
        break;
      case Operation::kDelete:
        if (random() % 2 == 0) files.erase(operation.file);
        break;
    }
  }
  DiskFiles result;
  for (const auto& [suffix, file] : files) result[suffix] = file.AfterPowerCut(random);
  return result;
}

DiskFiles ReadFiles(const std::string& database) {
  DiskFiles files;
  for (const char* suffix : {"", "-wal", "-journal"}) {
    if (fs::exists(database + suffix)) files[suffix] = base::ReadFile(database + suffix);
  }
  return files;
}

void WriteFiles(const std::string& database, const DiskFiles& files) {
  for (const char* suffix : {"", "-wal", "-journal"}) fs::remove(database + suffix);
  for (const auto& [suffix, bytes] : files)
    std::ofstream(database + suffix, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace vpod::controller
