#include "server/controller/store/backup.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "device/base/status.h"
#include "server/controller/store/image.h"

namespace vpod::controller {

absl::StatusOr<std::string> SealBackup(const std::string& database, const BackupRecord& record) {
  VPOD_ASSIGN_OR_RETURN(Image image, Image::Of(database));
  VPOD_RETURN_IF_ERROR(image.PutMeta("backup_time_ms", absl::StrCat(record.time_ms)));
  VPOD_RETURN_IF_ERROR(image.PutMeta("backup_version", record.version));
  if (!record.salvaged.empty())
    VPOD_RETURN_IF_ERROR(image.PutMeta("backup_salvaged", record.salvaged));
  VPOD_ASSIGN_OR_RETURN(const std::string digest, image.Digest());
  VPOD_RETURN_IF_ERROR(image.PutMeta("backup_sha256", digest));
  return image.Bytes();
}

absl::StatusOr<Backup> OpenBackup(const std::string& name, const std::string& bytes) {
  const auto damaged = [&](const absl::Status& why) {
    return absl::DataLossError(absl::StrCat("backup ", name, " is damaged: ", why.message()));
  };
  auto image = Image::Of(bytes);
  if (!image.ok()) return damaged(image.status());
  const auto digest = image->Meta("backup_sha256");
  if (!digest.ok() || digest->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not a backup; 'vipu-admin backup' makes one"));
  }
  const auto found = image->Digest();
  if (!found.ok()) return damaged(found.status());
  if (*found != *digest)
    return damaged(absl::DataLossError("its contents do not match its digest"));
  Backup backup;
  VPOD_ASSIGN_OR_RETURN(const std::string time_ms, image->Meta("backup_time_ms"));
  if (!absl::SimpleAtoi(time_ms, &backup.record.time_ms))
    return damaged(absl::DataLossError("it has no time"));
  VPOD_ASSIGN_OR_RETURN(backup.record.version, image->Meta("backup_version"));
  VPOD_ASSIGN_OR_RETURN(backup.record.salvaged, image->Meta("backup_salvaged"));
  VPOD_RETURN_IF_ERROR(image->Run("DELETE FROM meta WHERE name LIKE 'backup\\_%' ESCAPE '\\'"));
  VPOD_ASSIGN_OR_RETURN(backup.database, image->Bytes());
  return backup;
}

}  // namespace vpod::controller
