#include "server/controller/store/running.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "device/base/file.h"

namespace vpod::controller {
namespace {

namespace fs = std::filesystem;

class RunningFileTest : public testing::Test {
 protected:
  RunningFileTest()
      : database_(testing::TempDir() + "/running_" +
                  testing::UnitTest::GetInstance()->current_test_info()->name() + ".db"),
        path_(RunningFile::PathOf(database_)) {
    fs::remove(path_);
  }
  ~RunningFileTest() override { fs::remove(path_); }
  static RunRecord At(uint32_t frame) { return {RunState::kRunning, {7, 8, frame, frame, 9}}; }
  void Overwrite(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  const std::string database_, path_;
};

TEST_F(RunningFileTest, TellsHowFarTheLogHadCome) {
  EXPECT_EQ(*RunningFile::Read(database_), std::nullopt);
  {
    const auto file = RunningFile::Open(database_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(*RunningFile::Read(database_), RunRecord());  // starting
    for (uint32_t frame = 1; frame < 6; ++frame) {
      EXPECT_TRUE((*file)->Write(At(frame), frame % 2 == 0).ok());
      EXPECT_EQ(*RunningFile::Read(database_), At(frame));
    }
  }
  const auto file = RunningFile::Open(database_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*RunningFile::Read(database_), At(5));
  EXPECT_TRUE((*file)->Write({RunState::kRestoring, {}}, true).ok());
  EXPECT_EQ((*RunningFile::Read(database_))->state, RunState::kRestoring);
  EXPECT_TRUE((*file)->Remove().ok());
  EXPECT_EQ(*RunningFile::Read(database_), std::nullopt);
}

TEST_F(RunningFileTest, ATornWriteLeavesTheRecordBefore) {
  const auto file = *RunningFile::Open(database_);
  ASSERT_TRUE(file->Write(At(4), true).ok());
  const std::string before = base::ReadFile(path_);
  ASSERT_TRUE(file->Write(At(5), true).ok());
  const std::string after = base::ReadFile(path_);
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string torn = before;
    for (size_t b = 0; b < torn.size(); ++b) {
      if (random() % 2 == 0) torn[b] = after[b];
    }
    Overwrite(torn);
    const auto record = RunningFile::Read(database_);
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_TRUE(*record == At(4) || *record == At(5));
  }
}

TEST_F(RunningFileTest, AnUnreadableFileIsDataLoss) {
  for (const std::string& bytes : {std::string(), std::string("vipu-server running"),
                                   std::string(1024, '\0'), std::string(5000, 'x')}) {
    Overwrite(bytes);
    EXPECT_EQ(RunningFile::Read(database_).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(base::ReadFile(path_), bytes);
  }
}

}  // namespace
}  // namespace vpod::controller
