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

#include "tools/vpod/arguments.h"

namespace vpod::tools {
namespace {

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
    EXPECT_THAT(advice, HasSubstr("recomputation (--recompute standard)"));
    EXPECT_THAT(advice, HasSubstr("activations off the chip (--off-chip-activations)"));
    EXPECT_THAT(advice, HasSubstr("(--ipus-per-replica, --schedule sharded)"));
    EXPECT_THAT(advice, Not(HasSubstr("(option ")));
  }
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
