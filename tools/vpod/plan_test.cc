#include "tools/vpod/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/compiler/compiler.h"
#include "client/compiler/executable_file.h"
#include "client/graph/graph.h"
#include "tools/vpod/arguments.h"
#include "tools/vpod/plan_arguments.h"

namespace vpod::tools {
namespace {

using testing::AnyOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// Advice is given in the words of the command, and each flag in it is one that the command has.
TEST(PlanTest, AdviceNamesFlagsOfTheCommand) {
  plan::PlanRequest request;
  request.network.name = "resnet18";
  request.network.micro_batch = 64;
  request.optimizer = compiler::AdamOptions{};
  for (const PlanFormat format : {PlanFormat::kTable, PlanFormat::kJson}) {
    const auto text = PlanText(request, {.pods = {4}}, format, /*explain=*/true);
    ASSERT_TRUE(text.ok()) << text.status();
    const std::string advice = text->substr(std::min(text->find("To try: "), text->size()));
    for (const char* text :
         {"recomputation (--recompute standard)",
          "activations off the chip (--off-chip-activations)", "(--micro-batch, --accumulation)",
          "(--ipus-per-replica, --schedule sharded)"}) {
      EXPECT_THAT(advice, AnyOf(HasSubstr(absl::StrCat(text, ": fits")),
                                HasSubstr(absl::StrCat(text, ": not alone"))));
    }
    EXPECT_THAT(advice, Not(HasSubstr("CompileOptions")));
    EXPECT_THAT(advice, Not(HasSubstr("not tried")));
  }
}

// What the plan with the flags says is what the advice has said of them.
TEST(PlanTest, AdviceIsTried) {
  plan::PlanRequest request;
  request.network.name = "resnet18";
  request.network.micro_batch = 64;
  const auto why = plan::WhyNotFit(request, {.recomputation = "recompute"});
  ASSERT_TRUE(why.ok()) << why.status();
  const auto says = [&](const std::string& advice, plan::PlanRequest changed) {
    const auto plan = plan::MakePlan(changed);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_THAT(*why, HasSubstr(absl::StrCat(advice, plan->fits.ok() ? ": fits" : ": not alone")));
  };
  plan::PlanRequest recomputes = request, smaller = request, off_chip = request, split = request;
  recomputes.recomputation = compiler::Recomputation::kStandard;
  says("recomputation (recompute)", recomputes);
  smaller.network.micro_batch = 32;
  smaller.accumulation = 2;
  says("gradient accumulation (shapes of inputs, ProgramSpec::accumulation)", smaller);
  off_chip.off_chip_activations = true;
  says("activations off the chip (CompileOptions::off_chip_activations)", off_chip);
  split.network.ipus = 2;
  split.network.stages = {"layer3.0"};
  split.schedule = compiler::Schedule::kSharded;
  says("schedule: kSharded)", split);
  request.network.micro_batch = 1;
  const auto fits = plan::WhyNotFit(request, {});
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(*fits, "");
}

// What a function writes to a terminal.
std::string OnTerminal(const std::function<void()>& work) {
  int terminal = -1, stream = -1;
  EXPECT_EQ(openpty(&terminal, &stream, nullptr, nullptr, nullptr), 0);
  std::string text;
  std::thread reader([&] {
    char bytes[512];
    // A read fails when nobody has the terminal open any more.
    for (ssize_t n; (n = read(terminal, bytes, sizeof(bytes))) > 0;)
      text.append(bytes, static_cast<size_t>(n));
  });
  const int before = dup(STDERR_FILENO);
  dup2(stream, STDERR_FILENO);
  close(stream);
  work();
  dup2(before, STDERR_FILENO);
  close(before);
  reader.join();
  close(terminal);
  return text;
}

TEST(PlanTest, ASearchShowsItsProgressAtATerminal) {
  plan::PlanRequest request;
  request.network.name = "resnet18";
  request.network.image_size = 32;
  request.pod = 4;
  const auto search = [&] { EXPECT_TRUE(SearchText(request, 8, PlanFormat::kTable, false).ok()); };
  setenv("TERM", "xterm", 1);
  const std::string shown = OnTerminal(search);
  EXPECT_THAT(shown, ContainsRegex("^\r.\\[Ksearching: 0 plans in 0s"));
  EXPECT_THAT(shown, ContainsRegex("searching: [1-9][0-9]* plans in "));
  EXPECT_THAT(shown, EndsWith("\r\x1b[K"));
  setenv("TERM", "dumb", 1);
  EXPECT_EQ(OnTerminal(search), "");
}

// An executable that trains on four replicas of two IPUs, and one for any number of replicas.
std::string FileFor(bool trains) {
  graph::Graph graph;
  graph::Tensor x = graph.Input("x", {program::v1::FLOAT32, {4, 64}});
  for (uint32_t ipu : {0, 1}) {
    graph.SetIpu(ipu);
    x = graph.MatMul(x, graph.Variable(absl::StrCat("w", ipu), {program::v1::FLOAT32, {64, 64}},
                                       graph::InitialValue::Filled(1)));
  }
  graph.Output("y", x);
  compiler::CompileOptions options{
      .ipus_per_replica = 2, .total_replicas = 4, .programs = {{.name = "run"}}};
  if (trains) {
    options.programs[0].loss = graph.Mean(x);
    options.programs[0].optimizer = compiler::SgdOptions{};
  }
  const auto compiled = compiler::Compile(graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  const std::string path = absl::StrCat(testing::TempDir(), "/", trains, ".vipuexe");
  EXPECT_TRUE(
      compiler::WriteExecutableFile(path, std::string(64, '0'), *compiled->executable).ok());
  return path;
}

absl::StatusOr<PlanOutput> PlanOf(const std::vector<std::string>& words) {
  Arguments arguments;
  EXPECT_EQ(ParseArguments(words, arguments), std::nullopt);
  return RunPlan(arguments.plan);
}

TEST(PlanTest, AFileIsPlannedForTheReplicasThatItIsFor) {
  const std::string file = FileFor(/*trains=*/true);
  const auto plan = PlanOf({"plan", file, "--json"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->text, AllOf(HasSubstr("\"ipus\": 8"), HasSubstr("\"replicas\": 4")));
  const std::string others = "a POD of 64 IPUs has 32 replicas, but the executable is for 4";
  const auto some = PlanOf({"plan", file, "--pod", "8,64", "--json"});
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->text, plan->text);
  EXPECT_THAT(some->notes, testing::ElementsAre("left out: " + others));
  EXPECT_EQ(PlanOf({"plan", file, "--pod", "64"}).status().message(), others);
  // Nothing depends on the number.
  const auto any = PlanOf({"plan", FileFor(/*trains=*/false), "--json"});
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_THAT(any->text, AllOf(HasSubstr("\"ipus\": 16"), HasSubstr("\"replicas\": 8")));
}

TEST(PlanTest, WhatIsNeitherAModelNorAFile) {
  Arguments arguments;
  testing::internal::CaptureStderr();
  EXPECT_EQ(ParseArguments({"plan", "nosuch.bin"}, arguments), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("vpod: error: 'nosuch.bin' is neither a model nor a file; models are "
                        "bert-base, "));
}

TEST(PlanTest, FlagsOfAdviceAreThoseOfTheCommand) {
  Arguments arguments;
  EXPECT_EQ(ParseArguments({"plan", "resnet18", "--accumulation", "2", "--ipus-per-replica", "1",
                            "--off-chip-activations", "--off-chip-optimizer-state",
                            "--off-chip-weights", "--off-chip-accumulators", "--memory-proportion",
                            "0.5", "--recompute", "all", "--tensor-sharding"},
                           arguments),
            std::nullopt);
}

}  // namespace
}  // namespace vpod::tools
