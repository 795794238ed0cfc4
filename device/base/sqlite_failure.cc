#include "device/base/sqlite_failure.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace vpod::base {
namespace {

// With the error of the operating system behind it, if that is the cause.
std::string WithCause(const char* what, sqlite3* database) {
  const int cause = database == nullptr ? 0 : sqlite3_system_errno(database);
  return cause == 0 ? what : absl::StrCat(what, " (", std::strerror(cause), ")");
}

}  // namespace

std::string SqliteFailure(sqlite3* database, int code) {
  constexpr int kPrimary = 0xff;  // the rest of an extended code
  switch (code & kPrimary) {
    case SQLITE_NOTADB:
      return "it is not an SQLite database";
    case SQLITE_CORRUPT:
      return "it is damaged";
    case SQLITE_ERROR:
    case SQLITE_SCHEMA:
    case SQLITE_MISMATCH:
      return "its tables are not the expected ones";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return "another program has locked it";
    case SQLITE_FULL:
      return "the disk is full";
    case SQLITE_READONLY:
      return "it is read-only";
    case SQLITE_CANTOPEN:
      return WithCause("it cannot be opened", database);
    case SQLITE_IOERR:
      return WithCause("the file system reports an error", database);
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return "access to it is denied";
    case SQLITE_NOMEM:
      return "there is not enough memory";
    case SQLITE_TOOBIG:
      return "a value in it is too large";
    case SQLITE_CONSTRAINT:
      return "a row breaks a rule of its table";
    default:
      return absl::StrCat("SQLite reports error ", code);
  }
}

}  // namespace vpod::base
