// Whole commands against a canned controller, in a directory and an environment of their own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/vipu/fake_controller.h"
#include "tools/vipu/cli.h"

namespace vpod::tools {

namespace fs = std::filesystem;

class CliTest : public ::testing::Test {
 protected:
  CliTest()
      : before_(fs::current_path()),
        directory_(fs::path(::testing::TempDir()) /
                   ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    fs::current_path(directory_);
    for (const char* name : {"IPUOF_VIPU_API_HOST", "VIPU_CLI_API_PORT", "VIPU_CLI_CONFIG",
                             "VIPU_CLI_API_USER_ID", "VIPU_CLI_API_ACCESS_KEY"})
      unsetenv(name);
    setenv("HOME", directory_.c_str(), 1);
    setenv("IPUOF_CONFIG_DIR", (directory_ / "ipuof").c_str(), 1);
    setenv("VIPU_CLI_API_HOST", controller_.address().c_str(), 1);
  }
  ~CliTest() override {
    fs::current_path(before_);
    fs::remove_all(directory_);
  }

  // Runs "vipu-admin create agent …"; words are separated by blanks.
  int Run(const std::string& line) {
    std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    const bool admin = words.at(0) == "vipu-admin";
    words.erase(words.begin());
    std::ostringstream out, err;
    const int code = VipuMain(admin, words, out, err);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  void ExpectSuccess(const std::string& line) {
    EXPECT_EQ(Run(line), 0) << err_;
    EXPECT_EQ(err_, "");
  }
  // The hint names the help of the words that are known: "vipu create partition --help".
  void ExpectUsageError(const std::string& line, const std::string& message, size_t known = 3) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const std::string tool = words[0];
    const auto begin = words.begin(), end = begin + std::min(known, words.size());
    EXPECT_EQ(Run(line), 2) << line;
    EXPECT_EQ(err_, absl::StrCat(tool, ": error: ", message, " Try '",
                                 absl::StrJoin(begin, end, " "), " --help'.\n"));
    EXPECT_EQ(out_, "");
  }

  const fs::path before_, directory_;
  vipu::FakeController controller_;
  std::string out_, err_;
};

}  // namespace vpod::tools
