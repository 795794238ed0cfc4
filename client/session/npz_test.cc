#include "client/session/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/unfinished_file.h"

namespace vpod::session {
namespace {

using testing::HasSubstr;

class NpzTest : public testing::Test {
 protected:
  std::string path_ = testing::TempDir() + "arrays.npz";

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Files in the same directory whose names begin with that of the file.
  std::vector<std::string> Unfinished() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(testing::TempDir())) {
      const std::string path = entry.path().string();
      if (absl::StartsWith(path, path_ + ".")) paths.push_back(path);
    }
    return paths;
  }
  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
};

TEST_F(NpzTest, GivesBackWhatWasWritten) {
  const Arrays arrays = {{"scalar", FloatArray({}, {3})},
                         {"layer1.0.weight", FloatArray({2, 3}, {1, 2, 3, 4, 5, 6})},
                         {"vector", FloatArray({4}, {-1, 0, 1e30f, 2})},
                         {"half", {{program::v1::FLOAT16, {1}}, "ab"}},
                         {"seed", {{program::v1::UINT32, {2}}, "\xff\xff\xff\xff 123"}},
                         {"int", {{program::v1::INT32, {}}, "1234"}},
                         {"shorts", {{program::v1::INT16, {1}}, "ab"}},
                         {"unsigned shorts", {{program::v1::UINT16, {1}}, "ab"}},
                         {"bytes", {{program::v1::UINT8, {3}}, "abc"}},
                         {"signed bytes", {{program::v1::INT8, {0}}, ""}},
                         {"mask", {{program::v1::BOOL, {2}}, std::string("\0\1", 2)}}};
  ASSERT_TRUE(WriteNpz(path_, arrays).ok());
  const auto read = ReadNpz(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), arrays.size());
  for (const auto& [name, array] : arrays) {
    EXPECT_EQ(read->at(name).type, array.type) << name;
    EXPECT_EQ(read->at(name).bytes, array.bytes) << name;
  }
  EXPECT_THAT(Unfinished(), testing::IsEmpty());
}

TEST_F(NpzTest, WritesWhereALinkLeads) {
  const std::string link = testing::TempDir() + "link.npz";
  ASSERT_TRUE(WriteNpz(path_, {}).ok());
  std::filesystem::create_symlink("arrays.npz", link);
  ASSERT_TRUE(WriteNpz(link, {{"w", FloatArray({1}, {1})}}).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ReadNpz(path_)->count("w"), 1u);
  std::filesystem::remove(path_);
  EXPECT_EQ(WriteNpz(link, {}).message(),
            absl::StrCat("cannot write ", link, ": it is a link to nothing"));
  std::filesystem::remove(link);
}

TEST_F(NpzTest, KeepsTheModeOfTheFile) {
  ASSERT_TRUE(WriteNpz(path_, {}).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  ASSERT_TRUE(WriteNpz(path_, {}).ok());
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST_F(NpzTest, RemovesWhatKilledWritersLeft) {
  const pid_t killed = fork();
  if (killed == 0) {
    const auto unfinished = base::UnfinishedFile::Create(path_, "1");
    _exit(unfinished.ok() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(killed, &status, 0), killed);
  ASSERT_EQ(status, 0);
  const auto alive = base::UnfinishedFile::Create(path_, "other");
  ASSERT_TRUE(alive.ok()) << alive.status();
  EXPECT_EQ(Unfinished().size(), 2u);
  ASSERT_TRUE(WriteNpz(path_, {}).ok());
  EXPECT_THAT(Unfinished(), testing::ElementsAre(alive->name()));
}

// Writers in other containers may have the same host name and process number.
TEST_F(NpzTest, UnfinishedFilesOfWritersDiffer) {
  std::set<std::string> sessions;
  for (int writer = 0; writer < 2; ++writer) {
    const pid_t killed = fork();
    if (killed == 0) {
      const rlimit none{0, 0};
      setrlimit(RLIMIT_CORE, &none);
      setrlimit(RLIMIT_FSIZE, &none);
      std::signal(SIGXFSZ, SIG_DFL);  // kills it when it writes
      WriteNpz(path_, {}).IgnoreError();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(killed, &status, 0), killed);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::vector<std::string> left = Unfinished();
    ASSERT_EQ(left.size(), 1u);
    sessions.insert(left[0].substr(left[0].rfind('.')));
  }
  EXPECT_EQ(sessions.size(), 2u);
  ASSERT_TRUE(WriteNpz(path_, {}).ok());
  EXPECT_THAT(Unfinished(), testing::IsEmpty());
}

TEST_F(NpzTest, NamesTheFileThatItCannotReadOrWrite) {
  EXPECT_EQ(ReadNpz("/nowhere/a.npz").status().message(),
            "cannot read /nowhere/a.npz: No such file or directory");
  EXPECT_EQ(ReadNpz("/nowhere/a.npz").status().code(), absl::StatusCode::kNotFound);
  // The path leads through a file, not a directory.
  EXPECT_EQ(ReadNpz("/dev/null/a.npz").status().message(),
            "cannot read /dev/null/a.npz: Not a directory");
  EXPECT_EQ(ReadNpz("/dev/null/a.npz").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(WriteNpz("/nowhere/a.npz", {}).message(),
            "cannot write /nowhere/a.npz: No such file or directory");
  Write("no archive");
  EXPECT_THAT(std::string(ReadNpz(path_).status().message()), HasSubstr("is not an .npz file"));
}

// As on a full disk: what does not fit shows when the file is closed.
TEST_F(NpzTest, AFileThatCannotBeWrittenWhollyReplacesNothing) {
  ASSERT_TRUE(WriteNpz(path_, {{"w", FloatArray({1}, {1})}}).ok());
  const std::string good = Bytes();
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  for (const rlim_t most : {0, 100, 1000}) {
    const rlimit few{most, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &few), 0);
    const absl::Status status =
        WriteNpz(path_, {{"w", FloatArray({512}, std::vector<float>(512))}});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(status.message(), absl::StrCat("cannot write ", path_, ": File too large"));
    EXPECT_EQ(Bytes(), good);
  }
  std::signal(SIGXFSZ, handler);
}

TEST_F(NpzTest, RefusesOtherTypesAndDamage) {
  ASSERT_TRUE(WriteNpz(path_, {{"w", FloatArray({2, 3}, {1, 2, 3, 4, 5, 6})}}).ok());
  const std::string good = Bytes();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    Write(bytes);
    return std::string(ReadNpz(path_).status().message());
  };
  EXPECT_THAT(with("<f4", "<f8"), HasSubstr("array 'w.npy' must be float32, float16"));
  EXPECT_THAT(with("False", "True "), HasSubstr("row-major order"));
  EXPECT_THAT(with("(2, 3)", "(2, 4)"), HasSubstr("has a shape (2, 4) that its bytes do not fit"));
  EXPECT_THAT(with("(2, 3)", "(-, 3)"), HasSubstr("must be float32"));
  EXPECT_THAT(with("NUMPY", "NUMPI"), HasSubstr("is not an .npy array"));
  EXPECT_THAT(with("(2, 3)", "(2, 3,"), HasSubstr("must be float32"));
  EXPECT_THAT(with("}", " "), HasSubstr("must be float32"));
  // A value that the checksum does not fit.
  std::string bytes = good;
  bytes[bytes.find("NUMPY") - 1 + 128 + 5] ^= 1;
  Write(bytes);
  EXPECT_THAT(std::string(ReadNpz(path_).status().message()), HasSubstr("truncated or damaged"));
  EXPECT_THAT(std::string(ReadNpz(path_, 10).status().message()), HasSubstr("more than 10 bytes"));
  // An archive is found by its end.
  for (size_t length = 0; length + 22 < good.size(); length += 7) {
    Write(good.substr(0, length));
    EXPECT_FALSE(ReadNpz(path_).ok()) << length;
  }
}

TEST_F(NpzTest, RefusesOtherBools) {
  ASSERT_TRUE(WriteNpz(path_, {{"mask", {{program::v1::BOOL, {1}}, "\2"}}}).ok());
  EXPECT_THAT(std::string(ReadNpz(path_).status().message()), HasSubstr("neither 0 nor 1"));
}

// Neither waits for a writer, nor replaces what is there.
TEST_F(NpzTest, TakesNoDeviceAndNoPipe) {
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  for (const std::string& path : {path_, std::string("/dev/null"), testing::TempDir()}) {
    const bool is_directory = path == testing::TempDir();
    const std::string message = path + (is_directory ? " is a directory" : " is not a file");
    EXPECT_EQ(WriteNpz(path, {{"w", FloatArray({1}, {1})}}).message(), message);
    EXPECT_EQ(ReadNpz(path).status().message(), message);
  }
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  std::filesystem::remove(path_);
}

// The longest header that there can be.
TEST_F(NpzTest, RefusesAShapeOfTooManyDimensions) {
  ASSERT_TRUE(WriteNpz(path_, {{"w", FloatArray(program::Dims(20000, 1), {5})}}).ok());
  const absl::StatusOr<Arrays> read = ReadNpz(path_);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("has a shape"));
}

}  // namespace
}  // namespace vpod::session
