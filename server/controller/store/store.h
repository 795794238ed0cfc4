// The controller's durable state: one SQLite database in WAL mode with full synchronisation.
// Committed changes survive kill -9 and power loss; a process killed in the middle of a commit
// leaves all of it or nothing.
//
// Before SQLite opens the database, its log is judged (wal.h) against what the file `running` says
// was acknowledged (running.h): a log that is damaged, cut short, deleted or of another time is
// refused, and nothing is changed.
//
// Tables: objects (kind, id, data: a message of state.proto), events, counters, meta (the format).
// A database of an older format is brought to this one when opened (upgrade.cc), in one
// transaction; one of a newer format is refused. Messages name the file and what to do.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"
#include "device/base/unique_fd.h"
#include "server/controller/store/kept_events.h"
#include "server/controller/store/running.h"
#include "server/controller/store/wal.h"

struct sqlite3;
struct sqlite3_stmt;

namespace vpod::controller {

// A row of the log of events.
struct StoredEvent {
  uint64_t number = 0;
  int64_t time_ms = 0;  // since 1970
  std::string severity, object, user, text;
};

// One object written or removed.
struct Change {
  std::string kind;
  std::string id;
  std::optional<std::string> data;  // unset: removed
};

// Counters and events that are committed beside objects.
struct Ledger {
  std::map<std::string, uint64_t> counters;
  std::vector<StoredEvent> events;
};

// Thread-safe.
class Store {
 public:
  static constexpr size_t kEventsKept = 100000;  // beyond, KeptEvents says which goes

  enum class OpenMode { kOpenOrCreate, kCreateOnly };
  // AlreadyExists with kCreateOnly on an existing file. FailedPrecondition when another vipu-server
  // uses the file, or a newer one wrote it. DataLoss when it is no intact database of ours: it is
  // never overwritten. Unavailable when it cannot be read or written.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path, OpenMode mode);
  ~Store();

  // ResourceExhausted when the disk is full, Unavailable when it cannot be written otherwise;
  // nothing has changed then.
  absl::Status Commit(const std::vector<Change>& changes, const Ledger& ledger = {});

  // All objects of a kind, serialised, by id.
  absl::StatusOr<std::map<std::string, std::string>> Load(absl::string_view kind);
  // 0 when it was never set.
  absl::StatusOr<uint64_t> Counter(absl::string_view name);
  // The next `limit` events with numbers above `after`, or the newest if it is 0, oldest first;
  // `object` empty: of all. Numbers rise, but have gaps.
  absl::StatusOr<std::vector<StoredEvent>> Events(uint64_t after, uint32_t limit,
                                                  absl::string_view object);
  absl::StatusOr<uint64_t> LastEvent();
  // The database as it is now, as the bytes of a file without a log.
  absl::StatusOr<std::string> Image();
  // How the log was found; raised at every start.
  const WalReport& log_found() const { return log_found_; }
  uint64_t epoch() const { return epoch_; }
  // Id of this store and all its copies.
  const std::string& id() const { return id_; }
  // Secret of the controllers on this store and its copies, by which they know each other's word.
  const std::string& key() const { return key_; }
  // Raises the epoch beyond those of other controllers: by the clock, since they are not known.
  // Before anybody asks for it.
  absl::Status TakeOver();

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

  explicit Store(std::string path) : path_(std::move(path)) {}
  // The format of the database, empty for a new one. DataLoss when it is not ours or not intact.
  absl::StatusOr<std::string> CheckContents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // DataLoss when what was acknowledged cannot be read from the log. SQLite would pass over it, and
  // later changes would take its place.
  absl::Status CheckLog();
  // A log that is not intact and not needed makes room for a new one.
  absl::Status DropTornLog();
  absl::Status Prepare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LoadKeptEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // In a transaction; whether it is committed or rolled back, `kept_events_` is to be told.
  absl::Status Write(const std::vector<Change>& changes, const Ledger& ledger)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::map<std::string, std::string>> LoadLocked(absl::string_view kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a commit: notes how far the log has come, and checkpoints a long one.
  absl::Status NoteCommit(bool sync) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint64_t> CounterLocked(absl::string_view name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NotIntact(absl::string_view why) const;
  absl::Status Error(absl::string_view what) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Statement> Compile(absl::string_view sql) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs a compiled statement to its end and makes it ready for the next time.
  absl::Status Step(const Statement& statement, absl::string_view what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Mutex mutex_;
  base::UniqueFd lock_, log_;  // of the database, flocked from before it is judged; of its log
  WalReport log_found_;
  uint64_t epoch_ = 0;
  std::string id_, key_;
  std::unique_ptr<RunningFile> running_ ABSL_GUARDED_BY(mutex_);
  uint32_t log_frames_ ABSL_GUARDED_BY(mutex_) = 0;
  sqlite3* database_ ABSL_PT_GUARDED_BY(mutex_) = nullptr;
  const std::string path_;
  Statement put_ ABSL_GUARDED_BY(mutex_), remove_ ABSL_GUARDED_BY(mutex_),
      set_counter_ ABSL_GUARDED_BY(mutex_), add_event_ ABSL_GUARDED_BY(mutex_),
      drop_event_ ABSL_GUARDED_BY(mutex_);
  KeptEvents kept_events_ ABSL_GUARDED_BY(mutex_){kEventsKept};
};

}  // namespace vpod::controller
