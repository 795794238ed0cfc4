#include "device/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

namespace vpod::base {
namespace {

class ReadNamedFileTest : public testing::Test {
 protected:
  const std::string path_ =
      testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  void TearDown() override { std::remove(path_.c_str()); }
  void Write(const std::string& text) const { std::ofstream(path_) << text; }
};

TEST_F(ReadNamedFileTest, GivesAllBytes) {
  const std::string text(200000, 'x');
  Write(text);
  EXPECT_EQ(*ReadNamedFile(path_), text);
  Write("");
  EXPECT_EQ(*ReadNamedFile(path_), "");
}

TEST_F(ReadNamedFileTest, NamesWhatIsMissing) {
  const auto missing = ReadNamedFile(path_);
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_EQ(missing.status().message(), "cannot read " + path_ + ": No such file or directory");
}

TEST_F(ReadNamedFileTest, RefusesWhatHasNoEnd) {
  const auto zero = ReadNamedFile("/dev/zero");
  EXPECT_TRUE(absl::IsFailedPrecondition(zero.status()));
  EXPECT_EQ(zero.status().message(), "cannot read /dev/zero: it is not a file");
  EXPECT_EQ(ReadNamedFile("/tmp").status().message(), "cannot read /tmp: it is a directory");
  Write(std::string(101, 'x'));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadNamedFile(path_, 100).status()));
  EXPECT_TRUE(ReadNamedFile(path_, 101).ok());
}

TEST_F(ReadNamedFileTest, ReadsAPipe) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  std::thread writer([&] { Write("through a pipe"); });
  EXPECT_EQ(*ReadNamedFile(path_), "through a pipe");
  writer.join();
}

TEST(OutputPathTest, FollowsLinks) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(testing::TempDir()) / "output_path";
  fs::create_directories(directory);
  const std::string file = fs::canonical(directory) / "file", link = directory / "link";
  EXPECT_EQ(*OutputPath(file), file);
  fs::create_symlink("file", link);
  EXPECT_EQ(OutputPath(link).status().message(),
            "cannot write " + link + ": it is a link to nothing");
  std::ofstream(file) << "text";
  EXPECT_EQ(*OutputPath(link), file);
  EXPECT_EQ(*OutputPath(file), file);
  EXPECT_EQ(OutputPath(directory).status().message(), directory.string() + " is a directory");
  EXPECT_EQ(OutputPath("/dev/null").status().message(), "/dev/null is not a file");
  fs::remove_all(directory);
}

}  // namespace
}  // namespace vpod::base
