// A backup: the store as it was at one moment, in one SQLite file that needs no other. It is the
// database itself with some more rows in the table meta:
//
//   backup_time_ms   when, in milliseconds since 1970
//   backup_version   of the vipu-server that wrote it
//   backup_salvaged  what is uncertain, in a file that --salvage wrote
//   backup_sha256    digest over all other rows of all tables
//
// So a file that is not a backup, was cut short or has changed since is told from a good one, also
// where SQLite would notice nothing.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace vpod::controller {

struct BackupRecord {
  int64_t time_ms = 0;
  std::string version, salvaged;
};

// The bytes of a database become those of a backup. DataLoss when they are no intact database.
absl::StatusOr<std::string> SealBackup(const std::string& database, const BackupRecord& record);

struct Backup {
  BackupRecord record;
  std::string database;  // without the record: as the store opens it
};
// InvalidArgument when the bytes are no backup, DataLoss when they are a damaged one; `name` is for
// the message.
absl::StatusOr<Backup> OpenBackup(const std::string& name, const std::string& bytes);

}  // namespace vpod::controller
