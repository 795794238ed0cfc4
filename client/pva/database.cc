#include "client/pva/database.h"

#include <sqlite3.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/sqlite_failure.h"

namespace vpod::pva {

namespace {

constexpr int kBusyMilliseconds = 5000;
constexpr int kMostBytesOfARow = 16 << 20;

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement& Statement::Bind(int64_t value) {
  sqlite3_bind_int64(statement_.get(), ++parameter_, value);
  return *this;
}
Statement& Statement::Bind(double value) {
  sqlite3_bind_double(statement_.get(), ++parameter_, value);
  return *this;
}
Statement& Statement::Bind(absl::string_view text) {
  sqlite3_bind_text(statement_.get(), ++parameter_, text.data(), static_cast<int>(text.size()),
                    SQLITE_TRANSIENT);
  return *this;
}
Statement& Statement::BindBlob(absl::string_view bytes) {
  sqlite3_bind_blob(statement_.get(), ++parameter_, bytes.data(), static_cast<int>(bytes.size()),
                    SQLITE_TRANSIENT);
  return *this;
}
Statement& Statement::BindNull() {
  sqlite3_bind_null(statement_.get(), ++parameter_);
  return *this;
}

void Statement::Run() {
  if (statement_ == nullptr || !database_->status().ok()) return;
  const int code = sqlite3_step(statement_.get());
  if (code != SQLITE_DONE) database_->Fail(code);
  sqlite3_reset(statement_.get());
  parameter_ = 0;
}

bool Statement::Next() {
  if (statement_ == nullptr || !database_->status().ok()) return false;
  column_ = 0;
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->Fail(code);
  return false;
}

void Statement::CheckNumber() {
  const int type = sqlite3_column_type(statement_.get(), column_);
  if (type == SQLITE_TEXT || type == SQLITE_BLOB) database_->FailRow("a number is expected");
}
int64_t Statement::Integer() {
  CheckNumber();
  return sqlite3_column_int64(statement_.get(), column_++);
}
uint64_t Statement::Count() {
  const int64_t value = Integer();
  if (value >= 0) return static_cast<uint64_t>(value);
  database_->FailRow("a count is negative");
  return 0;
}
uint32_t Statement::Id() {
  const uint64_t value = Count();
  if (value < ~0u) return static_cast<uint32_t>(value);
  database_->FailRow("a number is too large");
  return 0;
}
double Statement::Real() {
  CheckNumber();
  return sqlite3_column_double(statement_.get(), column_++);
}
std::string Statement::Text() {
  const unsigned char* text = sqlite3_column_text(statement_.get(), column_);
  const int size = sqlite3_column_bytes(statement_.get(), column_++);
  return text == nullptr ? "" : std::string(reinterpret_cast<const char*>(text), size);
}
std::string Statement::Blob() {
  const void* bytes = sqlite3_column_blob(statement_.get(), column_);
  const int size = sqlite3_column_bytes(statement_.get(), column_++);
  return bytes == nullptr ? "" : std::string(static_cast<const char*>(bytes), size);
}
bool Statement::IsNull() { return sqlite3_column_type(statement_.get(), column_) == SQLITE_NULL; }

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, Mode mode) {
  std::unique_ptr<Database> database(new Database(path, mode));
  const int flags = mode == Mode::kRead    ? SQLITE_OPEN_READONLY
                    : mode == Mode::kWrite ? SQLITE_OPEN_READWRITE
                                           : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  // Nobody else opens a file that is being made. Its maker may hold it by a lock of its own, which
  // network file systems do not tell apart from SQLite's.
  const int code = sqlite3_open_v2(path.c_str(), &database->handle_, flags | SQLITE_OPEN_NOMUTEX,
                                   mode == Mode::kCreate ? "unix-none" : nullptr);
  if (code != SQLITE_OK) {
    database->Fail(code);
    return database->status();
  }
  sqlite3_busy_timeout(database->handle_, kBusyMilliseconds);
  sqlite3_limit(database->handle_, SQLITE_LIMIT_LENGTH, kMostBytesOfARow);
  return database;
}

Database::~Database() { sqlite3_close(handle_); }

std::vector<std::string> Database::Schema() {
  std::vector<std::string> objects;
  Statement row = Prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY name");
  while (row.Next()) {
    std::string object = row.Text();
    absl::StrAppend(&object, " ", row.Text());
    objects.push_back(absl::StrCat(object, " ", row.Text()));
  }
  return objects;
}

void Database::ExpectSchema(const char* sql) {
  auto expected = Open(":memory:", Mode::kCreate);
  if (!expected.ok()) return;
  (*expected)->Execute(sql);
  const std::vector<std::string> tables = Schema();
  if (status_.ok() && tables != (*expected)->Schema())
    FailRow("its tables are not those of a profile");
}

void Database::Execute(const char* sql) {
  if (!status_.ok()) return;
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) Fail(code);
}

bool Database::HasMoved() {
  int moved = 0;
  sqlite3_file_control(handle_, /*zDbName=*/nullptr, SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

Statement Database::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (status_.ok()) {
    const int code = sqlite3_prepare_v2(handle_, sql, -1, &statement, nullptr);
    if (code != SQLITE_OK) Fail(code);
  }
  return {*this, statement};
}

void Database::Fail(int code) {
  if (!status_.ok()) return;
  const std::string why = base::SqliteFailure(handle_, code);
  if (code == SQLITE_READONLY && mode_ == Mode::kRead) {
    status_ = absl::FailedPreconditionError(absl::StrCat(
        path_,
        ": a process was killed while it added a run; to undo its unfinished write, read the ",
        "profile as a user who may write to it and to its directory, or copy it together with ",
        path_, "-journal"));
  } else if (code == SQLITE_NOTADB) {
    status_ = absl::InvalidArgumentError(absl::StrCat(path_, " is not a profile: ", why));
  } else if (code == SQLITE_CORRUPT || code == SQLITE_ERROR) {
    status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": ", why));
  } else if (code == SQLITE_FULL) {
    status_ = absl::ResourceExhaustedError(absl::StrCat(path_, ": ", why));
  } else {
    status_ = absl::UnavailableError(absl::StrCat(path_, ": ", why));
  }
}

void Database::FailRow(absl::string_view what) {
  if (status_.ok())
    status_ = absl::InvalidArgumentError(absl::StrCat(path_, " is not a valid profile: ", what));
}

std::string Pack(const TileRuns& runs) {
  std::string bytes;
  for (const TileRun& run : runs) {
    bytes.append(reinterpret_cast<const char*>(&run.tiles), sizeof(run.tiles));
    bytes.append(reinterpret_cast<const char*>(&run.value), sizeof(run.value));
  }
  return bytes;
}

TileRuns Unpack(absl::string_view bytes) {
  constexpr size_t kRunBytes = sizeof(TileRun::tiles) + sizeof(TileRun::value);
  TileRuns runs;
  if (bytes.size() % kRunBytes != 0) return runs;
  for (size_t at = 0; at < bytes.size(); at += kRunBytes) {
    TileRun run;
    std::memcpy(&run.tiles, bytes.data() + at, sizeof(run.tiles));
    std::memcpy(&run.value, bytes.data() + at + sizeof(run.tiles), sizeof(run.value));
    runs.push_back(run);
  }
  return runs;
}

}  // namespace vpod::pva
