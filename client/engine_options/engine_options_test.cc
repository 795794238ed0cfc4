#include "client/engine_options/engine_options.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace vpod {
namespace {

TEST(EngineOptionsTest, CheckFinite) {
  EXPECT_FALSE(ParseEngineOptions("")->check_finite);
  EXPECT_FALSE(ParseEngineOptions("{}")->check_finite);
  EXPECT_TRUE(ParseEngineOptions(R"({"debug.checkFinite": "true"})")->check_finite);
  EXPECT_FALSE(ParseEngineOptions(R"({"debug.checkFinite": "false"})")->check_finite);
}

TEST(EngineOptionsTest, Sharing) {
  EXPECT_TRUE(ParseEngineOptions("")->sharing);
  EXPECT_FALSE(ParseEngineOptions(R"({"vpod.sharing": "false"})")->sharing);
}

TEST(EngineOptionsTest, Reports) {
  const auto all =
      ParseEngineOptions(R"({"autoReport.all": "true", "autoReport.directory": "./report"})");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->report.graph && all->report.execution && all->allow_out_of_memory);
  EXPECT_EQ(all->report.directory, "./report");
  EXPECT_EQ(all->report.runs, 2u);
  const auto graph = ParseEngineOptions(
      R"({"autoReport.outputGraphProfile": "true", "debug.allowOutOfMemory": "false"})");
  EXPECT_TRUE(graph->report.graph && !graph->report.execution && !graph->allow_out_of_memory);
  const auto but_one = ParseEngineOptions(
      R"({"autoReport.all": "true", "autoReport.outputExecutionProfile": "false",
          "autoReport.executionProfileProgramRunCount": "5"})");
  EXPECT_TRUE(but_one->report.graph && !but_one->report.execution);
  EXPECT_EQ(but_one->report.runs, 5u);
}

// A single key wins over `all`, whatever `all` is.
TEST(EngineOptionsTest, SingleReportsBesideAll) {
  const auto expect = [](const std::string& options, bool graph, bool execution) {
    const auto parsed = ParseEngineOptions("{" + options + "}");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->report.graph, graph) << options;
    EXPECT_EQ(parsed->report.execution, execution) << options;
    EXPECT_EQ(parsed->allow_out_of_memory, graph) << options;
  };
  const std::string all = R"("autoReport.all": "true", )", none = R"("autoReport.all": "false", )",
                    graph = R"("autoReport.outputGraphProfile": )",
                    execution = R"("autoReport.outputExecutionProfile": )";
  expect(graph + R"("true")", true, false);
  expect(execution + R"("true")", true, true);
  expect(none + graph + R"("true")", true, false);
  expect(none + execution + R"("true")", true, true);
  expect(all + execution + R"("false")", true, false);
  expect(all + graph + R"("false")", false, false);
  expect(graph + R"("false", )" + execution + R"("true")", true, true);
  expect(graph + R"("false", )" + execution + R"("false")", false, false);
}

TEST(EngineOptionsTest, UnknownOnesAreListed) {
  const auto options = ParseEngineOptions(
      R"({"autoReport.al": "true", "prng.seed": "1", "debug.instrumentCompute": "true"})");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->unknown, std::vector<std::string>{"autoReport.al"});
  EXPECT_EQ(options->all.size(), 3u);
}

TEST(EngineOptionsTest, OptionsOfTheRealLibraryAreAccepted) {
  const auto options = ParseEngineOptions(
      R"({"opt.enableMultiAccessCopies": "false", "debug.checkFinite": "true"})");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->check_finite);
}

TEST(EngineOptionsTest, ProgramsMayGiveThem) {
  const auto options = MakeEngineOptions({{"debug.checkFinite", "true"}, {"no.such", "1"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->check_finite);
  EXPECT_EQ(options->all.at("no.such"), "1");
  EXPECT_EQ(options->unknown, std::vector<std::string>{"no.such"});
  EXPECT_EQ(options->source, "engine options");
  EXPECT_EQ(MakeEngineOptions({{"vpod.sharing", "2"}}, "options").status(),
            absl::InvalidArgumentError("options: option 'vpod.sharing' is '2', must be true or "
                                       "false"));
}

TEST(EngineOptionsTest, MistakesAreNamed) {
  EXPECT_EQ(ParseEngineOptions("checkFinite").status().message(),
            "POPLAR_ENGINE_OPTIONS: 'checkFinite' is not a JSON object of strings");
  EXPECT_EQ(ParseEngineOptions(R"({"debug.checkFinite": true})").status().message(),
            "POPLAR_ENGINE_OPTIONS: option 'debug.checkFinite' is not a string");
  EXPECT_EQ(ParseEngineOptions(R"({"autoReport.directory": ""})").status().message(),
            "POPLAR_ENGINE_OPTIONS: option 'autoReport.directory' is empty, must name a directory");
  for (const char* runs : {"-1", "8388609", "4294967296"}) {
    EXPECT_EQ(ParseEngineOptions(absl::StrCat(R"({"autoReport.executionProfileProgramRunCount": ")",
                                              runs, R"("})"))
                  .status()
                  .message(),
              absl::StrCat(
                  "POPLAR_ENGINE_OPTIONS: option 'autoReport.executionProfileProgramRunCount' is '",
                  runs, "', must be a whole number from 0 to 8388608"));
  }
  EXPECT_EQ(ParseEngineOptions(R"({"debug.checkFinite": "yes"})").status().message(),
            "POPLAR_ENGINE_OPTIONS: option 'debug.checkFinite' is 'yes', must be true or false");
}

}  // namespace
}  // namespace vpod
