#include "device/base/sqlite_failure.h"

#include <gtest/gtest.h>

#include <fstream>

namespace vpod::base {
namespace {

// What SQLite says of a statement on a file.
std::string Failure(const std::string& path, const char* sql) {
  sqlite3* database = nullptr;
  int code = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE, nullptr);
  if (code == SQLITE_OK) code = sqlite3_exec(database, sql, nullptr, nullptr, nullptr);
  const std::string why = SqliteFailure(database, code);
  sqlite3_close(database);
  return why;
}

TEST(SqliteFailureTest, SaysWhatIsWrongWithAFile) {
  const std::string text = testing::TempDir() + "/text";
  std::ofstream(text) << std::string(2000, 'x');
  EXPECT_EQ(Failure(text, "SELECT * FROM sqlite_master"), "it is not an SQLite database");
  EXPECT_EQ(Failure(":memory:", "SELECT * FROM nothing"), "its tables are not the expected ones");
  EXPECT_EQ(Failure(testing::TempDir() + "/no/such.db", ""),
            "it cannot be opened (No such file or directory)");
}

TEST(SqliteFailureTest, HasOwnWordsForEveryCode) {
  for (int code = SQLITE_ERROR; code <= SQLITE_NOTADB; ++code) {
    const std::string why = SqliteFailure(nullptr, code);
    EXPECT_EQ(why.find(sqlite3_errstr(code)), std::string::npos) << why;
  }
  EXPECT_EQ(SqliteFailure(nullptr, SQLITE_BUSY), "another program has locked it");
  EXPECT_EQ(SqliteFailure(nullptr, SQLITE_IOERR_FSYNC), "the file system reports an error");
  EXPECT_EQ(SqliteFailure(nullptr, SQLITE_MISUSE), "SQLite reports error 21");
}

}  // namespace
}  // namespace vpod::base
