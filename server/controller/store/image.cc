#include "server/controller/store/image.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/sha256.h"
#include "device/base/sqlite_failure.h"
#include "device/base/status.h"
#include "device/base/text.h"

namespace vpod::controller {
namespace {

constexpr size_t kHeaderBytes = 100;

}  // namespace

absl::StatusOr<Image> Image::Of(std::string bytes) {
  if (bytes.size() < kHeaderBytes || bytes.compare(0, 15, "SQLite format 3") != 0)
    return absl::DataLossError(base::SqliteFailure(nullptr, SQLITE_NOTADB));
  // A database in memory has no log; the file does not say that it has one, either.
  bytes[18] = bytes[19] = 1;
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
  if (copy == nullptr) return absl::ResourceExhaustedError("not enough memory");
  std::memcpy(copy, bytes.data(), bytes.size());
  sqlite3* database = nullptr;
  const int opened = sqlite3_open(":memory:", &database);
  Image image;
  image.database_.reset(database);
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  // Frees the copy whatever happens.
  const int taken =
      sqlite3_deserialize(database, "main", copy, size, size,
                          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE);
  if (opened != SQLITE_OK || taken != SQLITE_OK)
    return image.Broken(opened != SQLITE_OK ? opened : taken);
  std::string found;
  VPOD_RETURN_IF_ERROR(image.ForEach("PRAGMA integrity_check(1)",
                                     [&](sqlite3_stmt* row) { found = Column(row, 0); }));
  if (found != "ok") {
    constexpr size_t kMostBytes = 500;
    spdlog::debug("a copy of a database is damaged; SQLite says: {}",
                  base::Printable(found, kMostBytes));
    return image.Broken(SQLITE_CORRUPT);
  }
  return image;
}

absl::Status Image::Run(const std::string& sql) {
  const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Broken(code);
}

absl::Status Image::PutMeta(const std::string& name, const std::string& value) {
  char* sql =
      sqlite3_mprintf("INSERT OR REPLACE INTO meta VALUES (%Q, %Q)", name.c_str(), value.c_str());
  const absl::Status status = Run(sql);
  sqlite3_free(sql);
  return status;
}

absl::StatusOr<std::string> Image::Meta(const std::string& name) {
  std::string value;
  VPOD_RETURN_IF_ERROR(ForEach(absl::StrCat("SELECT value FROM meta WHERE name = '", name, "'"),
                               [&](sqlite3_stmt* row) { value = Column(row, 0); }));
  return value;
}

absl::StatusOr<std::map<std::string, std::string>> Image::Objects() {
  std::map<std::string, std::string> objects;
  VPOD_RETURN_IF_ERROR(ForEach("SELECT kind, id, data FROM objects", [&](sqlite3_stmt* row) {
    objects[absl::StrCat(Column(row, 0), " ", Column(row, 1))] = Column(row, 2);
  }));
  return objects;
}

absl::StatusOr<std::string> Image::Digest() {
  std::string digest, some;
  for (const char* rows :
       {"SELECT kind, id, data FROM objects ORDER BY kind, id",
        "SELECT name, value FROM counters ORDER BY name", "SELECT * FROM events ORDER BY number",
        "SELECT name, value FROM meta WHERE name <> 'backup_sha256' ORDER BY name"}) {
    VPOD_RETURN_IF_ERROR(ForEach(rows, [&](sqlite3_stmt* row) {
      for (int column = 0; column < sqlite3_column_count(row); ++column) {
        const std::string value = Column(row, column);
        absl::StrAppend(&some, value.size(), ":", value);
      }
      if (some.size() > (1 << 20)) digest = base::Sha256Hex(digest + std::exchange(some, ""));
    }));
    digest = base::Sha256Hex(absl::StrCat(digest, std::exchange(some, ""), rows));
  }
  return digest;
}

absl::StatusOr<std::string> Image::Bytes() {
  sqlite3_int64 size = 0;
  const std::unique_ptr<unsigned char, decltype(&sqlite3_free)> bytes(
      sqlite3_serialize(database_.get(), "main", &size, 0), &sqlite3_free);
  if (bytes == nullptr) return absl::ResourceExhaustedError("not enough memory");
  return std::string(reinterpret_cast<const char*>(bytes.get()), static_cast<size_t>(size));
}

std::string Image::Column(sqlite3_stmt* row, int column) {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(row, column));
  return std::string(data == nullptr ? "" : data,
                     static_cast<size_t>(sqlite3_column_bytes(row, column)));
}

absl::Status Image::Broken(int code) const {
  return absl::DataLossError(base::SqliteFailure(database_.get(), code));
}

absl::Status Image::ForEach(const std::string& sql,
                            const std::function<void(sqlite3_stmt*)>& each) {
  sqlite3_stmt* statement = nullptr;
  int code = sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr);
  if (code != SQLITE_OK) return Broken(code);
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) each(statement);
  sqlite3_finalize(statement);
  return code == SQLITE_DONE ? absl::OkStatus() : Broken(code);
}

}  // namespace vpod::controller
