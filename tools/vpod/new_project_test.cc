#include "tools/vpod/new_project.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "device/base/file.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

class NewProjectTest : public ::testing::Test {
 protected:
  NewProjectTest() : directory_(fs::path(::testing::TempDir()) / "new_project_test") {
    fs::remove_all(directory_);
    fs::create_directory(directory_);
  }
  ~NewProjectTest() override { fs::remove_all(directory_); }

  std::string In(const std::string& name) const { return (directory_ / name).string(); }
  std::string Text(const std::string& file) const { return base::ReadFile(In(file)); }
  std::set<std::string> Files(const std::string& name) const {
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(In(name)))
      files.insert(entry.path().filename().string());
    return files;
  }

  const fs::path directory_;
};

TEST_F(NewProjectTest, HasTheFirstProgramAndWhatBuildsIt) {
  ASSERT_EQ(WriteProject(In("digits"), false), absl::OkStatus());
  EXPECT_EQ(Files("digits"),
            (std::set<std::string>{"CMakeLists.txt", "Makefile", "README.md", "main.cc"}));
  EXPECT_EQ(Text("digits/main.cc"), base::ReadFile("client/examples/first_program/first.cc"));
  EXPECT_NE(Text("digits/CMakeLists.txt").find("project(digits "), std::string::npos);
  EXPECT_NE(Text("digits/Makefile").find("build/digits: main.cc\n"), std::string::npos);
  EXPECT_EQ(Text("digits/README.md").rfind("# digits\n", 0), 0u);
  for (const std::string& file : Files("digits"))
    EXPECT_EQ(Text("digits/" + file).find("@NAME@"), std::string::npos) << file;
}

TEST_F(NewProjectTest, InPython) {
  ASSERT_EQ(WriteProject(In("digits/"), true), absl::OkStatus());
  EXPECT_EQ(Files("digits"), (std::set<std::string>{"README.md", "main.py"}));
  EXPECT_EQ(Text("digits/main.py"), base::ReadFile("client/examples/first_program/first.py"));
}

TEST_F(NewProjectTest, RefusesWhatIsNoNameOfAProgram) {
  EXPECT_TRUE(absl::IsInvalidArgument(WriteProject("", false)));
  EXPECT_TRUE(absl::IsInvalidArgument(WriteProject("/", false)));
  for (const char* name : {".", "..", "1st", "-x", "a b", "a;b", "a$(b)", "ü"}) {
    const absl::Status refused = WriteProject(In(name), false);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << name << ": " << refused;
  }
  EXPECT_TRUE(fs::is_empty(directory_));
}

TEST_F(NewProjectTest, NamesTheDirectoryThatItCannotMake) {
  ASSERT_EQ(WriteProject(In("digits"), false), absl::OkStatus());
  EXPECT_EQ(WriteProject(In("digits"), true),
            absl::AlreadyExistsError(In("digits") + " is there already"));
  EXPECT_EQ(Files("digits").size(), 4u);
  EXPECT_EQ(WriteProject(In("nowhere/digits"), false),
            absl::UnavailableError("cannot make " + In("nowhere/digits") +
                                   ": No such file or directory"));
  // A file in the place of a directory, also for root.
  EXPECT_EQ(
      WriteProject(In("digits/main.cc/more"), false),
      absl::UnavailableError("cannot make " + In("digits/main.cc/more") + ": Not a directory"));
}

}  // namespace
}  // namespace vpod::tools
