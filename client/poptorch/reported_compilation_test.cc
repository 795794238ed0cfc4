// A compilation for IPUs leaves a profile of a model that does not fit them.
#include "client/poptorch/reported_compilation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/engine_options/engine_options.h"

namespace vpod::poptorch {
namespace {

using graph::Graph;
using program::v1::FLOAT32;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ReportedCompilationTest : public ::testing::Test {
 protected:
  // Compiles a product whose weights, of 1 GiB, do not fit an IPU.
  absl::StatusOr<compiler::Compiled> CompileTooMuch(std::map<std::string, std::string> engine,
                                                    bool is_model = false) {
    constexpr int64_t kSize = 16384;
    Graph g;
    g.Output("y",
             g.MatMul(g.Input("x", {FLOAT32, {1, kSize}}),
                      g.Variable("w", {FLOAT32, {kSize, kSize}}, graph::InitialValue::Filled(0))));
    compiler::CompileOptions options{.allow_out_of_memory = is_model};
    options.programs = {{.name = "inference"}};
    engine["autoReport.directory"] = directory_;
    options.engine = *MakeEngineOptions(engine);
    return CompileOrReport(g, options, /*cache_directory=*/"", /*progress=*/{});
  }
  bool HasProfile() const {
    return std::filesystem::exists(absl::StrCat(directory_, "/inference/profile.pop"));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  const std::string directory_ = absl::StrCat(
      ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ReportedCompilationTest, TheErrorSaysWhatWasTriedAndWhereTheProfileIs) {
  const auto compiled = CompileTooMuch({{"autoReport.all", "true"}});
  EXPECT_TRUE(absl::IsResourceExhausted(compiled.status()));
  EXPECT_THAT(std::string(compiled.status().message()),
              AllOf(HasSubstr("Out of memory"), HasSubstr("'w'"), HasSubstr("To try: "),
                    HasSubstr(absl::StrCat(" A profile is in ", directory_, "."))));
  EXPECT_TRUE(HasProfile());
}

TEST_F(ReportedCompilationTest, AProfileThatCannotBeWrittenIsSaid) {
  std::filesystem::create_symlink("/dev/null", directory_);
  const auto compiled = CompileTooMuch({{"autoReport.all", "true"}});
  EXPECT_TRUE(absl::IsResourceExhausted(compiled.status()));
  EXPECT_THAT(std::string(compiled.status().message()),
              AllOf(HasSubstr("Out of memory"), HasSubstr(" There is no profile: ")));
}

TEST_F(ReportedCompilationTest, NothingIsLeftIfNoProfileIsAskedFor) {
  const auto compiled = CompileTooMuch({});
  EXPECT_TRUE(absl::IsResourceExhausted(compiled.status()));
  EXPECT_THAT(std::string(compiled.status().message()), Not(HasSubstr("profile")));
  EXPECT_FALSE(HasProfile());
}

// Options.enableProfiling gives the option, too.
TEST_F(ReportedCompilationTest, TheOptionOfTheEngineDecidesAboutTheProfile) {
  const std::string option = "debug.allowOutOfMemory";
  for (const bool allowed : {false, true}) {
    const auto compiled =
        CompileTooMuch({{"autoReport.all", "true"}, {option, allowed ? "true" : "false"}});
    EXPECT_TRUE(absl::IsResourceExhausted(compiled.status()));
    EXPECT_EQ(HasProfile(), allowed);
  }
  const auto without_profile = CompileTooMuch({{option, "true"}});
  ASSERT_TRUE(without_profile.ok()) << without_profile.status();
  EXPECT_FALSE(without_profile->fits);
}

TEST_F(ReportedCompilationTest, AnIpuModelTakesIt) {
  EXPECT_TRUE(CompileTooMuch({{"autoReport.all", "true"}}, /*is_model=*/true).ok());
}

}  // namespace
}  // namespace vpod::poptorch
