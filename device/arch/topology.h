// How the IPUs of a cluster are wired (spec/hardware.md 3.2, spec/vipu.md 6). In an IPU-Link domain
// (ILD) two IPUs side by side form a rung and rungs stack to a ladder of the machines in order, two
// rungs each; a torus closes the top to the bottom. GW-Links join the machines of equal position of
// the ILDs: in a line (mesh), in a ring (looped) or through switches.
//
// Pure functions, O(1) a link and O(hops) a route: nothing is built, so that a POD65536 costs no
// more than a POD4. Machines are numbered in cluster order, IPUs over the cluster as 4 × machine +
// position, where position 0 is IPU# 3 of the machine.
//
// Ports of one machine are numbered; their names are ours where nothing is published:
//   IPU3.NLC_E_0A   an IPU-Link port of IPU# 3. In column 0 of the ladder the six E ports (0A to
//                   2B) lead to the partner, W_0A and W_0B up, W_1A and W_1B down; in column 1
//                   east and west are exchanged. Ports 0A to 1B carry traffic between the
//                   two IPUs of a rung, 2A and 2B traffic that changes column on its way.
//   SYNC_N_0        a Sync-Link port: N leads to the machine above, S to the one below
//   GW_E, GW_W      the GW-Link ports
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/arch/hardware.h"

namespace vpod::arch {

inline constexpr uint32_t kLinksPerIpu = kPairLinks + kCrossLinks + 2 * kLadderLinks;  // 10
inline constexpr uint32_t kLanesPerLink = 8;  // trained fully, PCIe generation 4
inline constexpr uint32_t kSyncPortsPerMachine = 4;
inline constexpr uint32_t kFirstSyncPort = kIpusPerMachine * kLinksPerIpu;
inline constexpr uint32_t kFirstGwPort = kFirstSyncPort + kSyncPortsPerMachine;  // east, then west
inline constexpr uint32_t kPortsPerMachine = kFirstGwPort + 2;

enum class IldTopology { kMesh, kTorus };
enum class GwTopology { kNone, kMesh, kLooped, kSwitched };

// A cluster as far as its wiring goes. `ilds` divides `machines`.
struct ClusterShape {
  uint32_t machines = 1;
  uint32_t ilds = 1;
  IldTopology topology = IldTopology::kMesh;
  GwTopology gw_topology = GwTopology::kNone;
  uint32_t machines_per_ild() const { return machines / ilds; }
};

// From the words of `create cluster`; InvalidArgument names the word or the number that is wrong.
absl::StatusOr<ClusterShape> MakeShape(uint32_t machines, uint32_t ilds, absl::string_view topology,
                                       absl::string_view cluster_topology);

enum class LinkKind { kIpuLink, kSyncLink, kGwLink };
// "IPU-Link", "Sync-Link", "GW-Link"
absl::string_view LinkKindName(LinkKind kind);
LinkKind KindOfPort(uint32_t port);

// Whether a port is a socket for a cable; the others are tracks inside the machine.
bool IsCablePort(uint32_t port);
// Where a cable lands that was put into the wrong socket of two: the neighbour of `port`.
constexpr uint32_t SwappedPort(uint32_t port) { return port ^ 1; }

// "IPU3.NLC_E_0A", "SYNC_N_0", "GW_E"; `port` is below kPortsPerMachine.
std::string PortName(uint32_t port);
// NotFound shows how names look.
absl::StatusOr<uint32_t> FindPort(absl::string_view name);
// IPU# of an IPU-Link port.
constexpr uint32_t IpuOfPort(uint32_t port) { return port / kLinksPerIpu; }

// One end of a link. The far end of a port on a GW switch has machine kSwitch.
struct LinkEnd {
  static constexpr uint32_t kSwitch = ~0u;
  uint32_t machine = 0;
  uint32_t port = 0;
  friend auto operator<=>(const LinkEnd&, const LinkEnd&) = default;
};

struct Link {
  LinkKind kind = LinkKind::kIpuLink;
  LinkEnd near;
  LinkEnd far;
  // A cable, as against a track inside a machine.
  bool between_machines() const { return near.machine != far.machine; }
  // Each link has two ends and is named from the lower one; one to a switch from the machine.
  bool named_from_near() const { return near < far; }
};

// Returns the other end of a port's wire; nothing if the port is free, as at the ends of a mesh.
std::optional<LinkEnd> PeerOf(const ClusterShape& shape, LinkEnd end);

// Calls `visit` for every wired port of a machine.
void ForEachPort(const ClusterShape& shape, uint32_t machine,
                 const std::function<void(const Link&)>& visit);

// How traffic is led through an ILD. DNC and SWNC go straight, RINGSWNC takes the shorter way round
// a torus (up when both are equal), BTNC changes the column at the end of the way and not at its
// beginning.
enum class Routing { kDnc, kSwnc, kRingSwnc, kBtnc };
// From the words that partitions show; InvalidArgument names the word.
absl::StatusOr<Routing> FindRouting(absl::string_view word);

// One step of a route: the bytes leave `machine` by `num_ports` ports, evenly.
struct Hop {
  uint32_t machine = 0;
  uint32_t first_port = 0;
  uint32_t num_ports = 0;
  friend bool operator==(const Hop&, const Hop&) = default;
};

// The way between two IPUs: in the ILD of the first to the machine's position, then over GW-Links.
// FailedPrecondition when no GW-Link joins their ILDs.
absl::StatusOr<std::vector<Hop>> Route(const ClusterShape& shape, Routing routing,
                                       uint32_t from_ipu, uint32_t to_ipu);

}  // namespace vpod::arch
