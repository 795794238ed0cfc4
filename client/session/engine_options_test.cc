#include "client/session/engine_options.h"

#include <gtest/gtest.h>

namespace vpod::session {
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

TEST(EngineOptionsTest, OptionsOfTheRealLibraryAreIgnored) {
  const auto options = ParseEngineOptions(
      R"({"opt.enableMultiAccessCopies": "false", "debug.checkFinite": "true"})");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->check_finite);
}

TEST(EngineOptionsTest, MistakesAreNamed) {
  EXPECT_EQ(ParseEngineOptions("checkFinite").status().message(),
            "POPLAR_ENGINE_OPTIONS: 'checkFinite' is not a JSON object of strings");
  EXPECT_EQ(ParseEngineOptions(R"({"debug.checkFinite": true})").status().message(),
            "POPLAR_ENGINE_OPTIONS: option 'debug.checkFinite' is not a string");
  EXPECT_EQ(ParseEngineOptions(R"({"debug.checkFinite": "yes"})").status().message(),
            "POPLAR_ENGINE_OPTIONS: option 'debug.checkFinite' is 'yes', must be true or false");
}

}  // namespace
}  // namespace vpod::session
