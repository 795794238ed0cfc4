#include "server/controller/store/salvage.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "device/base/file.h"
#include "server/controller/store/image.h"
#include "server/controller/store/running.h"
#include "server/controller/store/store.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFrame = 24 + 4096, kHeader = 32;

// A store with objects o1 … o20, one for each change, as kill -9 leaves it.
class SalvageTest : public testing::Test {
 protected:
  SalvageTest() : directory_(fs::path(testing::TempDir()) / "salvage") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    const std::string path = (directory_ / "store.db").string();
    const auto store = *Store::Open(path, Store::OpenMode::kCreateOnly);
    for (uint64_t i = 1; i <= 20; ++i) {
      EXPECT_TRUE(store->Commit({{"partition", "o" + std::to_string(i), "data"}}, {}).ok());
      ends_.push_back((base::ReadFile(path + "-wal").size() - kHeader) / kFrame);
    }
    database_ = base::ReadFile(path);
    log_ = base::ReadFile(path + "-wal");
    acknowledged_ = (*RunningFile::Read(path))->position;
  }
  ~SalvageTest() override { fs::remove_all(directory_); }

  // How many of the objects, which must be the first ones.
  static size_t ObjectsOf(const std::string& database) {
    auto image = Image::Of(database);
    EXPECT_TRUE(image.ok()) << image.status();
    const auto objects = *image->Objects();
    for (size_t i = 1; i <= objects.size(); ++i)
      EXPECT_TRUE(objects.contains("partition o" + std::to_string(i)));
    return objects.size();
  }

  fs::path directory_;
  std::string database_, log_;
  std::vector<size_t> ends_;  // frames of the log after each change
  WalPosition acknowledged_;
};

TEST_F(SalvageTest, NothingIsLostOfAnIntactStore) {
  const auto salvaged = Salvage(database_, log_, acknowledged_);
  ASSERT_TRUE(salvaged.ok()) << salvaged.status();
  EXPECT_EQ(salvaged->uncertain, "");
  EXPECT_EQ(ObjectsOf(salvaged->database), 20u);
}

TEST_F(SalvageTest, WhatIsBeforeTheDamageIsSavedAndTheRestIsNamed) {
  for (const size_t change : {3, 10, 18}) {
    std::string log = log_;
    log[kHeader + (ends_[change] - 1) * kFrame + 24 + 100] ^= 1;  // in the page of the next one
    const auto salvaged = Salvage(database_, log, acknowledged_);
    ASSERT_TRUE(salvaged.ok()) << salvaged.status();
    EXPECT_EQ(ObjectsOf(salvaged->database), change);
    EXPECT_NE(salvaged->uncertain.find("Damage: frame "), std::string::npos);
    if (change < 18) {
      EXPECT_NE(salvaged->uncertain.find("Uncertain: partition o" + std::to_string(change + 1) +
                                         " was created behind the damage\n"),
                std::string::npos)
          << salvaged->uncertain;
    }
  }
}

// As a start of the controller, which counts itself, may leave it.
TEST_F(SalvageTest, AChangeOfNoObjectIsNamedAsSuch) {
  const std::string path = (directory_ / "store.db").string();
  fs::remove_all(directory_);
  fs::create_directories(directory_);
  const auto store = *Store::Open(path, Store::OpenMode::kCreateOnly);
  ASSERT_TRUE(store->Commit({{"partition", "o1", "data"}}, {}).ok());
  const size_t before = (base::ReadFile(path + "-wal").size() - kHeader) / kFrame;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Commit({{"partition", "o1", "data"}}, {}).ok());
  std::string log = base::ReadFile(path + "-wal");
  ASSERT_GT(log.size(), kHeader + (before + 1) * kFrame);
  log[kHeader + before * kFrame + 24 + 100] ^= 1;
  const auto salvaged = Salvage(base::ReadFile(path), log, (*RunningFile::Read(path))->position);
  ASSERT_TRUE(salvaged.ok()) << salvaged.status();
  EXPECT_NE(salvaged->uncertain.find("those that are intact change no object"), std::string::npos)
      << salvaged->uncertain;
}

TEST_F(SalvageTest, ALogThatIsCutOrGoneLeavesWhatIsBefore) {
  auto salvaged = Salvage(database_, log_.substr(0, kHeader + ends_[7] * kFrame), acknowledged_);
  ASSERT_TRUE(salvaged.ok()) << salvaged.status();
  EXPECT_EQ(ObjectsOf(salvaged->database), 8u);
  EXPECT_NE(salvaged->uncertain.find("which they were is not known"), std::string::npos);
  // Nothing had been brought into the database yet.
  EXPECT_EQ(Salvage(database_, "", acknowledged_).status().message(),
            "it cannot be salvaged (its tables are not the expected ones); restore a backup");
}

// The log had been brought into the database: its beginning must not be laid over that.
TEST_F(SalvageTest, ADatabaseThatIsAheadOfTheDamageStaysAsItIs) {
  std::string newest = database_;
  for (const WalFrame& frame : IntactFrames(database_, log_)) {
    const size_t at = (frame.page - 1) * frame.content.size();
    if (newest.size() < at + frame.content.size()) newest.resize(at + frame.content.size());
    newest.replace(at, frame.content.size(), frame.content.data(), frame.content.size());
  }
  std::string log = log_;
  log[kHeader + (ends_[5] - 1) * kFrame + 24 + 100] ^= 1;
  const auto salvaged = Salvage(newest, log, acknowledged_);
  ASSERT_TRUE(salvaged.ok()) << salvaged.status();
  EXPECT_EQ(ObjectsOf(salvaged->database), 20u);
  // Not that o20, which the log's last proven change does not have, was removed.
  EXPECT_NE(salvaged->uncertain.find("which they were is not known"), std::string::npos)
      << salvaged->uncertain;
  EXPECT_EQ(salvaged->uncertain.find("o20"), std::string::npos);
}

}  // namespace
}  // namespace vpod::controller
