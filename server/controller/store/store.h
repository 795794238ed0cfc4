// The controller's durable state: one SQLite database in WAL mode with full synchronisation. A
// method that returns OK has committed; a process killed in the middle leaves the change wholly or
// not at all.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/mutex.h"

struct sqlite3;
struct sqlite3_stmt;

namespace vpod::controller {

// One object written or removed.
struct Change {
  std::string kind;
  std::string id;
  std::optional<std::string> data;  // unset: removed
};

// Thread-safe.
class Store {
 public:
  enum class OpenMode { kOpenOrCreate, kCreateOnly };
  // AlreadyExists with kCreateOnly on an existing file. FailedPrecondition when another vipu-server
  // uses the file. DataLoss when it is no database of ours: it is never overwritten.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path, OpenMode mode);
  ~Store();

  // All objects of a kind, serialised, by id.
  absl::StatusOr<std::map<std::string, std::string>> Load(absl::string_view kind);
  absl::Status Put(absl::string_view kind, absl::string_view id, absl::string_view data);
  absl::Status Remove(absl::string_view kind, absl::string_view id);
  // All of them or none.
  absl::Status Commit(const std::vector<Change>& changes);

 private:
  explicit Store(sqlite3* database) : database_(database) {}
  // OK for an empty database and one of ours in this format.
  absl::Status CheckContents(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Error(absl::string_view what) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<sqlite3_stmt*> Prepare(const char* sql) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Step(sqlite3_stmt* statement, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Apply(const Change& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Mutex mutex_;
  sqlite3* const database_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace vpod::controller
