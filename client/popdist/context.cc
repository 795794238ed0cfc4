#include "client/popdist/context.hpp"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "device/arch/device_id.h"
#include "device/base/counted.h"

namespace popdist {
namespace {

uint32_t Number(const char* name, uint32_t missing, uint32_t least) {
  const char* text = std::getenv(name);
  if (text == nullptr) return missing;
  uint32_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least) {
    throw popdist_error(
        absl::StrCat(name, " is '", text, "', must be a number of ", least, " or more"));
  }
  return value;
}

struct Layout {
  uint32_t total, local, offset;
};

// Half an environment would make the others wait for an instance that never comes.
void CheckComplete() {
  static constexpr const char* kNames[] = {
      "POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS", "POPDIST_REPLICA_INDEX_OFFSET"};
  const char *set = nullptr, *missing = nullptr;
  for (const char* name : kNames) (std::getenv(name) != nullptr ? set : missing) = name;
  if (set != nullptr && missing != nullptr) {
    throw popdist_error(absl::StrCat(set, " is set but ", missing,
                                     " is not; start the program with poprun, or unset both"));
  }
}

Layout CheckedLayout() {
  CheckComplete();
  const Layout layout{Number("POPDIST_NUM_TOTAL_REPLICAS", 1, 1),
                      Number("POPDIST_NUM_LOCAL_REPLICAS", 1, 1),
                      Number("POPDIST_REPLICA_INDEX_OFFSET", 0, 0)};
  if (layout.total % layout.local != 0) {
    throw popdist_error(absl::StrCat("POPDIST_NUM_TOTAL_REPLICAS is ", layout.total,
                                     ", not a multiple of POPDIST_NUM_LOCAL_REPLICAS, ",
                                     layout.local));
  }
  if (layout.offset > layout.total - layout.local) {
    throw popdist_error(absl::StrCat("POPDIST_REPLICA_INDEX_OFFSET is ", layout.offset, "; with ",
                                     layout.local, " local replicas that exceeds the total of ",
                                     layout.total));
  }
  return layout;
}

}  // namespace

bool isPopdistEnvSet() { return std::getenv("POPDIST_NUM_TOTAL_REPLICAS") != nullptr; }
uint32_t getNumTotalReplicas() { return CheckedLayout().total; }
uint32_t getNumLocalReplicas() { return CheckedLayout().local; }
uint32_t getNumIpusPerReplica() { return Number("POPDIST_NUM_IPUS_PER_REPLICA", 1, 1); }
uint32_t getReplicaIndexOffset() { return CheckedLayout().offset; }
uint32_t getLocalInstanceIndex() { return Number("POPDIST_LOCAL_INSTANCE_INDEX", 0, 0); }

uint32_t getNumInstances() {
  const Layout layout = CheckedLayout();
  return layout.total / layout.local;
}

uint32_t getInstanceIndex() {
  const Layout layout = CheckedLayout();
  return layout.offset / layout.local;
}

bool checkNumIpusPerReplica(uint32_t ipus_per_replica) {
  return std::getenv("POPDIST_NUM_IPUS_PER_REPLICA") == nullptr ||
         getNumIpusPerReplica() == ipus_per_replica;
}

uint32_t getDeviceId(uint32_t num_ipus, uint32_t ipus_per_replica) {
  if (ipus_per_replica == 0) ipus_per_replica = getNumIpusPerReplica();
  const uint64_t needed = uint64_t{getNumLocalReplicas()} * ipus_per_replica;
  const auto refuse = [&](uint64_t size, absl::string_view reason) {
    throw popdist_error(absl::StrCat("no device of ", vpod::base::Counted(size, "IPU"),
                                     " for instance ", getInstanceIndex(), ": ", reason));
  };
  if (needed > num_ipus)
    refuse(needed, absl::StrCat(num_ipus == 1 ? "there is " : "there are ",
                                vpod::base::Counted(num_ipus, "IPU")));
  const uint32_t size = vpod::arch::NextPowerOfTwo(static_cast<uint32_t>(needed));
  uint32_t first = 0;
  if (std::getenv("POPDIST_NODE_DEVICE_ID") != nullptr) {
    const uint32_t parent = Number("POPDIST_NODE_DEVICE_ID", 0, 0);
    const auto range = vpod::arch::IpusOfDevice(num_ipus, parent);
    if (!range.ok())
      throw popdist_error(absl::StrCat("POPDIST_NODE_DEVICE_ID: ", range.status().message()));
    if ((uint64_t{getInstanceIndex()} + 1) * size > range->count) {
      refuse(size, absl::StrCat("POPDIST_NODE_DEVICE_ID ", parent, " has ",
                                vpod::base::Counted(range->count, "IPU")));
    }
    first = range->first + getInstanceIndex() * size;
  }
  const auto device = vpod::arch::DeviceOfIpus(num_ipus, {first, size});
  if (!device.ok()) refuse(size, device.status().message());
  return *device;
}

}  // namespace popdist
