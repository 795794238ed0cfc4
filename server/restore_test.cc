#include "server/restore.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "device/base/file.h"
#include "device/base/version.h"
#include "server/controller/store/backup.h"
#include "server/controller/store/running.h"
#include "server/controller/store/store.h"

namespace vpod {
namespace {

namespace fs = std::filesystem;
using controller::RunningFile;
using controller::RunState;
using controller::Store;

class RestoreTest : public testing::Test {
 protected:
  RestoreTest()
      : directory_(fs::path(testing::TempDir()) /
                   (std::string("restore_") +
                    testing::UnitTest::GetInstance()->current_test_info()->name())),
        storage_((directory_ / "store.db").string()),
        file_((directory_ / "backup").string()),
        moved_(storage_ + ".before-restore-") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    const auto store = *Store::Open(storage_, Store::OpenMode::kCreateOnly);
    const std::string database = *store->Image();
    std::ofstream(file_, std::ios::binary) << *controller::SealBackup(
        database, {.time_ms = 17, .version = base::kVersion, .salvaged = ""});
  }
  ~RestoreTest() override { fs::remove_all(directory_); }

  const fs::path directory_;
  const std::string storage_, file_, moved_;
};

// A restore that died between the two files of what it replaces is gone on with: database and log
// keep their name in common, and nothing is moved on top of them later.
TEST_F(RestoreTest, AnInterruptedOneKeepsDatabaseAndLogTogether) {
  std::ofstream(moved_ + "1-wal") << "the log";
  ASSERT_TRUE((*RunningFile::Open(storage_))->Write({RunState::kRestoring, {}}, true).ok());
  const std::string database = base::ReadFile(storage_);
  const auto restored = Restore(file_, storage_);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(absl::StrContains(*restored, "A restore that was interrupted is run again.\n"));
  EXPECT_TRUE(base::ReadFile(moved_ + "1") == database);
  ASSERT_TRUE(Restore(file_, storage_).ok());
  EXPECT_TRUE(base::ReadFile(moved_ + "1") == database);
  EXPECT_EQ(base::ReadFile(moved_ + "1-wal"), "the log");
  EXPECT_TRUE(fs::exists(moved_ + "2"));
}

// A log alone, of an earlier restore, gets no other restore's database.
TEST_F(RestoreTest, AnEarlierLogStaysAlone) {
  std::ofstream(moved_ + "1-wal") << "an earlier log";
  std::ofstream(storage_ + "-wal") << "";
  ASSERT_TRUE((*RunningFile::Open(storage_))->Write({RunState::kRestoring, {}}, true).ok());
  ASSERT_TRUE(Restore(file_, storage_).ok());
  EXPECT_EQ(base::ReadFile(moved_ + "1-wal"), "an earlier log");
  EXPECT_FALSE(fs::exists(moved_ + "1"));
  EXPECT_TRUE(fs::exists(moved_ + "2-wal"));
  EXPECT_TRUE(fs::exists(moved_ + "2"));
}

TEST_F(RestoreTest, AStorageIsCheckedWithoutBeingChanged) {
  const std::string intact = base::ReadFile(storage_);
  EXPECT_TRUE(CheckStorage(storage_).ok()) << CheckStorage(storage_);
  EXPECT_TRUE(absl::IsNotFound(CheckStorage(storage_ + ".none")));
  {
    const auto store = *Store::Open(storage_, Store::OpenMode::kOpenOrCreate);
    EXPECT_TRUE(absl::IsFailedPrecondition(CheckStorage(storage_)));
  }
  // Pages of tables, without which nothing can be read.
  std::string damaged = base::ReadFile(storage_);
  damaged.replace(4096, 4096, std::string(4096, 'x'));
  std::ofstream(storage_, std::ios::binary) << damaged;
  const absl::Status status = CheckStorage(storage_);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "storage " + storage_ + " cannot be trusted: "))
      << status;
  EXPECT_TRUE(base::ReadFile(storage_) == damaged);
  std::ofstream(storage_, std::ios::binary) << intact;
  ASSERT_TRUE((*RunningFile::Open(storage_))->Write({RunState::kRestoring, {}}, true).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckStorage(storage_)));
}

}  // namespace
}  // namespace vpod
