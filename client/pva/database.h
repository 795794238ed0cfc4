// SQLite for profiles: one thread, statements that are prepared once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/pva/tile_runs.h"

struct sqlite3;
struct sqlite3_stmt;

namespace vpod::pva {

class Database;

// A statement with its parameters and its rows. Errors are remembered by the database.
class Statement {
 public:
  Statement(Statement&&) = default;

  // Parameters in their order; then Run or Next.
  Statement& Bind(int64_t value);
  Statement& Bind(uint64_t value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(uint32_t value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(int value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(double value);
  Statement& Bind(absl::string_view text);
  Statement& Bind(const char* text) { return Bind(absl::string_view(text)); }
  Statement& BindBlob(absl::string_view bytes);
  Statement& BindNull();
  // Executes a statement without rows, after which it takes its parameters again.
  void Run();
  // Goes to the next row; false after the last one, and after an error.
  bool Next();

  // Columns of the row, from the first, one after the other. Text in the place of a number is an
  // error of the row.
  int64_t Integer();
  uint64_t Count();  // an integer that is not negative
  uint32_t Id();
  double Real();
  std::string Text();
  std::string Blob();
  bool IsNull();  // does not go on

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(Database& database, sqlite3_stmt* statement)
      : database_(&database), statement_(statement) {}

  // Fails the row if the column to be read next has text.
  void CheckNumber();

  Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int parameter_ = 0, column_ = 0;
};

class Database {
 public:
  enum class Mode {
    kRead,
    kWrite,
    kCreate,  // without locks: nobody else may use the file meanwhile
  };

  // Unavailable names the file. Waits for some seconds where another process writes.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Mode mode);
  ~Database();

  // Fails unless the database has the tables of this text and nothing else: what a file calls a
  // table may be a view that never ends.
  void ExpectSchema(const char* sql);
  void Execute(const char* sql);
  // Whether the path leads to another file than the one that was opened, or to none.
  bool HasMoved();
  Statement Prepare(const char* sql);
  // The first error of all that was done: InvalidArgument if it is not a database or has other
  // tables, ResourceExhausted if the disk is full, FailedPrecondition if it is to be read and is
  // not as it was left before a change that was interrupted, else Unavailable. Names the file.
  absl::Status status() const { return status_; }
  void Fail(int code);
  // A row that no writer makes.
  void FailRow(absl::string_view what);

 private:
  Database(std::string path, Mode mode) : path_(std::move(path)), mode_(mode) {}

  std::vector<std::string> Schema();

  const std::string path_;
  const Mode mode_;
  sqlite3* handle_ = nullptr;
  absl::Status status_;
};

// In the file, a run is a little-endian uint32 count and a uint64 value.
std::string Pack(const TileRuns& runs);
// Empty if the bytes are not runs.
TileRuns Unpack(absl::string_view bytes);

}  // namespace vpod::pva
