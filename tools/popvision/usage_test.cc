// Each error gets one line and a status.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/pva/database.h"
#include "client/pva/schema.h"
#include "device/base/file.h"

namespace vpod::popvision {
namespace {

struct Ended {
  int status;
  std::string output;  // of both streams
};

Ended Popvision(const std::string& arguments) {
  FILE* pipe = popen(absl::StrCat("tools/popvision/popvision ", arguments, " 2>&1").c_str(), "r");
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output += static_cast<char>(c);
  return {WEXITSTATUS(pclose(pipe)), output};
}

class UsageTest : public testing::Test {
 protected:
  UsageTest()
      : directory_(absl::StrCat(testing::TempDir(), "/usage.", getpid(), ".",
                                testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(directory_);
  }
  ~UsageTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }
  void WriteFile(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary) << text;
  }
  // A file with the tables of a profile, and what `sql` puts in.
  void WriteTables(const std::string& name, const std::string& sql) const {
    const auto database = pva::Database::Open(Path(name), pva::Database::Mode::kCreate);
    ASSERT_TRUE(database.ok()) << database.status();
    (*database)->Execute(pva::kSchema);
    (*database)->Execute(sql.c_str());
    EXPECT_TRUE((*database)->status().ok()) << (*database)->status();
  }
  void WriteSoundProfile() const {
    WriteTables("profile.pop",
                "INSERT INTO meta VALUES('format', '3');"
                "INSERT INTO target VALUES('IPU', 'ipu2', 1.33e9, 4, 1, 1, 1, 1000);"
                "INSERT INTO graph VALUES(0, 0, 0, 0);"
                "INSERT INTO operation VALUES(0, 0, 'copy', '', 'copy', 'copy', '', 0, 1, 9, 0, 0,"
                " 0, 0, 0, 0, NULL, 0);"
                "INSERT INTO step VALUES(0, 0, 0, 0, 0, 9); INSERT INTO run VALUES(0, 9);");
  }
  void Expect(const std::string& arguments, int status, const std::string& message) const {
    const Ended ended = Popvision(arguments);
    EXPECT_EQ(ended.status, status) << arguments << "\n" << ended.output;
    EXPECT_EQ(ended.output, absl::StrCat("popvision: error: ", message, "\n")) << arguments;
  }

  const std::string directory_;
};

TEST_F(UsageTest, WrongUsage) {
  Expect("", 2,
         "a command is missing; use one of summary, insights, memory, liveness, program, "
         "operations, trace, diff, report. Try 'popvision --help'.");
  Expect("summary", 2, "the argument profile is missing. Try 'popvision summary --help'.");
  Expect("look x", 2, "unknown command 'look'. Try 'popvision --help'.");
  Expect("diff a", 2, "the argument after is missing. Try 'popvision diff --help'.");
  Expect("report a", 2, "the option --html is missing. Try 'popvision report --help'.");
  Expect("trace a --json --chrome b", 2,
         "--json and --chrome cannot be given together. Try 'popvision trace --help'.");
  Expect("trace a --chrome ''", 2, "--chrome: the value is empty. Try 'popvision trace --help'.");
  Expect("report a --html ''", 2, "--html: the value is empty. Try 'popvision report --help'.");
  Expect("summary ''", 2, "profile: the value is empty. Try 'popvision summary --help'.");
  Expect("''", 2, "unknown command ''. Try 'popvision --help'.");
  Expect("--look", 2, "unknown option '--look'. Try 'popvision --help'.");
}

TEST_F(UsageTest, Help) {
  const Ended all = Popvision("--help"), of_trace = Popvision("trace --help");
  EXPECT_EQ(all.status, 0);
  EXPECT_NE(all.output.find("what each IPU does when"), std::string::npos) << all.output;
  EXPECT_NE(of_trace.output.find("--chrome"), std::string::npos) << of_trace.output;
  EXPECT_EQ(Popvision("help").output, all.output);
  EXPECT_EQ(Popvision("help").status, 0);
  EXPECT_EQ(Popvision("help trace").output, of_trace.output);
  EXPECT_EQ(Popvision("help trace").status, 0);
  Expect("help look", 2, "unknown command 'look'. Try 'popvision --help'.");
}

TEST_F(UsageTest, FilesThatAreNoProfiles) {
  const std::string missing = Path("missing");
  Expect("summary " + missing, 1, missing + ": there is no such profile");
  Expect("summary " + directory_, 1, directory_ + ": the directory has no profile.pop");
  WriteFile("text", std::string(2000, 'x'));
  Expect("memory " + Path("text"), 1,
         Path("text") + " is not a profile: it is not an SQLite database");
  WriteFile("empty", "");
  Expect("memory " + Path("empty"), 1,
         Path("empty") + " is not a valid profile: its tables are not those of a profile");
  WriteTables("format", "INSERT INTO meta VALUES('format', '99')");
  Expect("memory " + Path("format"), 1,
         Path("format") + " is not a valid profile: its format is '99', and this program reads 3");
  // Formats have other tables, which do not hide what is the matter.
  WriteTables("old", "INSERT INTO meta VALUES('format', '1'); DROP TABLE remote_buffer");
  Expect("memory " + Path("old"), 1,
         Path("old") + " is not a valid profile: its format is '1', and this program reads 3");
}

TEST_F(UsageTest, ProfilesThatDoNotHoldTogether) {
  const std::string sound =
      "INSERT INTO meta VALUES('format', '3');"
      "INSERT INTO target VALUES('IPU', 'ipu2', 1.33e9, 4, 1, 1, 1, 1000);"
      "INSERT INTO graph VALUES(0, 0, 0, 0);";
  int number = 0;
  const auto expect = [&](const std::string& sql, const std::string& message) {
    const std::string name = absl::StrCat("broken", number++);
    WriteTables(name, sound + sql);
    Expect("insights " + Path(name), 1,
           absl::StrCat(Path(name), " is not a valid profile: ", message));
  };
  expect("DELETE FROM target", "there is no target");
  expect("UPDATE target SET ipusPerReplica = 1000",
         "target: ipusPerReplica is 1000, must be 1 to 64");
  expect("UPDATE target SET clockFrequency = 0", "target: clockFrequency must be above 0");
  expect("INSERT INTO memory VALUES(3, 'stacks', NULL)", "IPU 3 is beyond the replica");
  expect("INSERT INTO memory VALUES(0, 'stacks', NULL)", "category 'stacks' has 0 tiles");
  expect("INSERT INTO step VALUES(0, 0, 7, 0, 0, 1)", "operation 7 does not exist");
  expect("INSERT INTO run VALUES(0, -5)", "a count is negative");
  expect("INSERT INTO run VALUES(0, 'many')", "a number is expected");
  expect("UPDATE target SET clockFrequency = 'fast'", "a number is expected");
  expect("INSERT INTO program(id, parent, ipu) VALUES(0, 0, 0)", "program 0 does not exist");
  expect(
      "INSERT INTO program(id, ipu) VALUES(0, 0);"
      "INSERT INTO program(id, parent, ipu) VALUES(1, 0, 0);"
      "INSERT INTO program(id, parent, ipu, callee) VALUES(2, 1, 0, 1)",
      "program 1 is not a function of IPU 0");
  const char* foreign = "its tables are not those of a profile";
  expect("DROP TABLE liveness_step", foreign);
  expect("DROP TABLE meta; CREATE VIEW meta AS SELECT 'format' AS key, '1' AS value", foreign);
  expect(
      "DROP TABLE run; CREATE VIEW run AS WITH RECURSIVE c(x) AS (SELECT 0 UNION ALL SELECT x + 1 "
      "FROM c) SELECT x AS id, x AS cycles FROM c",
      foreign);
  expect("CREATE TABLE more(x)", foreign);
}

TEST_F(UsageTest, PipesAreRefused) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  Expect("summary " + Path("pipe"), 1, Path("pipe") + " is not a regular file");
  Expect("diff /dev/null " + Path("pipe"), 1, "/dev/null is not a regular file");
}

TEST_F(UsageTest, WithoutRunsThereIsNoTraceToWrite) {
  WriteSoundProfile();
  const std::string trace = absl::StrCat("trace ", directory_, " --chrome ", Path("trace.json"));
  EXPECT_EQ(Popvision(trace).status, 0);
  EXPECT_TRUE(std::filesystem::remove(Path("trace.json")));
  const auto change = [&](const char* sql) {
    const auto database = pva::Database::Open(Path("profile.pop"), pva::Database::Mode::kWrite);
    ASSERT_TRUE(database.ok()) << database.status();
    (*database)->Execute(sql);
  };
  change("DELETE FROM step");
  Expect(trace, 1, Path("profile.pop") + ": there is nothing to trace. A run takes no cycles.");
  change("DELETE FROM run");
  Expect(trace, 1,
         Path("profile.pop") +
             ": there is nothing to trace. No run is recorded: autoReport.outputExecutionProfile "
             "is not true. POPLAR_ENGINE_OPTIONS='{\"autoReport.outputExecutionProfile\":"
             "\"true\"}' makes a program record its first runs.");
  EXPECT_FALSE(std::filesystem::exists(Path("trace.json")));
}

TEST_F(UsageTest, OutputThatCannotBeWritten) {
  WriteSoundProfile();
  EXPECT_EQ(Popvision("report " + directory_ + " --html /proc/x.html").status, 1);
  EXPECT_EQ(Popvision("trace " + directory_ + " --chrome /nowhere/x.json").status, 1);
  // Devices stay what they are.
  EXPECT_EQ(Popvision("report " + directory_ + " --html /dev/null").status, 1);
  EXPECT_EQ(Popvision("trace " + directory_ + " --chrome /dev/null").status, 1);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(Popvision("report " + directory_ + " --html " + Path("x.html")).status, 0);
  EXPECT_TRUE(std::filesystem::exists(Path("x.html")));
  for (const char* format : {"", " --json"})
    EXPECT_EQ(Popvision(absl::StrCat("summary ", directory_, format, " > /dev/full")).status, 1);
}

// Whatever its name: a profile is not written over while it is shown.
TEST_F(UsageTest, TheProfileItselfIsNotWrittenOver) {
  namespace fs = std::filesystem;
  WriteSoundProfile();
  const std::string before = base::ReadFile(Path("profile.pop"));
  fs::create_symlink("profile.pop", Path("link"));
  fs::create_hard_link(Path("profile.pop"), Path("hard"));
  for (const char* output : {"profile.pop", "./profile.pop", "link", "hard"}) {
    for (const char* command : {"report ", "trace "}) {
      Expect(
          absl::StrCat(command, directory_,
                       std::string(command) == "report " ? " --html " : " --chrome ", Path(output)),
          1, absl::StrCat("cannot write ", Path(output), ": it is the profile itself"));
    }
  }
  EXPECT_EQ(base::ReadFile(Path("profile.pop")), before);
  EXPECT_TRUE(fs::is_symlink(Path("link")));
}

TEST_F(UsageTest, LinksForOutputLeadToTheFile) {
  namespace fs = std::filesystem;
  WriteSoundProfile();
  WriteFile("page.html", "before");
  fs::create_symlink("page.html", Path("link"));
  EXPECT_EQ(Popvision(absl::StrCat("report ", directory_, " --html ", Path("link"))).status, 0);
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_NE(base::ReadFile(Path("page.html")).find("</html>"), std::string::npos);
  fs::create_symlink("nothing", Path("astray"));
  Expect(absl::StrCat("trace ", directory_, " --chrome ", Path("astray")), 1,
         absl::StrCat("cannot write ", Path("astray"), ": it is a link to nothing"));
}

TEST_F(UsageTest, OutputHasTheModeThatTheUserGivesNewFiles) {
  WriteSoundProfile();
  const mode_t before = umask(027);
  const Ended report = Popvision(absl::StrCat("report ", directory_, " --html ", Path("page"))),
              trace = Popvision(absl::StrCat("trace ", directory_, " --chrome ", Path("trace")));
  umask(before);
  EXPECT_EQ(report.status, 0) << report.output;
  EXPECT_EQ(trace.status, 0) << trace.output;
  for (const char* name : {"page", "trace"}) {
    struct stat info {};
    ASSERT_EQ(stat(Path(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0640u) << name;
  }
}

TEST_F(UsageTest, SeveralProfilesAreNamed) {
  for (const char* folder : {"a", "b"}) {
    std::filesystem::create_directories(Path(folder));
    WriteFile(absl::StrCat(folder, "/profile.pop"), "");
  }
  Expect("summary " + directory_, 1,
         absl::StrCat(directory_, " has several profiles, name one: ", Path("a"), ", ", Path("b")));
}

}  // namespace
}  // namespace vpod::popvision
