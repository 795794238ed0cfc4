// Files that cannot be read, each with its reason; and those of writers that were killed.
#include "client/pva/pva.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/pva/database.h"
#include "client/pva/schema.h"
#include "device/base/file.h"

namespace vpod::pva {
namespace {

namespace fs = std::filesystem;

constexpr char kSound[] =
    "INSERT INTO meta VALUES('format', '3');"
    "INSERT INTO target VALUES('IPU', 'ipu2', 1.33e9, 4, 1, 1, 1, 1000);"
    "INSERT INTO graph VALUES(0, 0, 0, 0);";

// Permissions do not bind a superuser.
absl::Status OpenAsOrdinaryUser(const std::string& path) {
  constexpr uid_t kNobody = 65534;
  const uid_t user = geteuid();
  EXPECT_EQ(seteuid(user == 0 ? kNobody : user), 0);
  absl::Status status = OpenReport(path).status();
  EXPECT_EQ(seteuid(user), 0);
  return status;
}

class PvaTest : public testing::Test {
 protected:
  // Not in the directory of tests, which may be hidden from others than its owner.
  PvaTest()
      : directory_(fs::temp_directory_path() / absl::StrCat("pva_test.", getpid())),
        profile_(directory_ + "/profile.pop") {
    fs::create_directories(directory_);
    fs::permissions(directory_, fs::perms(0755));
  }
  ~PvaTest() override { fs::remove_all(directory_); }

  void WriteProfile() const {
    const auto database = Database::Open(profile_, Database::Mode::kCreate);
    ASSERT_TRUE(database.ok()) << database.status();
    (*database)->Execute(kSchema);
    (*database)->Execute(kSound);
    EXPECT_TRUE((*database)->status().ok()) << (*database)->status();
  }
  // As it is left by a process that is killed while it adds runs: half of them are in the file, and
  // what was there before is in a journal.
  void WriteInterruptedProfile() const {
    WriteProfile();
    const std::string whole = profile_ + ".whole";
    fs::rename(profile_, whole);
    const auto database = Database::Open(whole, Database::Mode::kWrite);
    ASSERT_TRUE(database.ok()) << database.status();
    (*database)->Execute(
        "PRAGMA cache_size = 5; BEGIN; WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 "
        "FROM n WHERE i < 20000) INSERT INTO run SELECT i, 1000 FROM n");
    ASSERT_TRUE((*database)->status().ok()) << (*database)->status();
    for (const char* file : {"", "-journal"}) fs::copy_file(whole + file, profile_ + file);
  }
  void ExpectRefused(const std::string& path, absl::StatusCode code, const std::string& why) const {
    const absl::Status status = OpenReport(path).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(std::string(status.message()), why);
  }

  const std::string directory_, profile_;
};

TEST_F(PvaTest, ReasonsAreToldApart) {
  ExpectRefused(directory_ + "/none", absl::StatusCode::kNotFound,
                directory_ + "/none: there is no such profile");
  ExpectRefused(directory_, absl::StatusCode::kNotFound,
                directory_ + ": the directory has no profile.pop");
  std::ofstream(profile_) << std::string(2000, 'x');
  ExpectRefused(directory_, absl::StatusCode::kInvalidArgument,
                profile_ + " is not a profile: it is not an SQLite database");
  fs::remove(profile_);
  // Nobody writes to the pipe: a reader would wait for ever.
  ASSERT_EQ(mkfifo(profile_.c_str(), 0600), 0);
  ExpectRefused(directory_, absl::StatusCode::kInvalidArgument,
                profile_ + " is not a regular file");
  ExpectRefused("/dev/null", absl::StatusCode::kInvalidArgument, "/dev/null is not a regular file");
}

TEST_F(PvaTest, NoPermission) {
  WriteProfile();
  fs::permissions(profile_, fs::perms::none);
  const absl::Status status = OpenAsOrdinaryUser(profile_);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(std::string(status.message()), profile_ + ": cannot be read: Permission denied");
}

TEST_F(PvaTest, AWriterThatWasKilledIsUndone) {
  WriteInterruptedProfile();
  const auto report = OpenReport(profile_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->runs.empty());
  EXPECT_FALSE(fs::exists(profile_ + "-journal"));
  EXPECT_TRUE(OpenReport(profile_).ok());
}

TEST_F(PvaTest, WhatCannotBeUndoneIsExplained) {
  WriteInterruptedProfile();
  fs::permissions(profile_, fs::perms(0444));
  fs::permissions(profile_ + "-journal", fs::perms(0444));
  const absl::Status status = OpenAsOrdinaryUser(profile_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_EQ(std::string(status.message()),
            absl::StrCat(
                profile_,
                ": a process was killed while it added a run; to undo its unfinished write, read "
                "the profile as a user who may write to it and to its directory, or copy "
                "it together with ",
                profile_, "-journal"));
}

// Such a journal would let SQLite remove a file that it names.
TEST_F(PvaTest, JournalsThatNameOtherFilesAreRefused) {
  WriteInterruptedProfile();
  std::ofstream(profile_ + "-journal", std::ios::binary | std::ios::app)
      << "/etc/passwd"
      << "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  ExpectRefused(profile_, absl::StatusCode::kInvalidArgument,
                profile_ + "-journal is not the journal of a profile");
  fs::remove(profile_ + "-journal");
  ASSERT_EQ(mkfifo((profile_ + "-journal").c_str(), 0600), 0);
  ExpectRefused(profile_, absl::StatusCode::kInvalidArgument,
                profile_ + "-journal is not a regular file");
}

}  // namespace
}  // namespace vpod::pva
