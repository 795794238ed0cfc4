// Facts about the hardware, each once, with its source. Letters refer to the marks of
// spec/hardware.md: A vendor document, B computed from it or read from vendor open source, C third
// party, D inference, Fn a default of this project where nothing is published (FREE).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "device/base/units.h"

// Defaults of this project, where nothing is published, are variables for
// tests/fidelity/sensitivity, which shows what they change.
#ifdef VPOD_VARIABLE_DEFAULTS
#define VPOD_DEFAULT inline
#else
#define VPOD_DEFAULT inline constexpr
#endif

namespace vpod::arch {

// --- IPU (GC200 and Bow are the same but for the clock) ---
inline constexpr uint32_t kTilesPerIpu = 1472;         // A datasheet: 5888 tiles / 4
inline constexpr uint32_t kWorkersPerTile = 6;         // A hardware overview
inline constexpr base::Bytes kTileMemory{624 * 1024};  // A hardware overview
inline constexpr base::Bytes kIpuMemory{kTilesPerIpu * 624ull * 1024};  // A: 897 MiB
inline constexpr base::Bytes kStreamingMemoryPerIpu{32ull << 30};       // A: 128 GB a machine
inline constexpr base::Bytes kRemoteTransferLimit{128ull << 20};        // C a copy
inline constexpr uint32_t kIpusPerMachine = 4;                          // A datasheet
inline constexpr uint32_t kMaxIpusPerLinkDomain = 64;  // A datasheet: one POD64 rack
inline constexpr uint32_t kMaxIpusPerReplica = 64;     // FREE: all of a POD64
inline constexpr uint32_t kMaxIpusPerPod = 1024 * kMaxIpusPerLinkDomain;  // POD65536

// --- Rates ---
VPOD_DEFAULT double kExchangeBytesPerCycle = 4;   // C per tile and direction
VPOD_DEFAULT double kHostBytesPerSecond = 7.2e9;  // F2 per IPU and direction
// F2: gc-hosttraffictest then reads the mean of its published tile sides (hardware.md 3.3).
VPOD_DEFAULT double kHostBytesPerSecondPerTile = 0.1066e9;
inline constexpr double kHostPortBytesPerSecond =
    0.9 * 12.5e9;  // F15 host to a machine's gateway, 1 port per direction
// F23: what the host reads of an IPU's buffers in its machine, and what it reads or writes of them
// while the IPU writes them. It writes them at the rate of F2 (gc-hosttraffictest,
// hardware.md 3.3).
inline constexpr double kHostReadBytesPerSecond = 5.03e9;
inline constexpr double kHostBytesPerSecondBesideWrites = 2.83e9;
VPOD_DEFAULT double kDdrBytesPerSecond = 28.8e9;        // F3 per machine; a host byte counts twice
VPOD_DEFAULT double kLinkBytesPerSecond = 0.83 * 16e9;  // A 128 Gb/s per direction, F1 efficiency
// GW-Link: 100 GbE a port (A), F16 efficiency, per direction.
VPOD_DEFAULT double kGwPortBytesPerSecond = 0.85 * 12.5e9;
inline constexpr uint32_t kPairLinks = 4;    // B between the two IPUs of a rung
inline constexpr uint32_t kCrossLinks = 2;   // B traffic that changes column
inline constexpr uint32_t kLadderLinks = 2;  // B up and down each
VPOD_DEFAULT double kRingBytesPerSecond =
    4 * kLinkBytesPerSecond;  // B bidirectional ring of neighbours

// --- Fixed costs, in cycles unless the name says otherwise ---
inline constexpr uint64_t kInternalSyncCycles = 126;   // C (IPU21)
inline constexpr uint64_t kExternalSyncCycles = 600;   // C SDK target
VPOD_DEFAULT uint64_t kExchangeFixedCycles = 40;       // F10 per phase
VPOD_DEFAULT uint64_t kControlCyclesPerStep = 50;      // F18
inline constexpr uint64_t kSupervisorCallCycles = 11;  // C
VPOD_DEFAULT uint64_t kConvolutionCallCycles = 5;      // F4, if weights load at 8 B a cycle
inline constexpr uint64_t kWeightBytesPerCycle = 8;    // A poplibs, default
VPOD_DEFAULT uint64_t kCollectiveStepCycles = 200;     // F17
inline constexpr double kLinkHopSeconds = 15e-9;       // B poplibs
VPOD_DEFAULT double kGwHopSeconds = 2e-6;              // F11
VPOD_DEFAULT double kStreamRequestSeconds = 2e-6;      // F19
inline constexpr double kHostSyncSeconds = 0.363e-6;   // A host ahead

// Share of a tile's memory for the operands and partial results of a convolution.
inline constexpr double kAvailableMemoryProportion = 0.6;  // A poplibs

// --- Code and state bytes, for the memory model ---
VPOD_DEFAULT uint64_t kConvolutionVertexCodeBytes = 4096;  // F5
VPOD_DEFAULT uint64_t kReduceVertexCodeBytes = 1024;       // F5
VPOD_DEFAULT uint64_t kOtherVertexCodeBytes = 400;         // F5
VPOD_DEFAULT uint64_t kVertexStateBytes = 32;              // F6: 16 B and four pointer fields
VPOD_DEFAULT uint64_t kControlBytesPerStep = 48;           // F7
VPOD_DEFAULT uint64_t kExchangeBytesPerFragment = 12;      // F7 received
VPOD_DEFAULT uint64_t kExchangeBytesPerSend = 8;           // F7
inline constexpr uint64_t kBytesOfASend = 64 * 4;          // F7 at most
VPOD_DEFAULT uint64_t kReservedTileBytes = 6 * 400 + 600 + 1104;  // F8

// Kind of IPU-Machine.
struct MachineType {
  absl::string_view flag;        // as --machine-type spells it: m2000
  absl::string_view board_type;  // as the tools print it: M2000
  absl::string_view ipu_name;    // GC200
  double clock_hz;               // cycles to time (A): 1.33 GHz, Bow 1.85 GHz
  double dynamic_power_scale;    // F21
};

inline constexpr double kMachineBaseWatts = 260;  // of a machine beside its IPUs (F21)

// Accepts m2000 and bow2000; anything else is InvalidArgument naming both.
absl::StatusOr<MachineType> FindMachineType(absl::string_view flag);

// "1330MHz"
std::string ClockText(const MachineType& type);

// Number of link hops that a sync over `num_ipus` crosses (B, poplibs setGlobalSyncLatency).
uint32_t SyncHops(uint32_t num_ipus);

// External sync inside one IPU-Link domain: max(600, poplibs formula).
base::Cycles ExternalSyncCycles(uint32_t num_ipus, double clock_hz);

// Bandwidth between two IPUs of one IPU-Link domain, by their ids on the ladder (rung = id / 2,
// column = id % 2): the narrowest link group on the way (spec/hardware.md 3.2).
double IpuLinkBytesPerSecond(uint32_t from_ipu, uint32_t to_ipu);

// Bytes that each of the rings that IPUs form side by side passes on in a second if `distance` IPUs
// lie from one member of a ring to the next. A ring of neighbours goes through both columns of the
// ladder in both directions; others stay in a column, whose links as many rings share as there are
// rungs between two members (spec/hardware.md 4).
double RingBytesPerSecond(uint64_t distance);

}  // namespace vpod::arch
