// Programs that move patterned data over links and look at what arrives, for gc-iputraffictest and
// gc-gwlinkstraffictest (spec/gc-tools.md 6).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/device.h"

namespace vpod::tools {

// One transfer: 64 KiB on each of 32 tiles in each direction. With 1000 of them the published
// sample's 4,096,000 KiB.
inline constexpr uint64_t kTransferBytes = 32 * 64 * 1024;

struct LinkTraffic {
  uint64_t bytes = 0;       // that crossed links
  double seconds = 0;       // modelled
  double wall_seconds = 0;  // of this host
  uint64_t errors = 0;      // 32-bit words that arrived wrong
  double gbps() const { return static_cast<double>(bytes) * 8 / seconds / 1e9; }
};

struct LinkTrafficOptions {
  uint32_t iterations = 1000;
  bool high_power = false;  // multiplies matrices between transfers
  bool single_ipu = false;  // between instances: only the first IPU of a replica sends
};

// A test that is loaded on a device, which outlives it. Each call is a round; data differ from
// round to round, so that those which never arrive are noticed in any of them.
using LinkTest = std::function<absl::StatusOr<LinkTraffic>(uint32_t round)>;

// Sends data from IPU `a` to IPU `b` of a replica of `num_ipus` and back, again and again: what
// comes back last has made every journey.
absl::StatusOr<LinkTest> LoadPairTraffic(session::Device& device, uint32_t num_ipus, uint32_t a,
                                         uint32_t b, const LinkTrafficOptions& options);

// The same within one IPU, over its exchange.
absl::StatusOr<LinkTest> LoadOwnTraffic(session::Device& device, const LinkTrafficOptions& options);

// Every IPU of a replica with its partner, the one above and the one above in the other column,
// back and forth as in LoadPairTraffic; then, with several replicas, an all-to-all of them there
// and back, which takes the links between replicas.
absl::StatusOr<LinkTest> LoadAllLinks(session::Device& device, uint32_t num_ipus,
                                      uint32_t total_replicas, const LinkTrafficOptions& options);

// All-to-alls there and back between the devices of a job's instances, which run it together: each
// replica of `num_ipus` with the replica of its place in each of the `instances`.
absl::StatusOr<LinkTest> LoadBetweenInstances(session::Device& device, uint32_t num_ipus,
                                              uint32_t instances,
                                              const LinkTrafficOptions& options);

}  // namespace vpod::tools
