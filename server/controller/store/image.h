// A database in memory, of the bytes of a file.
#pragma once

#include <sqlite3.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vpod::controller {

// Errors are DataLoss; their texts continue a message that names the file.
class Image {
 public:
  // DataLoss when they are no intact database.
  static absl::StatusOr<Image> Of(std::string bytes);

  absl::Status Run(const std::string& sql);
  absl::Status PutMeta(const std::string& name, const std::string& value);
  // Empty when there is no such row.
  absl::StatusOr<std::string> Meta(const std::string& name);
  // Data of all objects, by "<kind> <id>".
  absl::StatusOr<std::map<std::string, std::string>> Objects();
  // Over every value of every row of the store's tables, but for the digest of a backup itself.
  absl::StatusOr<std::string> Digest();
  absl::StatusOr<std::string> Bytes();

 private:
  static std::string Column(sqlite3_stmt* row, int column);
  absl::Status Broken(int code) const;
  absl::Status ForEach(const std::string& sql, const std::function<void(sqlite3_stmt*)>& each);

  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
  };
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace vpod::controller
