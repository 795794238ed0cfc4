#include "server/controller/store/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"

namespace vpod::controller {
namespace {

constexpr char kFormat[] = "1";

std::string Column(sqlite3_stmt* statement, int column) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement, column));
  return std::string(data == nullptr ? "" : data, sqlite3_column_bytes(statement, column));
}

void BindText(sqlite3_stmt* statement, int index, absl::string_view text) {
  sqlite3_bind_text(statement, index, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

}  // namespace

absl::Status Store::Error(absl::string_view what) const {
  const int code = sqlite3_errcode(database_);
  const std::string message =
      absl::StrCat("storage: cannot ", what, ": ", sqlite3_errmsg(database_));
  if (code == SQLITE_FULL) return absl::ResourceExhaustedError(message);
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) return absl::DataLossError(message);
  return absl::UnavailableError(message);
}

absl::Status Store::Execute(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    return Error("prepare the database");
  return absl::OkStatus();
}

absl::StatusOr<sqlite3_stmt*> Store::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_, sql, -1, &statement, nullptr) != SQLITE_OK)
    return Error("prepare a statement");
  return statement;
}

absl::Status Store::Step(sqlite3_stmt* statement, absl::string_view what) {
  const int code = sqlite3_step(statement);
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error(what);
  sqlite3_finalize(statement);
  return status;
}

absl::Status Store::CheckContents(const std::string& path) {
  VPOD_ASSIGN_OR_RETURN(sqlite3_stmt * tables, Prepare("SELECT count(*) FROM sqlite_master"));
  const bool counted = sqlite3_step(tables) == SQLITE_ROW;
  const bool is_new = counted && sqlite3_column_int(tables, 0) == 0;
  const absl::Status unreadable = counted ? absl::OkStatus() : Error("read the database");
  sqlite3_finalize(tables);
  if (!unreadable.ok() || is_new) return unreadable;
  const auto statement = Prepare("SELECT value FROM meta WHERE name = 'format'");
  if (!statement.ok()) {
    // Ours always has the table.
    return sqlite3_errcode(database_) == SQLITE_ERROR
               ? absl::DataLossError(statement.status().message())
               : statement.status();
  }
  const int code = sqlite3_step(*statement);
  const std::string format = code == SQLITE_ROW ? Column(*statement, 0) : "";
  const absl::Status status =
      code == SQLITE_ROW || code == SQLITE_DONE ? absl::OkStatus() : Error("read the format");
  sqlite3_finalize(*statement);
  if (status.ok() && format != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("storage ", path, " has format '", format,
                                                      "', this vipu-server reads ", kFormat));
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path, OpenMode mode) {
  struct stat info {};
  if (mode == OpenMode::kCreateOnly && stat(path.c_str(), &info) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("storage ", path, " exists already; remove it to start anew"));
  }
  // It holds hashes of access keys. What SQLite puts beside it gets the same mode.
  base::UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  sqlite3* database = nullptr;
  const int opened =
      sqlite3_open_v2(path.c_str(), &database,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Store> store(new Store(database));
  if (opened != SQLITE_OK) {
    return absl::UnavailableError(
        absl::StrCat("cannot open storage ", path, ": ", sqlite3_errmsg(database)));
  }
  base::MutexLock lock(store->mutex_);
  // Exclusive locking: a second controller on the same file is refused here. What is in the file is
  // looked at before anything is written: a database of another program stays as it is.
  absl::Status status = store->Execute("PRAGMA locking_mode=EXCLUSIVE;");
  if (status.ok()) status = store->CheckContents(path);
  if (status.ok()) {
    status = store->Execute(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
        "BEGIN EXCLUSIVE;"
        "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE IF NOT EXISTS objects (kind TEXT NOT NULL, id TEXT NOT NULL, data BLOB NOT "
        "NULL,"
        " PRIMARY KEY (kind, id)) WITHOUT ROWID;"
        "INSERT OR IGNORE INTO meta VALUES ('format', '1');"
        "COMMIT;");
  }
  if (!status.ok()) {
    const int code = sqlite3_errcode(database);
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
      return absl::FailedPreconditionError(
          absl::StrCat("storage ", path, " is in use by another vipu-server"));
    }
    if (absl::IsDataLoss(status)) {
      return absl::DataLossError(absl::StrCat("storage ", path,
                                              " is no intact vipu-server database (",
                                              sqlite3_errmsg(database), "); it was left as it is"));
    }
    return status;
  }
  return store;
}

Store::~Store() { sqlite3_close(database_); }

absl::StatusOr<std::map<std::string, std::string>> Store::Load(absl::string_view kind) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(sqlite3_stmt * statement,
                        Prepare("SELECT id, data FROM objects WHERE kind = ?"));
  BindText(statement, 1, kind);
  std::map<std::string, std::string> result;
  int code;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW)
    result[Column(statement, 0)] = Column(statement, 1);
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error("read objects");
  sqlite3_finalize(statement);
  if (!status.ok()) return status;
  return result;
}

absl::Status Store::Put(absl::string_view kind, absl::string_view id, absl::string_view data) {
  return Commit({{std::string(kind), std::string(id), std::string(data)}});
}

absl::Status Store::Remove(absl::string_view kind, absl::string_view id) {
  return Commit({{std::string(kind), std::string(id), std::nullopt}});
}

absl::Status Store::Commit(const std::vector<Change>& changes) {
  base::MutexLock lock(mutex_);
  if (changes.size() == 1) return Apply(changes[0]);  // a transaction by itself
  VPOD_RETURN_IF_ERROR(Execute("BEGIN"));
  absl::Status status;
  for (const Change& change : changes) {
    if (status.ok()) status = Apply(change);
  }
  if (status.ok()) status = Execute("COMMIT");
  // Fails when the database has already rolled back by itself.
  if (!status.ok()) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

absl::Status Store::Apply(const Change& change) {
  VPOD_ASSIGN_OR_RETURN(
      sqlite3_stmt * statement,
      Prepare(change.data.has_value() ? "INSERT OR REPLACE INTO objects VALUES (?, ?, ?)"
                                      : "DELETE FROM objects WHERE kind = ? AND id = ?"));
  BindText(statement, 1, change.kind);
  BindText(statement, 2, change.id);
  if (!change.data.has_value()) return Step(statement, "remove an object");
  sqlite3_bind_blob(statement, 3, change.data->data(), static_cast<int>(change.data->size()),
                    SQLITE_TRANSIENT);
  return Step(statement, "write an object");
}

}  // namespace vpod::controller
