#include "server/controller/store/upgrade.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "server/controller/store/state.pb.h"

namespace vpod::controller {

absl::StatusOr<StoredObjects> UpgradePartitions1To2(const StoredObjects& clusters,
                                                    const StoredObjects& partitions) {
  StoredObjects upgraded;
  for (const auto& [id, data] : partitions) {
    const absl::Status damaged =
        absl::DataLossError(absl::StrCat("partition ", id, " of format 1 is damaged"));
    store::StoredPartition partition;
    store::StoredCluster cluster;
    if (!partition.ParseFromString(data) || partition.ipus_of_format_1().empty()) return damaged;
    const auto it = clusters.find(partition.requirements().cluster_id());
    if (it == clusters.end() || !cluster.ParseFromString(it->second)) return damaged;
    const store::StoredIpu& first = partition.ipus_of_format_1(0);
    const auto agent =
        std::find(cluster.agent_ids().begin(), cluster.agent_ids().end(), first.agent_id());
    if (agent == cluster.agent_ids().end() || first.pcie_id() >= arch::kIpusPerMachine)
      return damaged;
    // The position of an IPU in its machine and its number are each other's mirror.
    partition.set_first_ipu(static_cast<uint32_t>(agent - cluster.agent_ids().begin()) *
                                arch::kIpusPerMachine +
                            arch::IpuNumberOfPosition(first.pcie_id()));
    partition.clear_ipus_of_format_1();
    upgraded[id] = partition.SerializeAsString();
  }
  return upgraded;
}

}  // namespace vpod::controller
