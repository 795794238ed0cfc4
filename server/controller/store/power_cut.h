// For tests: a disk that remembers in which order SQLite wrote, and what a power cut leaves of it.
//
// Synced data is there. Every sector of 512 bytes that was written since has its state of any
// moment since the last sync, independently of the others, as a page cache that was being written
// back leaves it; the file may have grown without having its bytes.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace vpod::controller {

// Contents by file: "" is the database, "-wal" its log.
using DiskFiles = std::map<std::string, std::string>;

class RecordingDisk {
 public:
  // A VFS of this name, which records what is written to files whose path begins with `database`.
  // One at a time; `by_default`: also for those who name no VFS.
  RecordingDisk(const std::string& name, std::string database, bool by_default = false);
  ~RecordingDisk();

  // Writes, syncs and truncations from here on are recorded; the files as they are now are synced.
  void Start();
  size_t operations() const { return operations_.size(); }
  // Returns the files that a power cut after so many operations leaves.
  DiskFiles Cut(size_t operations, std::mt19937_64& random) const;

 private:
  friend struct RecordedFile;
  struct Operation {
    enum Kind { kWrite, kTruncate, kSync, kDelete } kind;
    std::string file;
    uint64_t offset = 0;  // of a write; the size of a truncation
    std::string bytes;
  };
  void Record(Operation operation) {
    if (recording_) operations_.push_back(std::move(operation));
  }
  std::string Suffix(const char* path) const;

  sqlite3_vfs vfs_;
  const std::string name_, database_;
  bool recording_ = false;
  DiskFiles before_;
  std::vector<Operation> operations_;
};

DiskFiles ReadFiles(const std::string& database);
// Makes the files of the database these; others of it are removed.
void WriteFiles(const std::string& database, const DiskFiles& files);

}  // namespace vpod::controller
