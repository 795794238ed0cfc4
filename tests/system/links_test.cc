// Links of a POD: what tools show of them, traffic tests on them, and faults.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/arch/topology.h"
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
  EXPECT_TRUE(absl::StrContains(far.err, "device 4 is not a single IPU; single IPUs are 0 to 3"))
      << far.err;
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

size_t CountOf(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
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
  for (const std::string options : {"-i 3", "-i 3 --single-ipu"}) {
    SCOPED_TRACE(options);
    const std::string test = "_gcd$gcd.conf gc-gwlinkstraffictest " + options;
    const Outcome both =
        pod.Shell("for gcd in 0 1; do IPUOF_CONFIG_PATH=" + directory + "pa1x2" + test +
                  " & pids+=($!); done; wait ${pids[0]} && wait ${pids[1]}");
    EXPECT_EQ(both.code, 0) << both.err << both.out;
    EXPECT_EQ(CountOf(both.out, ": passed ("), 4u) << both.out;
    EXPECT_FALSE(absl::StrContains(both.out, "failed")) << both.out;
  }
}

// --- test cluster ---

// "ag5 IPU2.NLC_W_0A"
std::string NameOf(const arch::LinkEnd& end) {
  return absl::StrCat("ag", end.machine, " ", arch::PortName(end.port));
}

// The links that `test cluster` finds wrong; the exit code must tell the same.
std::set<std::string> BadLinks(TestPod& pod, const std::string& cluster) {
  const Outcome tested = pod.Run({"vipu-admin", "test", "cluster", cluster, "--showjson"});
  const json rows = json::parse(tested.out, nullptr, false);
  EXPECT_EQ(rows.size(), 6u) << tested.out << tested.err;
  std::set<std::string> links;
  for (const json& row : rows) {
    for (const std::string failure : row["failures"])
      links.insert(failure.substr(0, failure.find(':')));
  }
  EXPECT_EQ(tested.code, links.empty() ? 0 : 1) << tested.err;
  return links;
}

void Inject(TestPod& pod, const arch::LinkEnd& end, const std::vector<std::string>& fault) {
  std::vector<std::string> words = {"vipu-admin", "inject", "agent",
                                    absl::StrCat("ag", end.machine)};
  words.insert(words.end(), {"--link", arch::PortName(end.port), "--fault"});
  words.insert(words.end(), fault.begin(), fault.end());
  const Outcome injected = pod.Run(words);
  EXPECT_EQ(injected.code, 0) << injected.err;
}

void Reset(TestPod& pod, uint32_t machine) {
  const Outcome reset = pod.Run({"vipu-admin", "reset", "agent", absl::StrCat("ag", machine)});
  EXPECT_EQ(reset.code, 0) << reset.err;
}

// Links in turn, cut at one end or the other, are found, and nothing else is; the names are those
// of the end that comes first. Every 13th link is tried, so that all kinds are and all machines'
// turn comes; VPOD_TEST_EVERY_LINK=1 tries all 352.
TEST(LinksTest, ClusterTestNamesEveryLinkOfAPod64ThatIsDown) {
  TestPod pod(64);
  EXPECT_EQ(BadLinks(pod, "c64"), std::set<std::string>{});
  const arch::ClusterShape shape = *arch::MakeShape(16, 1, "torus", "none");
  const size_t step = std::getenv("VPOD_TEST_EVERY_LINK") == nullptr ? 13 : 1;
  size_t links = 0, tried = 0;
  for (uint32_t machine = 0; machine < shape.machines; ++machine) {
    arch::ForEachPort(shape, machine, [&](const arch::Link& link) {
      if (!link.named_from_near() || links++ % step != 0) return;
      const arch::LinkEnd& cut = ++tried % 2 == 0 ? link.far : link.near;
      Inject(pod, cut, {"link-down"});
      EXPECT_EQ(BadLinks(pod, "c64"), std::set<std::string>{NameOf(link.near)});
      Reset(pod, cut.machine);
    });
  }
  EXPECT_EQ(links, 352u);
  EXPECT_EQ(BadLinks(pod, "c64"), std::set<std::string>{});
}

TEST(LinksTest, ClusterTestNamesLinksWithErrorsAndSwappedCables) {
  TestPod pod(16, {"--agents", "processes"});
  // One inside a machine, one between two.
  for (const char* name : {"IPU2.NLC_W_0B", "IPU1.NLC_W_0A"}) {
    Inject(pod, {1, *arch::FindPort(name)}, {"link-errors", "--rate", "5"});
    EXPECT_EQ(BadLinks(pod, "c16"), std::set<std::string>{absl::StrCat("ag1 ", name)});
    Reset(pod, 1);
    Inject(pod, {1, *arch::FindPort(name)}, {"link-corrupts"});
    EXPECT_EQ(BadLinks(pod, "c16"), std::set<std::string>{absl::StrCat("ag1 ", name)});
    Reset(pod, 1);
  }
  Inject(pod, {1, *arch::FindPort("IPU1.NLC_W_0A")}, {"cable-swapped"});
  EXPECT_EQ(BadLinks(pod, "c16"), std::set<std::string>{"ag1 IPU1.NLC_W_0A"});
  Reset(pod, 1);
  EXPECT_EQ(BadLinks(pod, "c16"), std::set<std::string>{});
}

// With a process for each machine, neither end of a cable knows the other's faults. These are all
// cables between the first two machines, faulty at the second.
TEST(LinksTest, GcLinksShowsFaultsOfEitherEnd) {
  TestPod pod(16, {"--agents", "processes"});
  pod.CreatePartition("p16", 16);
  const auto show = [&] {
    return pod.Run(
        {"env", "IPUOF_CONFIG_PATH=" + pod.home() + "/ipuof.conf.d/p16.conf", "gc-links"});
  };
  EXPECT_EQ(show().code, 0);
  Inject(pod, {1, *arch::FindPort("IPU3.NLC_W_1A")}, {"link-down"});
  Inject(pod, {1, *arch::FindPort("IPU3.NLC_W_1B")}, {"link-errors", "--rate", "5"});
  Inject(pod, {1, *arch::FindPort("IPU2.NLC_E_1A")}, {"link-corrupts"});
  Inject(pod, {1, *arch::FindPort("IPU2.NLC_E_1B")}, {"cable-swapped"});
  const Outcome links = show();
  EXPECT_EQ(links.code, 1) << links.err;
  for (const char* row :
       {"NLC_W_1A: failed (down, 0 of 8 lanes)\n", "NLC_W_1B: failed (degraded, 4 of 8 lanes)\n",
        "NLC_E_1A: failed (corrupting, 8 of 8 lanes)\n",
        "NLC_E_1B: failed (swapped, 8 of 8 lanes)\n"}) {
    EXPECT_TRUE(absl::StrContains(links.out, row)) << row << links.out;
  }
  EXPECT_TRUE(absl::StrContains(links.out, "overall_result: failed")) << links.out;
}

}  // namespace
}  // namespace vpod::testing
