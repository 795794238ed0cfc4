#include "device/base/unfinished_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"

namespace vpod::base {
namespace {

namespace fs = std::filesystem;

class UnfinishedFileTest : public testing::Test {
 protected:
  UnfinishedFileTest()
      : directory_(absl::StrCat(testing::TempDir(), "/unfinished.", getpid())),
        path_(directory_ + "/file") {
    fs::create_directories(directory_);
  }
  ~UnfinishedFileTest() override { fs::remove_all(directory_); }

  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // How often this process has a file open.
  static int Opened(const std::string& path) {
    int count = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += fs::read_symlink(entry.path(), gone) == fs::canonical(path) ? 1 : 0;
    }
    return count;
  }

  const std::string directory_, path_;
};

// As of two containers with one host name, in which the writers have one process number.
TEST_F(UnfinishedFileTest, WritersOfTheSameNameComeOneAfterTheOther) {
  auto first = std::make_unique<UnfinishedFile>(*UnfinishedFile::Create(path_, "1"));
  const std::string name = first->name();
  Write(name, "first");
  auto waiting = std::async(std::launch::async, [&] { return UnfinishedFile::Create(path_, "1"); });
  while (Opened(name) < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(first->Finish().ok());
  first.reset();

  auto second = waiting.get();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->name(), name);
  ASSERT_TRUE(fs::exists(name));
  EXPECT_EQ(Read(name), "");
  Write(name, "second");
  EXPECT_EQ(Read(path_), "first");
  EXPECT_TRUE(second->Finish().ok());
  EXPECT_EQ(Read(path_), "second");
}

TEST_F(UnfinishedFileTest, ALeftoverOfTheSameNameIsEmptied) {
  const std::string name = UnfinishedFile::Create(path_, "1")->name();
  EXPECT_FALSE(fs::exists(name));
  Write(name, "left");
  const auto file = UnfinishedFile::Create(path_, "1");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->name(), name);
  EXPECT_EQ(Read(name), "");
}

TEST_F(UnfinishedFileTest, LinksAreNotFollowed) {
  const std::string name = UnfinishedFile::Create(path_, "1")->name(),
                    other = directory_ + "/other";
  Write(other, "other");
  fs::create_symlink("other", name);
  EXPECT_EQ(UnfinishedFile::Create(path_, "1").status().message(),
            path_ + ": Too many levels of symbolic links");
  EXPECT_EQ(Read(other), "other");
}

TEST_F(UnfinishedFileTest, AWriteThatFailsLeavesTheFileAsItIs) {
  Write(path_, "before");
  const absl::Status failed = ReplaceWhole(path_, [](const std::string& name) {
    Write(name, "half");
    errno = EDQUOT;
    return false;
  });
  EXPECT_EQ(failed, absl::UnavailableError("cannot write " + path_ + ": Disk quota exceeded"));
  EXPECT_EQ(Read(path_), "before");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1);
}

TEST_F(UnfinishedFileTest, AReplacedFileKeepsItsMode) {
  Write(path_, "before");
  fs::permissions(path_, fs::perms::owner_read);
  const absl::Status replaced = ReplaceWhole(path_, [](const std::string& name) {
    Write(name, "after");
    return true;
  });
  EXPECT_TRUE(replaced.ok()) << replaced;
  EXPECT_EQ(Read(path_), "after");
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms::owner_read);
}

}  // namespace
}  // namespace vpod::base
