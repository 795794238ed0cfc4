#include "client/ipuof/gcda_options.h"

#include <gtest/gtest.h>

namespace vpod::ipuof {
namespace {

absl::StatusOr<GcdaOptions> Parse(const std::string& text) {
  return ParseGcdaOptions({{"GCDA_OPTIONS", text}});
}

TEST(GcdaOptionsTest, DefaultsMeasureUtilisationOnly) {
  const auto options = ParseGcdaOptions({});
  ASSERT_TRUE(options.ok());
  EXPECT_FALSE(options->enable_monitoring);
  EXPECT_TRUE(options->monitor_utilisation);
  EXPECT_TRUE(options->simulated_error.errors().empty());
}

TEST(GcdaOptionsTest, OptionsAreStringsOfAnObject) {
  const auto options = Parse(
      R"({"enableMonitoring" : "true", "monitorUtilisation":"false", "forceHSPPosted":"true",
          "configFile": "/x", "discoverUSBDevices":"false"})");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->enable_monitoring);
  EXPECT_FALSE(options->monitor_utilisation);
}

TEST(GcdaOptionsTest, VariablesOfSingleOptionsGoFirst) {
  const auto options = ParseGcdaOptions(
      {{"GCDA_OPTIONS", R"({"enableMonitoring":"false","monitorUtilisation":"true"})"},
       {"GCDA_MONITOR", "1"},
       {"GCDA_SUPPRESS_UTILISATION_MEASUREMENT", "1"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->enable_monitoring);
  EXPECT_FALSE(options->monitor_utilisation);
}

TEST(GcdaOptionsTest, SimulatedErrors) {
  const auto options = Parse(
      R"({"simulateSOCError.errorList":"\"IPUSOFTERR\", \"MCUSOFTERR\"",
          "simulateSOCError.triggerCount":"12","simulateSOCError.rearmOnReset":"true"})");
  ASSERT_TRUE(options.ok()) << options.status();
  ASSERT_EQ(options->simulated_error.errors_size(), 2);
  EXPECT_EQ(options->simulated_error.errors(0), "IPUSOFTERR");
  EXPECT_EQ(options->simulated_error.errors(1), "MCUSOFTERR");
  EXPECT_EQ(options->simulated_error.trigger_count(), 12u);
  EXPECT_TRUE(options->simulated_error.rearm_on_reset());
  EXPECT_EQ(Parse(R"({"simulateSOCError.errorList":"IPUSOFTERR",
                      "simulateSOCError.triggerCount":"1"})")
                ->simulated_error.errors(0),
            "IPUSOFTERR");
}

TEST(GcdaOptionsTest, WrongOnesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"enableMonitoring=true", "'enableMonitoring=true' is not a JSON object of strings"},
      {"[]", "'[]' is not a JSON object of strings"},
      {R"({"enableMonitoring":true})", "option 'enableMonitoring' is not a string"},
      {R"({"enableMonitoring":"1"})", "option 'enableMonitoring' is '1', must be true or false"},
      {R"({"enableMonitorin":"true"})", "unknown option 'enableMonitorin'"},
      {R"({"simulateSOCError.triggerCount":"-1"})",
       "option 'simulateSOCError.triggerCount' is '-1', must be a number of 1 or more"},
      {R"({"simulateSOCError.errorList":"IPUSOFTERR"})",
       "simulateSOCError.errorList needs simulateSOCError.triggerCount"},
      {R"({"simulateSOCError.errorList":"IPUSOFTERR,IPUHARDERR",
           "simulateSOCError.triggerCount":"1"})",
       "an error of 'simulateSOCError.errorList' is 'IPUHARDERR', must be one of SOC0PGMERR, "
       "SOC1PGMERR, ELINKPGMERR, HEXOVERFLOWERR, MCUPGMERR, SOC0SOFTERR, SOC1SOFTERR, "
       "ELINKSOFTERR, IPUSOFTERR, NMLINKDN0, NMLINKDN1, MCUSOFTERR"},
      {R"({"simulateSOCError.errorList":" , "})",
       "option 'simulateSOCError.errorList' names no error"},
  };
  for (const auto& [text, message] : cases)
    EXPECT_EQ(Parse(text).status().message(), std::string("GCDA_OPTIONS: ") + message);
}

}  // namespace
}  // namespace vpod::ipuof
