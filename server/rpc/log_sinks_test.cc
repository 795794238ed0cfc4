#include "server/rpc/log_sinks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "device/base/file.h"

namespace vpod::rpc {
namespace {

namespace fs = std::filesystem;

class RotatingFileSinkTest : public testing::Test {
 protected:
  RotatingFileSinkTest()
      : directory_(testing::TempDir() + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name()),
        path_(directory_ + "/daemon.log") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~RotatingFileSinkTest() override { fs::remove_all(directory_); }

  // Logs lines of 100 bytes with these numbers.
  void Log(int first, int count) {
    const auto sink = RotatingFileSink::Open(path_, 1000);
    ASSERT_TRUE(sink.ok()) << sink.status();
    spdlog::logger logger("test", *sink);
    logger.set_pattern("%v");
    for (int i = first; i < first + count; ++i)
      logger.info("{}", std::to_string(i) + std::string(99 - std::to_string(i).size(), '.'));
  }
  uint64_t AllBytes() {
    uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(directory_)) bytes += entry.file_size();
    return bytes;
  }

  const std::string directory_, path_;
};

TEST_F(RotatingFileSinkTest, TheNewestLinesStayInFilesOfLimitedSize) {
  Log(0, 25);
  EXPECT_EQ(fs::file_size(path_), 500u);
  EXPECT_EQ(fs::file_size(path_ + ".1"), 1000u);
  EXPECT_EQ(base::ReadFile(path_).substr(0, 3), "20.");
  EXPECT_EQ(base::ReadFile(path_ + ".2").substr(0, 2), "0.");
  Log(25, 100);  // a restart goes on in the same file
  EXPECT_LE(AllBytes(), 5u * 1000);
  EXPECT_TRUE(fs::exists(path_ + ".4"));
  EXPECT_FALSE(fs::exists(path_ + ".5"));
  EXPECT_NE(base::ReadFile(path_).find("124."), std::string::npos);
}

TEST_F(RotatingFileSinkTest, TheModeStays) {
  base::UniqueFd(open(path_.c_str(), O_CREAT | O_WRONLY, 0600));
  Log(0, 25);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// Somebody has removed the directory, or made it read-only.
TEST_F(RotatingFileSinkTest, ADaemonGoesOnIfNoOtherFileCanBeMade) {
  const auto sink = RotatingFileSink::Open(path_, 1000);
  ASSERT_TRUE(sink.ok()) << sink.status();
  fs::remove_all(directory_);
  spdlog::logger logger("test", *sink);
  for (int i = 0; i < 100; ++i) logger.info("{}", std::string(100, '.'));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(RotatingFileSinkTest, AFileThatCannotBeWrittenIsNamed) {
  const absl::Status status = RotatingFileSink::Open(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "cannot write log file " + directory_ + ": Is a directory");
}

// A million refused calls of one user, a fiftieth of them here.
TEST_F(RotatingFileSinkTest, RefusedCallsTakeLittle) {
  const auto sink = RotatingFileSink::Open(path_);
  ASSERT_TRUE(sink.ok()) << sink.status();
  spdlog::logger logger("test", std::make_shared<BudgetedSink>(*sink));
  logger.set_pattern("%v");
  constexpr int kCalls = 20000;
  for (int i = 0; i < kCalls; ++i)
    logger.info("refused call=\"get partition\" user=\"mallory\" code=NOT_FOUND reason=\"{}\"", i);
  logger.info("serving");
  std::printf("%d refused calls within a minute: %llu bytes of log\n", kCalls,
              static_cast<unsigned long long>(AllBytes()));
  // A slow machine may see the next minute begin.
  EXPECT_LE(AllBytes(), 4 * LogBudget::kEachUser);
  EXPECT_NE(base::ReadFile(path_).find("\nserving\n"), std::string::npos);
}

}  // namespace
}  // namespace vpod::rpc
