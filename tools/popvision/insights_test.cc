// Insights name what limits a program, with advice that it does not follow already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tools/popvision/test_profiles.h"
#include "tools/popvision/views.h"

namespace vpod::popvision {
namespace {

using compiler::Recomputation;
using program::v1::FLOAT16;
using program::v1::FLOAT32;
using program::v1::UINT8;
using testing::HasSubstr;
using testing::Not;

TEST(InsightsTest, TheyNameWhatLimits) {
  const std::string text = Text(Insights(Pipeline()));
  EXPECT_THAT(text, testing::ContainsRegex("IPU [01] is idle for [0-9]+ % of a run"));
  EXPECT_THAT(text, Not(HasSubstr("counter 'pipeline'")));

  const pva::Report again = ProfileOf({.ipus = 1, .recomputation = Recomputation::kAll});
  EXPECT_THAT(Text(Insights(again)), HasSubstr("computing activations again"));
}

// The IPUs of a pipeline work at the same time, even if one of them has little to do.
TEST(InsightsTest, OnlyIpusThatWaitForEachOtherTakeTurns) {
  const std::string turns = "The IPUs take turns", move = "To try: move work from IPU 1, the ";
  const auto check = [&](const NetworkOptions& options, bool take_turns) {
    pva::Report report = ProfileOf(options);
    const std::string with_steps = Text(Insights(report));
    for (auto& steps : report.steps) steps.clear();  // as of a run that is too long for a profile
    for (const std::string& text : {with_steps, Text(Insights(report))}) {
      EXPECT_THAT(text, HasSubstr(take_turns ? turns : move));
      EXPECT_THAT(text, Not(HasSubstr(take_turns ? move : turns)));
    }
  };
  check({.split = "layer1.0"}, false);
  check({.schedule = compiler::Schedule::kSharded}, true);
  check({.schedule = compiler::Schedule::kSequential}, true);
}

TEST(InsightsTest, TheyFollowWhatIsInMemory) {
  const std::string waiting = "Results of the forward pass that wait for their gradients take ",
                    kept = Text(Insights(ProfileOf({.ipus = 1, .micro_batch = 192})));
  EXPECT_THAT(kept, HasSubstr("IPU 0 is out of memory: "));
  EXPECT_THAT(kept, testing::ContainsRegex(
                        "Float32 takes .* To try: float16 \\(types of inputs and variables\\)"));
  EXPECT_THAT(
      kept,
      testing::ContainsRegex(
          waiting + ".* To try: recomputation \\(CompileOptions::recomputation: kStandard\\), or "
                    "activations off the chip"));
  EXPECT_THAT(kept, testing::ContainsRegex("All values of a micro-batch take .* To try: a smaller "
                                           "micro-batch with more gradient accumulation"));
  EXPECT_THAT(kept, Not(HasSubstr("The state of the optimiser")));

  const std::string half =
      Text(Insights(ProfileOf({.ipus = 1, .micro_batch = 384, .type = FLOAT16})));
  EXPECT_THAT(half, HasSubstr(waiting));
  EXPECT_THAT(half, Not(HasSubstr("Float32 takes ")));

  const std::string norms = Text(Insights(
      ProfileOf({.ipus = 1, .micro_batch = 192, .recomputation = Recomputation::kNormOnly})));
  EXPECT_THAT(norms,
              testing::ContainsRegex(
                  waiting +
                  ".* To try: more recomputation \\(CompileOptions::recomputation: kStandard\\)"));
  const std::string all = Text(
      Insights(ProfileOf({.ipus = 1, .micro_batch = 384, .recomputation = Recomputation::kAll})));
  EXPECT_THAT(all, Not(HasSubstr(waiting)));

  const std::string adam = Text(
      Insights(ProfileOf({.ipus = 1, .micro_batch = 96, .optimizer = compiler::AdamOptions{}})));
  EXPECT_THAT(adam, HasSubstr("The state of the optimiser takes "));
}

TEST(InsightsTest, TheyNameTheOptionsOfTheProgram) {
  model::OptionNames names = model::NoOptions();
  names.recomputation = "--recompute standard";
  pva::Report report = ProfileOf({.ipus = 1, .micro_batch = 192, .option_names = names});
  const std::string named = Text(Insights(report));
  EXPECT_THAT(named, HasSubstr("To try: recomputation (--recompute standard)."));
  EXPECT_THAT(named, HasSubstr("None of this was tried: a profile is read without its program."));
  EXPECT_THAT(named, Not(HasSubstr("Float32 takes ")));
  EXPECT_THAT(named, Not(HasSubstr("CompileOptions")));
  // A profile of an earlier version does not say how they are spelled.
  report.meta.erase("memoryOptions");
  EXPECT_THAT(Text(Insights(report)), HasSubstr("(CompileOptions::recomputation: kStandard)"));
}

TEST(InsightsTest, APageBeginsWithWhatIsWrong) {
  pva::Report report = ProfileOf({.ipus = 1, .micro_batch = 192});
  report.meta["timestamp"] = "1795955400";
  const PageHead head = HeadOf(report);
  ASSERT_EQ(head.problems.size(), 1u);
  EXPECT_THAT(head.problems[0], HasSubstr("IPU 0 is out of memory: "));
  for (const std::string& part : {report.program_name(), report.path,
                                  std::string("2026-11-29 12:30 UTC"), report.meta.at("version")}) {
    EXPECT_THAT(head.title, HasSubstr(part));
    EXPECT_THAT(head.origin, HasSubstr(part));
  }
  EXPECT_TRUE(HeadOf(Pipeline()).problems.empty());
  report.first_run_lost = 3;
  EXPECT_EQ(HeadOf(report).problems.size(), 2u);
}

TEST(InsightsTest, NothingIsAdvisedWhereThereIsRoom) {
  const auto notes = Find(Insights(Pipeline()), "Memory")["notes"];
  ASSERT_EQ(notes.size(), 2u);
  for (const std::string note : notes)
    EXPECT_THAT(note, testing::ContainsRegex("^IPU [01] needs .* MB; its fullest tile, [0-9]+, "
                                             "uses [0-9]+ % of its memory: there is room for "
                                             "more\\.$"));
  EXPECT_EQ(PercentText(0.4), "less than 1 %");
  EXPECT_EQ(PercentText(54.4), "54 %");
}

TEST(InsightsTest, BytesAreNotAdvisedToThoseWhoHaveThem) {
  const auto insights = [](program::v1::DataType type) {
    graph::Graph g;
    g.Output("mean", g.Mean(g.Cast(g.Input("images", {type, {16, 4096}}), FLOAT32)));
    const auto compiled = compiler::Compile(g, {.programs = {{.name = "run"}}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    return Text(Insights(ProfileOf(*compiled)));
  };
  const std::string host = "IPU 0 spends [0-9]+ % of a run with host streams. To try: ";
  EXPECT_THAT(insights(FLOAT16), testing::ContainsRegex(host + "images as bytes instead of floats, "
                                                               "fewer outputs, larger"));
  EXPECT_THAT(insights(UINT8), testing::ContainsRegex(host + "fewer outputs, larger"));
}

}  // namespace
}  // namespace vpod::popvision
