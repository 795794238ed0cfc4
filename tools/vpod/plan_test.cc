#include "tools/vpod/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tools/vpod/arguments.h"

namespace vpod::tools {
namespace {

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
