#include "client/sdk_log/sdk_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/file.h"

namespace vpod {
namespace {

class SdkLogTest : public ::testing::Test {
 protected:
  SdkLogTest() : file_(absl::StrCat(::testing::TempDir(), "/sdk-", getpid(), ".log")) {
    for (const char* library : {"POPLAR", "POPLAR_ENGINE", "POPLAR_TARGET", "GCL", "IPUOF"}) {
      unsetenv(absl::StrCat(library, "_LOG_LEVEL").c_str());
      unsetenv(absl::StrCat(library, "_LOG_DEST").c_str());
    }
  }
  ~SdkLogTest() override { std::filesystem::remove(file_); }

  static void Set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  // The levels of which a module writes lines, as their letters.
  static std::string Levels(LogModule module) {
    const auto log = SdkLogSettings::FromEnvironment();
    EXPECT_TRUE(log.ok()) << log.status();
    std::string letters;
    for (const auto& [level, letter] : {std::pair(LogLevel::kTrace, 'T'),
                                        {LogLevel::kDebug, 'D'},
                                        {LogLevel::kInfo, 'I'},
                                        {LogLevel::kWarn, 'W'},
                                        {LogLevel::kErr, 'E'}}) {
      if (log.ok() && log->Shows(module, level)) letters += letter;
    }
    return letters;
  }
  static std::string Error() {
    return std::string(SdkLogSettings::FromEnvironment().status().message());
  }

  const std::string file_;
};

TEST_F(SdkLogTest, WarningsAreShownUnlessALevelIsSet) {
  EXPECT_EQ(Levels(LogModule::kEngine), "WE");
  EXPECT_EQ(Levels(LogModule::kIpuof), "WE");
  Set("POPLAR_LOG_LEVEL", "DEBUG");
  EXPECT_EQ(Levels(LogModule::kEngine), "DIWE");
  EXPECT_EQ(Levels(LogModule::kTarget), "DIWE");
  EXPECT_EQ(Levels(LogModule::kGcl), "WE");
  Set("POPLAR_LOG_LEVEL", "OFF");
  Set("POPLAR_ENGINE_LOG_LEVEL", "TRACE");
  EXPECT_EQ(Levels(LogModule::kEngine), "TDIWE");
  EXPECT_EQ(Levels(LogModule::kTarget), "");
  Set("GCL_LOG_LEVEL", "ERR");
  EXPECT_EQ(Levels(LogModule::kGcl), "E");
}

TEST_F(SdkLogTest, WrongValuesNameTheAllowedOnes) {
  const std::string allowed = ". Valid values are TRACE, DEBUG, INFO, WARN, ERR and OFF.";
  for (const std::string name :
       {"POPLAR_LOG_LEVEL", "POPLAR_ENGINE_LOG_LEVEL", "GCL_LOG_LEVEL", "IPUOF_LOG_LEVEL"}) {
    Set(name.c_str(), "LOUD");
    EXPECT_EQ(Error(), absl::StrCat("Unknown ", name, " 'LOUD'", allowed));
    unsetenv(name.c_str());
  }
  Set("IPUOF_LOG_DEST", "/none/log");
  EXPECT_EQ(Error(), "cannot write to /none/log, the IPUOF_LOG_DEST: No such file or directory");
}

TEST_F(SdkLogTest, LinesHaveTheFormOfPoplar) {
  Set("POPLAR_LOG_DEST", file_);
  Set("IPUOF_LOG_DEST", file_);
  const auto log = SdkLogSettings::FromEnvironment();
  ASSERT_TRUE(log.ok()) << log.status();
  log->Write(LogModule::kEngine, LogLevel::kWarn, "text");
  log->Write(LogModule::kEngine, LogLevel::kInfo, "not shown");
  log->Write(LogModule::kIpuof, LogLevel::kErr, "other text");
  const std::string text = base::ReadFile(file_);
  const std::string ids = absl::StrCat(getpid(), ".", gettid());
  // As in 2023-08-22T23:49:40.103248Z PO:ENGINE   3556102.3556102 W: WARNING: …
  ASSERT_GT(text.size(), 28u);
  EXPECT_EQ(text.substr(10, 1) + text.substr(19, 1) + text.substr(26, 1), "T.Z") << text;
  EXPECT_EQ(text.substr(27, text.find('\n') - 27), absl::StrCat(" PO:ENGINE   ", ids, " W: text"));
  EXPECT_TRUE(absl::EndsWith(text, absl::StrCat(" IPUOF       ", ids, " E: other text\n"))) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

}  // namespace
}  // namespace vpod
