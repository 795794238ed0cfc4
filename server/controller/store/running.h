// The file `<database>.running` says that the database is in use, or was when its controller died,
// and how far its log had come. With it a log that was deleted or cut short is noticed, and damage
// in the last transaction (wal.h).
//
//   no file      The database was closed in order, or is of an older vipu-server.
//   kStarting    A controller has judged the log and goes on with it; nothing is known of it yet.
//   kRunning     The log has a commit at `position`. It is never claimed before it is synced, so an
//                older file, as a power cut leaves it, only claims less.
//   kRestoring   `--restore` was interrupted between two files; the database must not be opened.
//
// Two slots of 512 bytes, a line of text each, written in turn and in place: a write that is torn
// leaves the other slot, and none needs room on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"
#include "server/controller/store/wal.h"

namespace vpod::controller {

enum class RunState { kStarting, kRunning, kRestoring };

struct RunRecord {
  RunState state = RunState::kStarting;
  WalPosition position;  // of kRunning
  bool operator==(const RunRecord&) const = default;
};

// Not thread-safe.
class RunningFile {
 public:
  static std::string PathOf(const std::string& database) { return database + ".running"; }
  // Nothing when there is no file. DataLoss when neither slot can be read. Changes nothing.
  static absl::StatusOr<std::optional<RunRecord>> Read(const std::string& database);
  // Opens or creates the file; its name is synced. Unavailable when that fails.
  static absl::StatusOr<std::unique_ptr<RunningFile>> Open(const std::string& database);

  // Puts the record into the older slot. The write alone survives kill -9; synced, a power cut too.
  absl::Status Write(const RunRecord& record, bool sync);
  // Syncs what was written; does nothing if it has been synced.
  absl::Status Sync();
  // The database is about to be closed in order.
  absl::Status Remove();

 private:
  RunningFile(std::string path, base::UniqueFd fd, uint64_t sequence)
      : path_(std::move(path)), fd_(std::move(fd)), sequence_(sequence) {}

  const std::string path_;
  const base::UniqueFd fd_;
  uint64_t sequence_;  // of the last record; its slot is sequence % 2
  bool synced_ = true;
};

}  // namespace vpod::controller
