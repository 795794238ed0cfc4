#include "server/controller/store/backup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "device/base/file.h"
#include "server/controller/store/store.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;

class BackupTest : public testing::Test {
 protected:
  BackupTest()
      : directory_(
            fs::path(testing::TempDir()) /
            (std::string("bak_") + testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    store_ = *Store::Open((directory_ / "store.db").string(), Store::OpenMode::kCreateOnly);
    for (uint64_t i = 1; i <= 40; ++i) Change(i);
  }
  ~BackupTest() override {
    store_.reset();
    fs::remove_all(directory_);
  }

  void Change(uint64_t number) {
    const std::string id = "p" + std::to_string(number % 7);
    EXPECT_TRUE(
        store_
            ->Commit({{"partition", id, std::string(300, static_cast<char>('a' + number % 26))}},
                     {{{"generation", number}}, {{number, 5, "INFO", id, "bob", "created"}}})
            .ok());
  }
  std::string Seal() {
    return *SealBackup(*store_->Image(), {.time_ms = 17, .version = "1.18.0", .salvaged = ""});
  }
  // Opens a backup as a store of its own.
  std::unique_ptr<Store> Opened(const std::string& database) {
    const std::string path = (directory_ / "restored.db").string();
    std::ofstream(path, std::ios::binary | std::ios::trunc) << database;
    auto store = Store::Open(path, Store::OpenMode::kOpenOrCreate);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  fs::path directory_;
  std::unique_ptr<Store> store_;
};

// Changes in the log, which is not checkpointed yet, are in it; later ones are not.
TEST_F(BackupTest, HoldsTheStoreAsItWasAtThatMoment) {
  const auto objects = *store_->Load("partition");
  const std::string bytes = Seal();
  Change(41);
  const auto backup = OpenBackup("b", bytes);
  ASSERT_TRUE(backup.ok()) << backup.status();
  EXPECT_EQ(backup->record.time_ms, 17);
  EXPECT_EQ(backup->record.version, "1.18.0");
  const auto restored = Opened(backup->database);
  EXPECT_TRUE(*restored->Load("partition") == objects);
  EXPECT_EQ(*restored->LastEvent(), 40u);
  EXPECT_EQ(*restored->Counter("generation"), 40u);
  EXPECT_EQ(restored->epoch(), store_->epoch() + 1);
  // The record of the backup has not stayed.
  EXPECT_EQ(OpenBackup("b", *restored->Image()).status().message(),
            "b is not a backup; 'vipu-admin backup' makes one");
  EXPECT_TRUE(*store_->Load("partition") != objects) << "the store goes on";
}

// Also one right after the other: it once took the same second for the same epoch.
TEST_F(BackupTest, EachTakeOverRaisesTheEpoch) {
  const auto copy = Opened(OpenBackup("b", Seal())->database);
  ASSERT_TRUE(store_->TakeOver().ok());
  ASSERT_TRUE(copy->TakeOver().ok());
  EXPECT_GT(copy->epoch(), store_->epoch());
  const uint64_t before = store_->epoch();
  ASSERT_TRUE(store_->TakeOver().ok());
  EXPECT_GT(store_->epoch(), std::max(before, copy->epoch()));
}

TEST_F(BackupTest, DamageIsNoticed) {
  const std::string good = Seal();
  const Backup whole = *OpenBackup("b", good);
  std::mt19937_64 random(20261);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    const size_t at = random() % bytes.size();
    const int kind = round % 3;
    if (kind == 0) bytes.resize(at);
    if (kind == 1) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    if (kind == 2) bytes.replace(at, 512, std::string(std::min<size_t>(512, bytes.size() - at), 0));
    if (bytes == good) continue;
    const auto found = OpenBackup("b", bytes);
    if (!found.ok()) {
      ++refused;
      continue;
    }
    // Only what holds nothing may differ.
    const auto restored = Opened(found->database);
    EXPECT_TRUE(*restored->Load("partition") == *store_->Load("partition")) << kind << " " << at;
    EXPECT_EQ((*restored->Events(0, 1000, "")).size(), 40u);
  }
  EXPECT_GT(refused, 150);
  EXPECT_EQ(OpenBackup("x", "a letter").status().message(),
            "backup x is damaged: it is not an SQLite database");
}

}  // namespace
}  // namespace vpod::controller
