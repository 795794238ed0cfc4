// SQLite's errors in our own words.
#pragma once

#include <sqlite3.h>

#include <string>

namespace vpod::base {

// Says why SQLite could not do something with a file, for the end of a message that names the file:
// "the disk is full", "it is damaged", "it cannot be opened (Permission denied)". `database` is the
// connection that reported the code; null if there is none.
std::string SqliteFailure(sqlite3* database, int code);

}  // namespace vpod::base
