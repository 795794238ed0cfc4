#include "server/controller/store/store.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "device/base/file.h"
#include "device/base/random_id.h"
#include "device/base/sqlite_failure.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "device/base/unique_fd.h"
#include "server/controller/store/upgrade.h"

namespace vpod::controller {
namespace {

constexpr char kTables[] =
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS objects (kind TEXT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL,"
    " PRIMARY KEY (kind, id)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL,"
    " severity TEXT NOT NULL, object TEXT NOT NULL, user TEXT NOT NULL, text TEXT NOT NULL);";

std::string Column(sqlite3_stmt* statement, int column) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement, column));
  return std::string(data == nullptr ? "" : data, sqlite3_column_bytes(statement, column));
}

// Older controllers may have cut a text inside a character; then it could be sent to nobody.
std::string TextColumn(sqlite3_stmt* statement, int column) {
  const std::string text = Column(statement, column);
  return base::IsUtf8(text) ? text : base::Printable(text, std::string::npos);
}

// The text outlives the step.
void BindText(sqlite3_stmt* statement, int index, absl::string_view text) {
  sqlite3_bind_text(statement, index, text.data() == nullptr ? "" : text.data(),
                    static_cast<int>(text.size()), SQLITE_STATIC);
}

void BindNumber(sqlite3_stmt* statement, int index, uint64_t value) {
  sqlite3_bind_int64(statement, index, static_cast<sqlite3_int64>(value));
}

// SQLite's own words are for the log, where people find them who know SQLite. Users get ours.
void LogSqlite(const std::string& path, absl::string_view words) {
  constexpr size_t kMostBytes = 500;
  spdlog::warn("storage {}: SQLite says: {}", path, base::Printable(words, kMostBytes));
}

}  // namespace

void Store::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

absl::Status Store::NotIntact(absl::string_view why) const {
  return absl::DataLossError(
      absl::StrCat("storage ", path_, " cannot be trusted: ", why, ". Nothing was changed"));
}

absl::Status Store::Error(absl::string_view what) const {
  const int code = sqlite3_errcode(database_);
  const std::string why = base::SqliteFailure(database_, code);
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
    LogSqlite(path_, sqlite3_errmsg(database_));
    return NotIntact(why);
  }
  const std::string message = absl::StrCat("storage ", path_, ": cannot ", what, ": ", why);
  if (code == SQLITE_FULL)
    return absl::ResourceExhaustedError(absl::StrCat(message, "; free some space and try again"));
  const bool unwritable = code == SQLITE_READONLY || code == SQLITE_CANTOPEN ||
                          (code == SQLITE_IOERR && access(path_.c_str(), W_OK) != 0);
  return absl::UnavailableError(absl::StrCat(
      message, unwritable ? "; the file and its directory must be writable for vipu-server" : ""));
}

absl::Status Store::Execute(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return Error("write");
  return absl::OkStatus();
}

absl::StatusOr<Store::Statement> Store::Compile(absl::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_, sql.data(), static_cast<int>(sql.size()), &statement,
                         nullptr) != SQLITE_OK) {
    return Error("prepare a statement");
  }
  return Statement(statement);
}

absl::Status Store::Step(const Statement& statement, absl::string_view what) const {
  const int code = sqlite3_step(statement.get());
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error(what);
  sqlite3_reset(statement.get());
  return status;
}

absl::StatusOr<std::string> Store::CheckContents() {
  VPOD_ASSIGN_OR_RETURN(const Statement tables, Compile("SELECT count(*) FROM sqlite_master"));
  if (sqlite3_step(tables.get()) != SQLITE_ROW) return Error("read the database");
  if (sqlite3_column_int(tables.get(), 0) == 0) return std::string();
  const auto format = Compile("SELECT value FROM meta WHERE name = 'format'");
  if (!format.ok()) {
    // Ours always has the table.
    return sqlite3_errcode(database_) == SQLITE_ERROR
               ? NotIntact("it is a database of another program")
               : format.status();
  }
  const int code = sqlite3_step(format->get());
  if (code != SQLITE_ROW && code != SQLITE_DONE) return Error("read the format");
  const std::string text = code == SQLITE_ROW ? Column(format->get(), 0) : "";
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < 1 || number > kStoreFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "storage ", path_, " has format '", text, "'; this vipu-server reads formats 1 to ",
        kStoreFormat,
        number > kStoreFormat ? ". A newer vipu-server wrote it" : ". Nothing was changed"));
  }
  VPOD_ASSIGN_OR_RETURN(const Statement check, Compile("PRAGMA quick_check(1)"));
  if (sqlite3_step(check.get()) != SQLITE_ROW) return Error("check the database");
  if (const std::string found = Column(check.get(), 0); found != "ok") {
    LogSqlite(path_, found);
    return NotIntact(base::SqliteFailure(database_, SQLITE_CORRUPT));
  }
  return text;
}

absl::Status Store::CheckLog() {
  const auto record = RunningFile::Read(path_);
  if (!record.ok()) return NotIntact(record.status().message());
  std::optional<WalPosition> acknowledged;
  if (record->has_value()) {
    if ((*record)->state == RunState::kRestoring) {
      return absl::FailedPreconditionError(absl::StrCat(
          "storage ", path_, ": a restore was interrupted; run 'vipu-server --restore' again"));
    }
    if ((*record)->state == RunState::kRunning) acknowledged = (*record)->position;
  }
  VPOD_ASSIGN_OR_RETURN(log_found_, InspectWal(path_, acknowledged));
  return log_found_.end == WalEnd::kDamaged ? NotIntact(log_found_.why) : absl::OkStatus();
}

absl::Status Store::DropTornLog() {
  VPOD_ASSIGN_OR_RETURN(running_, RunningFile::Open(path_));
  VPOD_RETURN_IF_ERROR(running_->Write({RunState::kStarting, {}}, /*sync=*/true));
  const base::UniqueFd log(open((path_ + "-wal").c_str(), O_RDWR | O_CLOEXEC));
  if (log.valid() && ftruncate(log.get(), 0) == 0 && fsync(log.get()) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("storage ", path_, ": its -wal file cannot be emptied"));
}

absl::Status Store::NoteCommit(bool sync) {
  constexpr uint32_t kPageBytes = 4096, kLongLog = 1000;
  if (!log_.valid()) log_ = base::UniqueFd(open((path_ + "-wal").c_str(), O_RDONLY | O_CLOEXEC));
  if (running_ == nullptr) {
    VPOD_ASSIGN_OR_RETURN(running_, RunningFile::Open(path_));
  }
  VPOD_ASSIGN_OR_RETURN(const WalPosition position,
                        ReadWalPosition(log_.get(), kPageBytes, log_frames_));
  const bool is_long = log_frames_ >= kLongLog;
  VPOD_RETURN_IF_ERROR(running_->Write({RunState::kRunning, position}, sync || is_long));
  if (is_long) {
    sqlite3_wal_checkpoint_v2(database_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  }
  return absl::OkStatus();
}

absl::Status Store::Prepare() {
  // A full disk must not leave half a write-ahead log behind that nothing takes away.
  sqlite3_db_config(database_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  // Locking is exclusive, so a second controller on the same file is refused here. The contents are
  // checked before anything is written, so that a database of another program stays as it is.
  VPOD_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE;"));
  VPOD_ASSIGN_OR_RETURN(const std::string format, CheckContents());
  if (sqlite3_db_readonly(database_, "main") == 1) {
    return absl::UnavailableError(
        absl::StrCat("storage ", path_,
                     " is read-only; the file and its directory must be writable for vipu-server"));
  }
  if (log_found_.end == WalEnd::kTornHeader) VPOD_RETURN_IF_ERROR(DropTornLog());
  VPOD_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"));
  // In the place of SQLite's own checkpoints: what was acknowledged has to be synced before.
  sqlite3_wal_hook(
      database_,
      [](void* frames, sqlite3*, const char*, int count) {
        *static_cast<uint32_t*>(frames) = static_cast<uint32_t>(count);
        return SQLITE_OK;
      },
      &log_frames_);
  VPOD_RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE;"));
  VPOD_RETURN_IF_ERROR(Execute(kTables));
  const auto compile = [&](absl::string_view sql, Statement& into) {
    auto statement = Compile(sql);
    if (statement.ok()) into = *std::move(statement);
    return statement.status();
  };
  VPOD_RETURN_IF_ERROR(compile("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", put_));
  VPOD_RETURN_IF_ERROR(compile("DELETE FROM objects WHERE kind = ? AND id = ?", remove_));
  VPOD_RETURN_IF_ERROR(compile("INSERT OR REPLACE INTO counters VALUES (?, ?)", set_counter_));
  VPOD_RETURN_IF_ERROR(
      compile("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?)", add_event_));
  VPOD_RETURN_IF_ERROR(compile("DELETE FROM events WHERE number = ?", drop_event_));
  VPOD_RETURN_IF_ERROR(LoadKeptEvents());
  if (format == "1") {
    VPOD_ASSIGN_OR_RETURN(const StoredObjects clusters, LoadLocked("cluster"));
    VPOD_ASSIGN_OR_RETURN(const StoredObjects partitions, LoadLocked("partition"));
    VPOD_ASSIGN_OR_RETURN(const StoredObjects upgraded,
                          UpgradePartitions1To2(clusters, partitions));
    std::vector<Change> changes;
    for (const auto& [id, data] : upgraded) changes.push_back({"partition", id, data});
    VPOD_RETURN_IF_ERROR(Write(changes, {}));
  }
  VPOD_ASSIGN_OR_RETURN(epoch_, CounterLocked("epoch"));
  ++epoch_;
  VPOD_RETURN_IF_ERROR(Write({}, {{{"epoch", epoch_}}, {}}));
  VPOD_RETURN_IF_ERROR(Execute(
      absl::StrCat("INSERT OR IGNORE INTO meta VALUES ('id', '", base::RandomId(), "');").c_str()));
  VPOD_ASSIGN_OR_RETURN(const Statement id, Compile("SELECT value FROM meta WHERE name = 'id'"));
  if (sqlite3_step(id.get()) != SQLITE_ROW) return Error("read its id");
  id_ = Column(id.get(), 0);
  sqlite3_reset(id.get());
  VPOD_RETURN_IF_ERROR(
      Execute(absl::StrCat("INSERT OR IGNORE INTO meta VALUES ('key', '", base::RandomId(), "');")
                  .c_str()));
  VPOD_ASSIGN_OR_RETURN(const Statement key, Compile("SELECT value FROM meta WHERE name = 'key'"));
  if (sqlite3_step(key.get()) != SQLITE_ROW) return Error("read its key");
  key_ = Column(key.get(), 0);
  sqlite3_reset(key.get());
  VPOD_RETURN_IF_ERROR(Execute(
      absl::StrCat("INSERT OR REPLACE INTO meta VALUES ('format', '", kStoreFormat, "'); COMMIT;")
          .c_str()));
  kept_events_.Committed();
  VPOD_RETURN_IF_ERROR(NoteCommit(/*sync=*/true));
  sqlite3_db_config(database_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  // Committed data is written and hardly ever read again. Left alone, SQLite keeps 2 MiB of pages,
  // which the events of 10,000 partitions fill.
  VPOD_RETURN_IF_ERROR(Execute("PRAGMA cache_size=-256;"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path, OpenMode mode) {
  struct stat info {};
  if (mode == OpenMode::kCreateOnly && stat(path.c_str(), &info) == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("storage ", path, " already exists; remove it to start again"));
  }
  // Before anything is opened: a device may be endless, a pipe waits for another process.
  for (const char* suffix : {"", "-wal", "-shm", ".running"}) {
    const absl::Status file = base::CheckIsFileOrNothing(path + suffix);
    if (!file.ok()) return absl::FailedPreconditionError(absl::StrCat("storage ", file.message()));
  }
  std::unique_ptr<Store> store(new Store(path));
  base::MutexLock lock(store->mutex_);
  const absl::Status in_use = absl::FailedPreconditionError(
      absl::StrCat("storage ", path, " is in use by another vipu-server"));
  // Judged under a lock of our own, since SQLite locks when it reads.
  const auto take = [&](int flags) {
    store->lock_ = base::UniqueFd(open(path.c_str(), flags | O_CLOEXEC, 0600));
    return !store->lock_.valid() || flock(store->lock_.get(), LOCK_EX | LOCK_NB) == 0;
  };
  if (!take(O_RDONLY)) return in_use;
  VPOD_RETURN_IF_ERROR(store->CheckLog());
  // It holds hashes of access keys. SQLite gives the files beside it the same mode.
  if (!store->lock_.valid() && !take(O_RDWR | O_CREAT)) return in_use;
  const int opened =
      sqlite3_open_v2(path.c_str(), &store->database_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (opened != SQLITE_OK) return store->Error("use it");
  const absl::Status status = store->Prepare();
  if (status.ok()) return store;
  const int code = sqlite3_errcode(store->database_);
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED) return in_use;
  return status;
}

Store::~Store() {
  for (Statement* statement : {&put_, &remove_, &set_counter_, &add_event_, &drop_event_})
    statement->reset();
  // `running` goes before the log is brought into the database and deleted. After a failure, the
  // next start judges the rest.
  if (running_ != nullptr && running_->Remove().ok()) running_.reset();
  sqlite3_close(database_);
}

absl::Status Store::Write(const std::vector<Change>& changes, const Ledger& ledger) {
  for (const Change& change : changes) {
    const Statement& statement = change.data.has_value() ? put_ : remove_;
    BindText(statement.get(), 1, change.kind);
    BindText(statement.get(), 2, change.id);
    if (change.data.has_value()) {
      sqlite3_bind_blob(statement.get(), 3, change.data->data(),
                        static_cast<int>(change.data->size()), SQLITE_STATIC);
    }
    VPOD_RETURN_IF_ERROR(Step(statement, "write an object"));
  }
  for (const auto& [name, value] : ledger.counters) {
    BindText(set_counter_.get(), 1, name);
    BindNumber(set_counter_.get(), 2, value);
    VPOD_RETURN_IF_ERROR(Step(set_counter_, "write a counter"));
  }
  for (const StoredEvent& event : ledger.events) {
    BindNumber(add_event_.get(), 1, event.number);
    sqlite3_bind_int64(add_event_.get(), 2, event.time_ms);
    BindText(add_event_.get(), 3, event.severity);
    BindText(add_event_.get(), 4, event.object);
    BindText(add_event_.get(), 5, event.user);
    BindText(add_event_.get(), 6, event.text);
    VPOD_RETURN_IF_ERROR(Step(add_event_, "write an event"));
    kept_events_.Add(event.number, KeptEvents::OwnerOf(event.user, event.object));
  }
  while (const std::optional<uint64_t> number = kept_events_.TakeExcess()) {
    BindNumber(drop_event_.get(), 1, *number);
    VPOD_RETURN_IF_ERROR(Step(drop_event_, "drop an old event"));
  }
  return absl::OkStatus();
}

absl::Status Store::LoadKeptEvents() {
  VPOD_ASSIGN_OR_RETURN(const Statement statement,
                        Compile("SELECT number, user, object FROM events"));
  int code;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    kept_events_.Load(static_cast<uint64_t>(sqlite3_column_int64(statement.get(), 0)),
                      KeptEvents::OwnerOf(Column(statement.get(), 1), Column(statement.get(), 2)));
  }
  return code == SQLITE_DONE ? absl::OkStatus() : Error("read events");
}

absl::Status Store::Commit(const std::vector<Change>& changes, const Ledger& ledger) {
  base::MutexLock lock(mutex_);
  VPOD_RETURN_IF_ERROR(Execute("BEGIN"));
  absl::Status status = Write(changes, ledger);
  if (status.ok()) status = Execute("COMMIT");
  // Fails when the database has already rolled back by itself.
  if (!status.ok()) {
    sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    kept_events_.RolledBack();
    return status;
  }
  kept_events_.Committed();
  // It is committed. Not to know how far the log has come only makes the next start less strict.
  if (const absl::Status noted = NoteCommit(/*sync=*/!changes.empty()); !noted.ok())
    spdlog::warn("storage {}: {}", path_, std::string(noted.message()));
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> Store::Load(absl::string_view kind) {
  base::MutexLock lock(mutex_);
  return LoadLocked(kind);
}

absl::StatusOr<std::map<std::string, std::string>> Store::LoadLocked(absl::string_view kind) {
  VPOD_ASSIGN_OR_RETURN(const Statement statement,
                        Compile("SELECT id, data FROM objects WHERE kind = ? ORDER BY id"));
  BindText(statement.get(), 1, kind);
  std::map<std::string, std::string> result;
  int code;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW)
    result.emplace_hint(result.end(), Column(statement.get(), 0), Column(statement.get(), 1));
  if (code != SQLITE_DONE) return Error("read objects");
  return result;
}

absl::StatusOr<uint64_t> Store::Counter(absl::string_view name) {
  base::MutexLock lock(mutex_);
  return CounterLocked(name);
}

absl::StatusOr<uint64_t> Store::CounterLocked(absl::string_view name) {
  VPOD_ASSIGN_OR_RETURN(const Statement statement,
                        Compile("SELECT value FROM counters WHERE name = ?"));
  BindText(statement.get(), 1, name);
  const int code = sqlite3_step(statement.get());
  if (code == SQLITE_DONE) return 0;
  if (code != SQLITE_ROW) return Error("read a counter");
  return static_cast<uint64_t>(sqlite3_column_int64(statement.get(), 0));
}

absl::Status Store::TakeOver() {
  epoch_ = std::max(epoch_ + 1, static_cast<uint64_t>(absl::ToUnixMicros(absl::Now())));
  return Commit({}, {{{"epoch", epoch_}, {"fenced", 0}}, {}});
}

absl::StatusOr<std::string> Store::Image() {
  base::MutexLock lock(mutex_);
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, decltype(&sqlite3_free)> bytes(
      sqlite3_serialize(database_, "main", &size, 0), &sqlite3_free);
  if (bytes == nullptr) return Error("read the database");
  return std::string(reinterpret_cast<const char*>(bytes.get()), static_cast<size_t>(size));
}

absl::StatusOr<uint64_t> Store::LastEvent() {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Statement statement,
                        Compile("SELECT coalesce(max(number), 0) FROM events"));
  if (sqlite3_step(statement.get()) != SQLITE_ROW) return Error("read the last event");
  return static_cast<uint64_t>(sqlite3_column_int64(statement.get(), 0));
}

absl::StatusOr<std::vector<StoredEvent>> Store::Events(uint64_t after, uint32_t limit,
                                                       absl::string_view object) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(
      const Statement statement,
      Compile(absl::StrCat("SELECT * FROM (SELECT number, time_ms, severity, object, user, text"
                           " FROM events WHERE number > ?1 AND (?3 = '' OR object = ?3)"
                           " ORDER BY number ",
                           after == 0 ? "DESC" : "ASC", " LIMIT ?2) ORDER BY number")));
  BindNumber(statement.get(), 1, after);
  BindNumber(statement.get(), 2, limit);
  BindText(statement.get(), 3, object);
  std::vector<StoredEvent> result;
  int code;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    result.push_back({static_cast<uint64_t>(sqlite3_column_int64(statement.get(), 0)),
                      sqlite3_column_int64(statement.get(), 1), TextColumn(statement.get(), 2),
                      TextColumn(statement.get(), 3), TextColumn(statement.get(), 4),
                      TextColumn(statement.get(), 5)});
  }
  if (code != SQLITE_DONE) return Error("read events");
  return result;
}

}  // namespace vpod::controller
