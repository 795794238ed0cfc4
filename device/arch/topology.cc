#include "device/arch/topology.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/base/counted.h"

namespace vpod::arch {
namespace {

// Ports of an IPU by what they lead to.
constexpr uint32_t kCrossPort = kPairLinks;
constexpr uint32_t kUpPort = kPairLinks + kCrossLinks;
constexpr uint32_t kDownPort = kUpPort + kLadderLinks;
constexpr uint32_t kEast = kFirstGwPort, kWest = kFirstGwPort + 1;

constexpr std::array<absl::string_view, 6> kLanes = {"0A", "0B", "1A", "1B", "2A", "2B"};

// Place of an IPU in its ILD.
struct Place {
  uint32_t ild;
  uint32_t rung;
  uint32_t column;
  uint32_t position() const { return rung % 2 * 2 + column; }
};

Place PlaceOfIpu(const ClusterShape& shape, uint32_t ipu) {
  const uint32_t ild_size = shape.machines_per_ild() * kIpusPerMachine;
  return {ipu / ild_size, ipu % ild_size / 2, ipu % 2};
}

uint32_t MachineOf(const ClusterShape& shape, const Place& place) {
  return place.ild * shape.machines_per_ild() + place.rung / 2;
}

uint32_t FirstPortOf(const Place& place) {
  return IpuNumberOfPosition(place.position()) * kLinksPerIpu;
}

bool ClosesToTorus(const ClusterShape& shape) {
  return shape.topology == IldTopology::kTorus && shape.machines_per_ild() > 1;
}

// `place` moved along a line of `size`, round its end in a ring; nothing beyond the end.
std::optional<uint32_t> Step(uint32_t place, bool forward, uint32_t size, bool ring) {
  if (forward ? place + 1 < size : place > 0) return forward ? place + 1 : place - 1;
  if (!ring) return std::nullopt;
  return forward ? 0 : size - 1;
}

std::optional<LinkEnd> PeerOfIpuPort(const ClusterShape& shape, LinkEnd end) {
  const uint32_t position = IpuNumberOfPosition(IpuOfPort(end.port));  // its own inverse
  Place place = PlaceOfIpu(shape, end.machine * kIpusPerMachine + position);
  const uint32_t port = end.port % kLinksPerIpu;
  if (port < kUpPort) {
    place.column ^= 1;
    return LinkEnd{end.machine, FirstPortOf(place) + port};
  }
  const bool up = port < kDownPort;
  const auto rung = Step(place.rung, up, shape.machines_per_ild() * 2, ClosesToTorus(shape));
  if (!rung.has_value()) return std::nullopt;
  place.rung = *rung;
  return LinkEnd{MachineOf(shape, place),
                 FirstPortOf(place) + (up ? port + kLadderLinks : port - kLadderLinks)};
}

std::optional<LinkEnd> PeerOfSyncPort(const ClusterShape& shape, LinkEnd end) {
  const uint32_t per_ild = shape.machines_per_ild();
  const uint32_t port = end.port - kFirstSyncPort;
  const bool up = port < kSyncPortsPerMachine / 2;
  const auto row = Step(end.machine % per_ild, up, per_ild, ClosesToTorus(shape));
  if (!row.has_value()) return std::nullopt;
  return LinkEnd{end.machine / per_ild * per_ild + *row,
                 kFirstSyncPort + (port + kSyncPortsPerMachine / 2) % kSyncPortsPerMachine};
}

std::optional<LinkEnd> PeerOfGwPort(const ClusterShape& shape, LinkEnd end) {
  if (shape.ilds == 1 || shape.gw_topology == GwTopology::kNone) return std::nullopt;
  if (shape.gw_topology == GwTopology::kSwitched) {
    return LinkEnd{LinkEnd::kSwitch, end.machine * 2 + end.port - kFirstGwPort};
  }
  const bool east = end.port == kEast;
  const uint32_t per_ild = shape.machines_per_ild();
  const auto ild =
      Step(end.machine / per_ild, east, shape.ilds, shape.gw_topology == GwTopology::kLooped);
  if (!ild.has_value()) return std::nullopt;
  return LinkEnd{*ild * per_ild + end.machine % per_ild, east ? kWest : kEast};
}

// Steps from `from` to `to` along a line or the shorter way round a ring, forward when equal.
struct Way {
  bool forward;
  uint32_t steps;
};
Way WayBetween(uint32_t from, uint32_t to, uint32_t size, bool ring) {
  const uint32_t forward = (to + size - from) % size;
  if (!ring) return {to > from, to > from ? to - from : from - to};
  return {forward <= size - forward, std::min(forward, size - forward)};
}

// The hops within an ILD from `place` to the rung and column of `to`.
void RouteInIld(const ClusterShape& shape, Routing routing, Place place, const Place& to,
                std::vector<Hop>& hops) {
  const uint32_t rungs = shape.machines_per_ild() * 2;
  const bool ring = routing == Routing::kRingSwnc && ClosesToTorus(shape);
  const bool same_rung = place.rung == to.rung;
  const auto change_column = [&] {
    if (place.column == to.column) return;
    hops.push_back({MachineOf(shape, place), FirstPortOf(place) + (same_rung ? 0 : kCrossPort),
                    same_rung ? kPairLinks : kCrossLinks});
    place.column = to.column;
  };
  if (routing != Routing::kBtnc) change_column();
  const Way way = WayBetween(place.rung, to.rung, rungs, ring);
  for (uint32_t i = 0; i < way.steps; ++i) {
    hops.push_back({MachineOf(shape, place),
                    FirstPortOf(place) + (way.forward ? kUpPort : kDownPort), kLadderLinks});
    place.rung = *Step(place.rung, way.forward, rungs, ring);
  }
  change_column();
}

}  // namespace

absl::StatusOr<ClusterShape> MakeShape(uint32_t machines, uint32_t ilds, absl::string_view topology,
                                       absl::string_view cluster_topology) {
  if (ilds < 1 || machines < 1 || machines % ilds != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(base::Counted(machines, "machine"), machines == 1 ? " does" : " do",
                     " not divide into ", base::Counted(ilds, "IPU-Link domain")));
  }
  ClusterShape shape{machines, ilds};
  if (topology == "torus") {
    shape.topology = IldTopology::kTorus;
  } else if (topology != "mesh") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown topology '", topology, "'; use mesh or torus"));
  }
  if (cluster_topology == "mesh") {
    shape.gw_topology = GwTopology::kMesh;
  } else if (cluster_topology == "looped") {
    shape.gw_topology = GwTopology::kLooped;
  } else if (cluster_topology == "switched") {
    shape.gw_topology = GwTopology::kSwitched;
  } else if (cluster_topology != "none") {
    return absl::InvalidArgumentError(absl::StrCat("unknown cluster topology '", cluster_topology,
                                                   "'; use none, mesh, looped or switched"));
  }
  return shape;
}

absl::string_view LinkKindName(LinkKind kind) {
  switch (kind) {
    case LinkKind::kIpuLink:
      return "IPU-Link";
    case LinkKind::kSyncLink:
      return "Sync-Link";
    default:
      return "GW-Link";
  }
}

LinkKind KindOfPort(uint32_t port) {
  if (port < kFirstSyncPort) return LinkKind::kIpuLink;
  return port < kFirstGwPort ? LinkKind::kSyncLink : LinkKind::kGwLink;
}

bool IsCablePort(uint32_t port) {
  if (KindOfPort(port) != LinkKind::kIpuLink) return true;
  // The lower rung leads down, the upper one up and out.
  const bool upper = IpuNumberOfPosition(IpuOfPort(port)) / 2 != 0;
  const uint32_t lane = port % kLinksPerIpu;
  return upper ? lane >= kUpPort && lane < kDownPort : lane >= kDownPort;
}

std::string PortName(uint32_t port) {
  if (port >= kFirstGwPort) return port == kEast ? "GW_E" : "GW_W";
  if (port >= kFirstSyncPort) {
    const uint32_t sync = port - kFirstSyncPort, half = kSyncPortsPerMachine / 2;
    return absl::StrCat("SYNC_", sync < half ? "N_" : "S_", sync % half);
  }
  const uint32_t ipu = IpuOfPort(port), lane = port % kLinksPerIpu;
  const bool column = IpuNumberOfPosition(ipu) % 2 != 0;
  const bool to_partner = lane < kUpPort;
  return absl::StrCat("IPU", ipu, ".NLC_", to_partner != column ? "E_" : "W_",
                      kLanes[to_partner ? lane : lane - kUpPort]);
}

absl::StatusOr<uint32_t> FindPort(absl::string_view name) {
  static const auto* ports = [] {
    auto* all = new std::map<std::string, uint32_t>;
    for (uint32_t port = 0; port < kPortsPerMachine; ++port) (*all)[PortName(port)] = port;
    return all;
  }();
  const auto it = ports->find(std::string(name));
  if (it != ports->end()) return it->second;
  return absl::NotFoundError(absl::StrCat("no link is named '", name,
                                          "'; names look like IPU3.NLC_E_0A, SYNC_N_0 and GW_E"));
}

std::optional<LinkEnd> PeerOf(const ClusterShape& shape, LinkEnd end) {
  switch (KindOfPort(end.port)) {
    case LinkKind::kIpuLink:
      return PeerOfIpuPort(shape, end);
    case LinkKind::kSyncLink:
      return PeerOfSyncPort(shape, end);
    default:
      return PeerOfGwPort(shape, end);
  }
}

void ForEachPort(const ClusterShape& shape, uint32_t machine,
                 const std::function<void(const Link&)>& visit) {
  for (uint32_t port = 0; port < kPortsPerMachine; ++port) {
    const LinkEnd near{machine, port};
    if (const auto far = PeerOf(shape, near)) visit({KindOfPort(port), near, *far});
  }
}

absl::StatusOr<Routing> FindRouting(absl::string_view word) {
  const std::string upper = absl::AsciiStrToUpper(word);
  if (upper == "DNC") return Routing::kDnc;
  if (upper == "SWNC") return Routing::kSwnc;
  if (upper == "RINGSWNC") return Routing::kRingSwnc;
  if (upper == "BTNC") return Routing::kBtnc;
  return absl::InvalidArgumentError(
      absl::StrCat("routing is '", word, "', must be DNC, SWNC, RINGSWNC or BTNC"));
}

absl::StatusOr<std::vector<Hop>> Route(const ClusterShape& shape, Routing routing,
                                       uint32_t from_ipu, uint32_t to_ipu) {
  const Place from = PlaceOfIpu(shape, from_ipu), to = PlaceOfIpu(shape, to_ipu);
  std::vector<Hop> hops;
  if (from.ild == to.ild) {
    RouteInIld(shape, routing, from, to, hops);
    return hops;
  }
  // Every IPU of a machine reaches its gateway, so only the machine's position has to be right.
  if (from.rung / 2 != to.rung / 2) RouteInIld(shape, routing, from, to, hops);
  const uint32_t row = to.rung / 2, per_ild = shape.machines_per_ild();
  uint32_t ild = from.ild;
  if (shape.gw_topology == GwTopology::kNone) {
    return absl::FailedPreconditionError(
        absl::StrCat("no GW-Link joins the IPU-Link domains ", from.ild, " and ", to.ild));
  }
  const bool ring = shape.gw_topology == GwTopology::kLooped;
  if (shape.gw_topology == GwTopology::kSwitched || (ring && shape.ilds == 2)) {
    hops.push_back({ild * per_ild + row, kFirstGwPort, 2});  // both ports lead there
    return hops;
  }
  const Way way = WayBetween(ild, to.ild, shape.ilds, ring);
  for (uint32_t i = 0; i < way.steps; ++i) {
    hops.push_back({ild * per_ild + row, way.forward ? kEast : kWest, 1});
    ild = *Step(ild, way.forward, shape.ilds, ring);
  }
  return hops;
}

}  // namespace vpod::arch
