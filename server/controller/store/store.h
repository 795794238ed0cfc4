// The controller's durable state: one SQLite database in WAL mode with full synchronisation. A
// method that returns OK has committed; a process killed in the middle leaves the change wholly or
// not at all.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace vpod::controller {

// Not thread-safe: the controller calls it under its lock.
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

 private:
  explicit Store(sqlite3* database) : database_(database) {}
  // OK for an empty database and one of ours in this format.
  absl::Status CheckContents(const std::string& path);
  absl::Status Execute(const char* sql);
  absl::Status Error(absl::string_view what) const;
  absl::StatusOr<sqlite3_stmt*> Prepare(const char* sql);
  absl::Status Step(sqlite3_stmt* statement, absl::string_view what);

  sqlite3* const database_;
};

}  // namespace vpod::controller
