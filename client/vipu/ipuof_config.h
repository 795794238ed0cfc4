// IPUoF configurations: the files that provisioning leaves behind, and the choice of the active
// partition.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/vipu/client.h"
#include "proto/vipu/v1/vipuuser.pb.h"

namespace vpod::vipu {

// IPUOF_CONFIG_DIR, else the one of the POD that was chosen (pod_home.h), else ~/.ipuof.conf.d;
// empty without a HOME.
std::string IpuofDirectory();
// Makes the directory. An error says why no file can be written there.
absl::Status CheckIpuofDirectory();
// Writes one file a GCD (<id>.conf or <id>_gcd<N>.conf) with the controller's address: of mode
// 0600, or of mode 0644 and without the fabric key when the partition is shared.
absl::Status WriteIpuofFiles(const vipuuser::Partition& partition,
                             const std::string& controller_address);
// Removes the files of a partition; missing ones are no error.
void RemoveIpuofFiles(const std::string& partition_id);
// Whether the caller has any of them.
bool HasIpuofFiles(const std::string& partition_id);

// The partition that programs and tools of this shell use.
struct ActivePartition {
  vipuuser::PartitionConfig config;  // with all IPUs of the GCD, or some of them (subset.h)
  std::string partition_id;
  uint64_t generation = 0;
  uint32_t gcd = 0;
  uint32_t num_gcds = 1;
  uint32_t gcd_ipus = 0;       // IPUs of the GCD; 0: not known
  bool gcd_was_given = false;  // IPUOF_VIPU_API_GCD_ID is set
  std::string file;            // that named it; empty: the controller did
  std::string controller;      // host:port; empty: not known
  absl::Status usable;  // FailedPrecondition, with the reason, when it is in ERROR or RELEASING
  bool releasing = false;
};

// Set by `poprun --offline-mode`: the program has no IPUs, whatever files there are.
inline constexpr char kOfflineVariable[] = "VPOD_OFFLINE";

// Order: IPUOF_CONFIG_PATH, the controller named by IPUOF_VIPU_API_HOST, the only partition in
// IpuofDirectory(), without a chosen POD the only one in /etc/ipuof.conf.d, and without
// IPUOF_CONFIG_DIR either that of the POD in ~/.vpod; of the directories, where
// IPUOF_VIPU_API_PARTITION_ID is set, the files of that partition, and without one the controller
// of DiscoverConfig. Files of removed partitions and unreachable controllers are skipped with a
// warning on stderr, and so are those of the names *.conf and *.config that are no configuration;
// other files that are none are skipped silently. NotFound: there is none, or there are several
// GCDs. FailedPrecondition: the partition is not ACTIVE, or kOfflineVariable is set.
// InvalidArgument: IPUOF_CONFIG_PATH names a file that cannot be read.
absl::StatusOr<ActivePartition> FindActivePartition();
// Finds one in ERROR or RELEASING too, for tools that show what is wrong with it.
absl::StatusOr<ActivePartition> FindPartitionToInspect();
// All GCDs of the partition in order, unless one was chosen: by its file, or with
// IPUOF_VIPU_API_GCD_ID.
absl::StatusOr<std::vector<ActivePartition>> FindGcdsToInspect();

// Reads what an ActivePartition needs out of a configuration. `controller` gave it; empty: the one
// that the configuration names.
ActivePartition Describe(vipuuser::PartitionConfig config, const std::string& controller = "");

}  // namespace vpod::vipu
