// What a POD is: its size and its settings, and pod.json, which keeps them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/vipu/config.h"
#include "device/arch/hardware.h"

namespace vpod::tools {

inline constexpr uint32_t kMostMemoryMib = 1u << 31;  // that --memory-limit takes
inline constexpr uint32_t kLastPort = 65535;
inline constexpr char kShapeFile[] = "pod.json";  // in the POD's directory
inline constexpr char kOneRack[] = "none";  // the cluster topology of a POD without a second rack

// Kept in <home>/pod.json.
struct PodShape {
  uint32_t ipus = 16;  // a multiple of 4, a power of two
  std::string machine_type = "m2000";
  std::string cluster_topology;  // of several racks: looped or switched; empty: by size. One: none
  uint32_t api_port = 8090;
  uint32_t metrics_port = 0;        // of the controller; 0: 2113 or one that is free
  uint64_t memory_limit_mib = 0;    // 0: three quarters of the host's memory
  std::string addresses;            // management prefix, e.g. 127.10; set when the POD is up
  bool agent_per_machine = false;   // one process a machine, at its address, instead of one for all
  bool described_clusters = false;  // made from a file, in place of one of all machines
  bool unfinished = false;          // `vpod up` has begun it and was interrupted, or is at work
  bool secure = false;              // users show access keys
  // Key and certificates of the administrator of a secure POD, from its client file; pod.json does
  // not have them. There is no key before the controller's storage is made.
  vipu::ClientConfig administrator;
  uint32_t machines() const { return ipus / arch::kIpusPerMachine; }
  uint32_t racks() const { return std::max(1u, ipus / arch::kMaxIpusPerLinkDomain); }
  uint32_t agents() const { return agent_per_machine ? machines() : 1; }
};

// What the values are called where they are given: as options of `vpod up`, or in pod.json.
struct ShapeNames {
  absl::string_view ipus, cluster_topology, metrics_port;
};
inline constexpr ShapeNames kOptionNames = {"--pod", "--cluster-topology", "--metrics-port"};
inline constexpr ShapeNames kKeyNames = {"ipus", "cluster_topology", "metrics_port"};

// InvalidArgument names the value that no POD has, or that does not go with the others, and what is
// allowed.
absl::Status CheckShape(const PodShape& shape, const ShapeNames& names);

// The text of pod.json. The administrator is not in it.
std::string ShapeText(const PodShape& shape);
// And back. A key that is absent has its default, as in files of earlier versions; size, machine
// type and port have none. InvalidArgument says what is wrong, also by CheckShape.
absl::StatusOr<PodShape> ParseShape(const std::string& text);

}  // namespace vpod::tools
