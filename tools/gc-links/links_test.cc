#include "tools/gc-links/links.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "device/base/file.h"

namespace vpod::tools {
namespace {

// A link as both of its ends report it.
std::vector<telemetry::v1::LinkTelemetry> BothEnds(uint32_t lanes, const std::string& state) {
  telemetry::v1::LinkTelemetry near;
  near.set_host("127.10.0.1");
  near.set_pcie_id(1);
  near.set_name("NLC_W_0A");
  near.set_peer_host("127.10.0.2");
  near.set_peer_pcie_id(3);
  near.set_peer_name("NLC_W_1A");
  near.set_kind("IPU-Link");
  near.set_state(state);
  near.set_gen(4);
  near.set_lanes(lanes);
  telemetry::v1::LinkTelemetry far = near;
  far.set_host("127.10.0.2");
  far.set_pcie_id(3);
  far.set_name("NLC_W_1A");
  far.set_peer_host("127.10.0.1");
  far.set_peer_pcie_id(1);
  far.set_peer_name("NLC_W_0A");
  return {near, far};
}

TEST(LinksTest, TrainedLinksGiveThePublishedText) {
  const std::string golden = base::ReadFile("tools/gc-links/testdata/trained.json");
  EXPECT_EQ(LinksJson(BothEnds(8, "up")), golden);
  EXPECT_EQ(LinksText(BothEnds(8, "up")),
            "Links already trained - no training performed\noverall_result: passed\n");
  EXPECT_TRUE(AllTrained(BothEnds(8, "up")));
}

// Ends in processes of their own know nothing of each other.
TEST(LinksTest, EitherEndCanHaveTheFault) {
  for (size_t bad : {0, 1}) {
    auto links = BothEnds(8, "up");
    links[bad].set_lanes(4);
    links[bad].set_state("degraded");
    EXPECT_FALSE(AllTrained(links));
    EXPECT_EQ(LinksText(links),
              "Links already trained - no training performed\n"
              "127.10.0.1:1 NLC_W_0A -> 127.10.0.2:3 NLC_W_1A: failed (degraded, 4 of 8 lanes)\n"
              "overall_result: failed\n");
  }
}

TEST(LinksTest, FaultsThatKeepAllLanesFail) {
  for (const char* state : {"degraded", "swapped"}) {
    EXPECT_FALSE(AllTrained(BothEnds(8, state)));
    EXPECT_NE(
        LinksText(BothEnds(8, state)).find(absl::StrCat("failed (", state, ", 8 of 8 lanes)")),
        std::string::npos);
  }
}

TEST(LinksTest, FailedLinksAreNamedOnce) {
  const auto links = BothEnds(0, "down");
  EXPECT_FALSE(AllTrained(links));
  EXPECT_EQ(LinksText(links),
            "Links already trained - no training performed\n"
            "127.10.0.1:1 NLC_W_0A -> 127.10.0.2:3 NLC_W_1A: failed (down, 0 of 8 lanes)\n"
            "overall_result: failed\n");
  const auto json = nlohmann::json::parse(LinksJson(links));
  EXPECT_EQ(json["overall_result"], "failed");
  EXPECT_EQ(json["iterations_with_failures"], "1");
  ASSERT_EQ(json["iteration_0"]["links"].size(), 1u);
  EXPECT_EQ(json["iteration_0"]["links"][0]["from_pcie_id"], "127.10.0.1:1");
  EXPECT_EQ(json["iteration_0"]["links"][0]["channels"][0]["to"], "NLC_W_1A");
  EXPECT_EQ(json["iteration_0"]["links"][0]["channels"][0]["lanes"], "0");
}

}  // namespace
}  // namespace vpod::tools
