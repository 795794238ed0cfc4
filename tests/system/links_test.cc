// Links of a POD: what tools show of them, traffic tests on them, and faults.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "tests/support/pod.h"

namespace vpod::testing {
namespace {

using nlohmann::json;

TEST(LinksTest, ToolsShowAndTestTheLinksOfAPartition) {
  TestPod pod;
  pod.CreatePartition("p4", 4);
  const Outcome links = pod.Run({"gc-links", "-j"});
  EXPECT_EQ(links.code, 0) << links.err;
  EXPECT_EQ(json::parse(links.out)["overall_result"], "passed");

  const Outcome pair =
      pod.Run({"gc-iputraffictest", "--device0", "2", "--device1", "3", "-i", "10", "-j"});
  ASSERT_EQ(pair.code, 0) << pair.err;
  const json test = json::parse(pair.out)["tile_to_tile"];
  EXPECT_EQ(test["errors"], "0");
  EXPECT_EQ(test["kbytes_transferred"], "40960");
  EXPECT_NEAR(std::stod(test["gbps"].get<std::string>()), 423.3, 0.05 * 423.3);
  EXPECT_EQ(test["boards"].size(), 1u);

  const Outcome all = pod.Run({"gc-iputraffictest", "--all-links", "-i", "2", "--wall"});
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_TRUE(absl::StrContains(all.out, "errors: 0\n")) << all.out;
  EXPECT_TRUE(absl::StrContains(all.out, "wall_gbps: ")) << all.out;
  EXPECT_EQ(pod.Run({"gc-iputraffictest", "--device0", "0", "--single-ipu", "-i", "2"}).code, 0);
  EXPECT_EQ(pod.Run({"gc-iputraffictest", "--device0", "0", "--loopback", "-i", "2"}).code, 0);

  const Outcome same = pod.Run({"gc-iputraffictest", "--device0", "1", "--device1", "1"});
  EXPECT_EQ(same.code, 2);
  EXPECT_TRUE(absl::StrContains(same.err, "must differ")) << same.err;
  const Outcome far = pod.Run({"gc-iputraffictest", "--device0", "1", "--device1", "4"});
  EXPECT_EQ(far.code, 1);
  EXPECT_TRUE(absl::StrContains(far.err, "device 4 is no single IPU; they are 0 to 3")) << far.err;
  const Outcome gw = pod.Run({"gc-gwlinkstraffictest"});
  EXPECT_EQ(gw.code, 1);
  EXPECT_TRUE(absl::StrContains(gw.err, "has no GW-Links")) << gw.err;
}

TEST(LinksTest, RunningTestEndsAtCtrlC) {
  TestPod pod(4);
  pod.CreatePartition("p4", 4);
  const auto test =
      pod.Start({"gc-iputraffictest", "--device0", "0", "--device1", "1", "-i", "2", "--forever"});
  ASSERT_TRUE(test->WaitForOutput("errors: 0"));
  test->Signal(SIGINT);
  EXPECT_EQ(test->Wait().code, 0);
}

// One machine a rack, two racks, a process for each GCD.
TEST(LinksTest, GwLinksCarryDataBetweenRacks) {
  TestPod pod(8);
  pod.Shell(
      "vipu-admin remove cluster c8; vipu-admin create cluster cl1x2 --agents "
      "$(vipu-admin list agents | awk -F'|' '/ag/ {gsub(/ /,\"\",$1); printf s $1; s=\",\"}') "
      "--num-ipulinkdomains 2 --cluster-topology looped");
  const Outcome created = pod.Run({"vipu-admin", "create", "partition", "pa1x2", "--size", "8",
                                   "--num-gcds", "2", "--gw-routing", "ring"});
  ASSERT_EQ(created.code, 0) << created.err;
  const std::string directory = pod.home() + "/ipuof.conf.d/";
  const Outcome both =
      pod.Shell("IPUOF_CONFIG_PATH=" + directory +
                "pa1x2_gcd0.conf gc-gwlinkstraffictest -i 3 & "
                "IPUOF_CONFIG_PATH=" +
                directory + "pa1x2_gcd1.conf gc-gwlinkstraffictest -i 3 && wait $!");
  EXPECT_EQ(both.code, 0) << both.err << both.out;
  size_t passed = 0;
  for (size_t at = 0; (at = both.out.find(": passed (", at)) != std::string::npos; ++at) ++passed;
  EXPECT_GE(passed, 4u) << both.out;
  EXPECT_FALSE(absl::StrContains(both.out, "failed")) << both.out;
}

}  // namespace
}  // namespace vpod::testing
