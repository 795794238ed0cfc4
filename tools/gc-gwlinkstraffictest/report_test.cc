#include "tools/gc-gwlinkstraffictest/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace vpod::tools {
namespace {

telemetry::v1::LinkTelemetry Link(const std::string& name, uint64_t tx,
                                  const std::string& state = "up") {
  telemetry::v1::LinkTelemetry link;
  link.set_host("127.10.0.1");
  link.set_data_ip("127.11.0.1");
  link.set_name(name);
  link.set_peer_host("127.10.0.2");
  link.set_peer_name(name == "GW_E" ? "GW_W" : "GW_E");
  link.set_kind("GW-Link");
  link.set_state(state);
  link.set_tx_bytes(tx);
  return link;
}

const std::set<std::string> kMachines = {"127.11.0.1"};

TEST(GwLinksTest, LinksThatCarriedDataPass) {
  LinkTraffic traffic;
  traffic.seconds = 1;
  const auto results =
      GwLinkResults({Link("GW_E", 1000), Link("GW_W", 5)},
                    {Link("GW_E", 1'000'001'000), Link("GW_W", 1'000'000'005)}, kMachines, traffic);
  EXPECT_TRUE(AllPassed(results));
  EXPECT_EQ(GwLinksText(results),
            "GW-Link 127.10.0.1 GW_E -> 127.10.0.2 GW_W: passed (8.0 Gbps)\n"
            "GW-Link 127.10.0.1 GW_W -> 127.10.0.2 GW_E: passed (8.0 Gbps)\n"
            "overall_result: passed\n");
  const auto json = nlohmann::json::parse(GwLinksJson(results));
  EXPECT_EQ(json["gw_links"][0]["status"], "passed");
  EXPECT_EQ(json["gw_links"][0]["gbps"], "8.0");
  EXPECT_EQ(json["overall_result"], "passed");
}

TEST(GwLinksTest, LinkThatIsUpAndCarriedNothingFails) {
  LinkTraffic traffic;
  traffic.seconds = 1;
  const std::vector<telemetry::v1::LinkTelemetry> before = {Link("GW_E", 0), Link("GW_W", 5)},
                                                  after = {Link("GW_E", 1000), Link("GW_W", 5)};
  const auto results = GwLinkResults(before, after, kMachines, traffic);
  EXPECT_FALSE(AllPassed(results));
  EXPECT_EQ(GwLinksText(results),
            "GW-Link 127.10.0.1 GW_E -> 127.10.0.2 GW_W: passed (0.0 Gbps)\n"
            "GW-Link 127.10.0.1 GW_W -> 127.10.0.2 GW_E: failed (it carried nothing)\n"
            "overall_result: failed\n");
  EXPECT_EQ(nlohmann::json::parse(GwLinksJson(results))["gw_links"][1]["status"], "failed");
  // Machines of other GCDs have tests of their own.
  EXPECT_TRUE(GwLinkResults(before, after, {"127.11.0.2"}, traffic).empty());
}

TEST(GwLinksTest, NoneIsFasterThanItsPort) {
  LinkTraffic traffic;
  traffic.seconds = 1e-6;
  const auto results = GwLinkResults({}, {Link("GW_E", 1'000'000'000)}, kMachines, traffic);
  EXPECT_DOUBLE_EQ(results[0].gbps, 85);  // 100 GbE, F16
}

TEST(GwLinksTest, BrokenLinksAndWrongDataFail) {
  LinkTraffic traffic;
  traffic.seconds = 1;
  EXPECT_FALSE(
      AllPassed(GwLinkResults({}, {Link("GW_E", 9), Link("GW_W", 0, "down")}, kMachines, traffic)));
  EXPECT_FALSE(AllPassed({}));
  traffic.errors = 1;
  EXPECT_FALSE(AllPassed(GwLinkResults({}, {Link("GW_E", 9)}, kMachines, traffic)));
}

}  // namespace
}  // namespace vpod::tools
