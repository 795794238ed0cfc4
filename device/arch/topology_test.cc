#include "device/arch/topology.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

namespace vpod::arch {
namespace {

ClusterShape Shape(uint32_t machines, uint32_t ilds = 1, const std::string& topology = "mesh",
                   const std::string& cluster_topology = "none") {
  return *MakeShape(machines, ilds, topology, cluster_topology);
}

struct Counts {
  size_t ipu_links = 0, ipu_cables = 0, sync_links = 0, gw_links = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

Counts CountLinks(const ClusterShape& shape) {
  Counts counts;
  for (uint32_t machine = 0; machine < shape.machines; ++machine) {
    ForEachPort(shape, machine, [&](const Link& link) {
      if (!link.named_from_near()) return;
      counts.ipu_links += link.kind == LinkKind::kIpuLink;
      counts.ipu_cables += link.kind == LinkKind::kIpuLink && link.between_machines();
      counts.sync_links += link.kind == LinkKind::kSyncLink;
      counts.gw_links += link.kind == LinkKind::kGwLink;
    });
  }
  return counts;
}

TEST(TopologyTest, PodsHaveTheLinksOfTheirShape) {
  // 20 IPU-Links a machine (6 on each rung, 2 up from each IPU), fewer by 4 where a ladder ends.
  EXPECT_EQ(CountLinks(Shape(1)), (Counts{16, 0, 0, 0}));
  EXPECT_EQ(CountLinks(Shape(4)), (Counts{76, 12, 6, 0}));
  EXPECT_EQ(CountLinks(Shape(16, 1, "torus")), (Counts{320, 64, 32, 0}));
  EXPECT_EQ(CountLinks(Shape(32, 2, "torus", "looped")), (Counts{640, 128, 64, 32}));
  EXPECT_EQ(CountLinks(Shape(64, 4, "torus", "looped")), (Counts{1280, 256, 128, 64}));
  EXPECT_EQ(CountLinks(Shape(64, 4, "torus", "mesh")), (Counts{1280, 256, 128, 48}));
  EXPECT_EQ(CountLinks(Shape(64, 4, "torus", "switched")), (Counts{1280, 256, 128, 128}));
  EXPECT_EQ(CountLinks(Shape(16384, 1024, "torus", "looped")),
            (Counts{327680, 65536, 32768, 16384}));
  // A torus of one machine has nothing to close.
  EXPECT_EQ(CountLinks(Shape(2, 2, "torus", "looped")), (Counts{32, 0, 0, 2}));
  EXPECT_EQ(CountLinks(Shape(2, 1, "torus")), (Counts{40, 8, 4, 0}));
}

TEST(TopologyTest, EveryLinkIsFoundFromBothEnds) {
  for (const ClusterShape& shape :
       {Shape(4), Shape(16, 1, "torus"), Shape(2, 1, "torus"), Shape(6, 3, "torus", "looped"),
        Shape(6, 3, "mesh", "mesh"), Shape(2, 2, "mesh", "looped")}) {
    for (uint32_t machine = 0; machine < shape.machines; ++machine) {
      ForEachPort(shape, machine, [&](const Link& link) {
        EXPECT_EQ(PeerOf(shape, link.far), link.near) << machine << " " << PortName(link.near.port);
        EXPECT_EQ(KindOfPort(link.far.port), link.kind);
        EXPECT_NE(link.near, link.far);
      });
    }
  }
}

TEST(TopologyTest, CablesRunBetweenMachines) {
  const ClusterShape shape = Shape(6, 3, "torus", "looped");
  for (uint32_t machine = 0; machine < shape.machines; ++machine) {
    ForEachPort(shape, machine, [&](const Link& link) {
      EXPECT_EQ(link.between_machines(), IsCablePort(link.near.port)) << PortName(link.near.port);
      EXPECT_EQ(IsCablePort(SwappedPort(link.near.port)), IsCablePort(link.near.port));
    });
  }
}

TEST(TopologyTest, TorusClosesAndMeshEnds) {
  const uint32_t up = *FindPort("IPU1.NLC_W_0A"), down = *FindPort("IPU3.NLC_W_1A");
  EXPECT_EQ(PeerOf(Shape(16, 1, "torus"), {15, up}), (LinkEnd{0, down}));
  EXPECT_EQ(PeerOf(Shape(16, 1, "torus"), {0, up}), (LinkEnd{1, down}));
  EXPECT_EQ(PeerOf(Shape(16), {15, up}), std::nullopt);
  // The racks close for themselves; the GW-Links close across them.
  const ClusterShape racks = Shape(64, 4, "torus", "looped");
  EXPECT_EQ(PeerOf(racks, {31, up}), (LinkEnd{16, down}));
  EXPECT_EQ(PeerOf(racks, {63, kFirstGwPort}), (LinkEnd{15, kFirstGwPort + 1}));
  EXPECT_EQ(PeerOf(Shape(64, 4, "torus", "mesh"), {63, kFirstGwPort}), std::nullopt);
  EXPECT_EQ(PeerOf(Shape(64, 4, "torus", "switched"), {63, kFirstGwPort})->machine,
            LinkEnd::kSwitch);
}

TEST(TopologyTest, NamesAreDistinctAndFoundAgain) {
  std::set<std::string> names;
  for (uint32_t port = 0; port < kPortsPerMachine; ++port) {
    names.insert(PortName(port));
    EXPECT_EQ(*FindPort(PortName(port)), port);
  }
  EXPECT_EQ(names.size(), kPortsPerMachine);
  // Side by side: east of column 0 leads to west of column 1, ladders run on the outside.
  const auto peer = PeerOf(Shape(1), {0, *FindPort("IPU3.NLC_E_2A")});
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(PortName(peer->port), "IPU2.NLC_W_2A");
  EXPECT_EQ(PortName(PeerOf(Shape(1), {0, *FindPort("IPU2.NLC_E_0B")})->port), "IPU0.NLC_E_1B");
  EXPECT_EQ(FindPort("NLC_W_9Z").status().message(),
            "no link is named 'NLC_W_9Z'; names look like IPU3.NLC_E_0A, SYNC_N_0 and GW_E");
}

TEST(TopologyTest, ShapesAreChecked) {
  EXPECT_EQ(MakeShape(4, 3, "mesh", "none").status().message(),
            "4 machines do not divide into 3 IPU-Link domains");
  EXPECT_EQ(MakeShape(1, 2, "mesh", "none").status().message(),
            "1 machine does not divide into 2 IPU-Link domains");
  EXPECT_EQ(MakeShape(4, 1, "ring", "none").status().message(),
            "unknown topology 'ring'; use mesh or torus");
  EXPECT_EQ(MakeShape(4, 2, "mesh", "star").status().message(),
            "unknown cluster topology 'star'; use none, mesh, looped or switched");
}

// "3 IPU3.NLC_E_0A x4" a hop.
std::vector<std::string> RouteText(const ClusterShape& shape, Routing routing, uint32_t from,
                                   uint32_t to) {
  std::vector<std::string> text;
  const auto hops = Route(shape, routing, from, to);
  EXPECT_TRUE(hops.ok()) << hops.status();
  if (!hops.ok()) return text;
  for (const Hop& hop : *hops) {
    text.push_back(std::to_string(hop.machine) + " " + PortName(hop.first_port) + " x" +
                   std::to_string(hop.num_ports));
  }
  return text;
}

using Words = std::vector<std::string>;

TEST(TopologyTest, RoutesWithinAnIld) {
  const ClusterShape pod16 = Shape(4);
  EXPECT_EQ(RouteText(pod16, Routing::kDnc, 5, 5), Words{});
  EXPECT_EQ(RouteText(pod16, Routing::kDnc, 0, 1), Words{"0 IPU3.NLC_E_0A x4"});
  EXPECT_EQ(RouteText(pod16, Routing::kDnc, 0, 4),
            (Words{"0 IPU3.NLC_W_0A x2", "0 IPU1.NLC_W_0A x2"}));
  // Another column: across first, but last with the barley twist.
  EXPECT_EQ(RouteText(pod16, Routing::kDnc, 5, 2),
            (Words{"1 IPU2.NLC_W_2A x2", "1 IPU3.NLC_W_1A x2"}));
  EXPECT_EQ(RouteText(pod16, Routing::kBtnc, 5, 2),
            (Words{"1 IPU2.NLC_E_1A x2", "0 IPU0.NLC_W_2A x2"}));
}

TEST(TopologyTest, RingRoutingTakesTheShorterWayRound) {
  const ClusterShape rack = Shape(16, 1, "torus");
  EXPECT_EQ(RouteText(rack, Routing::kRingSwnc, 0, 62), Words{"0 IPU3.NLC_W_1A x2"});
  EXPECT_EQ(Route(rack, Routing::kSwnc, 0, 62)->size(), 31u);
  const auto tie = RouteText(rack, Routing::kRingSwnc, 0, 32);
  ASSERT_EQ(tie.size(), 16u);
  EXPECT_EQ(tie[0], "0 IPU3.NLC_W_0A x2");
}

TEST(TopologyTest, RoutesAcrossIlds) {
  EXPECT_EQ(RouteText(Shape(2, 2, "mesh", "looped"), Routing::kDnc, 0, 7), Words{"0 GW_E x2"});
  const ClusterShape looped = Shape(64, 4, "torus", "looped");
  EXPECT_EQ(RouteText(looped, Routing::kRingSwnc, 0, 192), Words{"0 GW_W x1"});
  EXPECT_EQ(RouteText(looped, Routing::kRingSwnc, 0, 128), (Words{"0 GW_E x1", "16 GW_E x1"}));
  EXPECT_EQ(RouteText(looped, Routing::kRingSwnc, 0, 64 + 4),
            (Words{"0 IPU3.NLC_W_0A x2", "0 IPU1.NLC_W_0A x2", "1 GW_E x1"}));
  EXPECT_EQ(RouteText(Shape(64, 4, "torus", "switched"), Routing::kRingSwnc, 0, 192),
            Words{"0 GW_E x2"});
  EXPECT_EQ(Route(Shape(2, 2), Routing::kDnc, 0, 4).status().message(),
            "no GW-Link joins the IPU-Link domains 0 and 1");
}

// Every hop leads to where the next begins, and the last to the destination.
TEST(TopologyTest, RoutesFollowTheWires) {
  for (const auto& [shape, routing] :
       {std::make_tuple(Shape(4), Routing::kDnc), std::make_tuple(Shape(4), Routing::kBtnc),
        std::make_tuple(Shape(4, 1, "torus"), Routing::kRingSwnc)}) {
    const uint32_t ipus = shape.machines * kIpusPerMachine;
    for (uint32_t from = 0; from < ipus; ++from) {
      for (uint32_t to = 0; to < ipus; ++to) {
        uint32_t at = from;
        const auto hops = *Route(shape, routing, from, to);
        for (const Hop& hop : hops) {
          EXPECT_EQ(hop.machine * 4 + 3 - IpuOfPort(hop.first_port), at);
          const auto far = PeerOf(shape, {hop.machine, hop.first_port});
          ASSERT_TRUE(far.has_value()) << from << " to " << to;
          at = far->machine * 4 + 3 - IpuOfPort(far->port);
        }
        EXPECT_EQ(at, to) << "from " << from;
      }
    }
  }
}

}  // namespace
}  // namespace vpod::arch
