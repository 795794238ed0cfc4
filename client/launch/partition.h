// poprun's partition: found, created, changed, reset and removed by the rules of spec/poprun.md 4,
// and the parent device that it keeps for the job.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "client/ipuof/lease.h"
#include "client/launch/instance_report.h"
#include "client/launch/job_failure.h"
#include "client/launch/layout.h"
#include "client/launch/log.h"
#include "client/vipu/client.h"
#include "device/base/interruption.h"
#include "device/base/mutex.h"

namespace vpod::launch {

class JobPartition {
 public:
  // Resolves server and partition; makes the partition fit when that is allowed. Errors carry the
  // text after "poprun: error: ".
  static absl::StatusOr<std::unique_ptr<JobPartition>> Prepare(const Options& options,
                                                               Layout& layout,
                                                               const std::string& job_id,
                                                               const Log& log,
                                                               base::Interruption& interruption);
  // Releases the IPUs and removes the partition when poprun created it and may. Never
  // fails; says so in the log.
  ~JobPartition();

  const vipu::ClientConfig& server() const { return client_->config(); }
  const std::string& id() const { return id_; }
  bool reconfigurable() const { return reconfigurable_; }
  // Keep the IPUs for the job until the end: a parent device for all instances of a reconfigurable
  // partition, else the GCD of each.
  absl::Status ReserveParent();
  absl::Status ReserveGcds();
  uint32_t parent_device() const { return parent_device_; }
  // Does what the destructor cannot when poprun was killed. Empty: the partition stays.
  std::vector<std::string> RemovalCommand() const;
  // Merges the options of the environment and of the partition, and logs both.
  absl::Status ComputeTargetOptions();
  // POPLAR_TARGET_OPTIONS as JSON, keys in their order; once they are computed.
  const std::string& target_options() const { return target_options_; }
  // Tells the agents that an instance has ended, so that other instances do not wait for it. May be
  // called on any thread while IPUs are kept.
  void TellEnded(const InstanceReport& report);
  // The first instance that was lost, if any; known while IPUs are kept.
  std::optional<LostInstance> lost_instance();
  // Why the IPUs, or some of them, were lost; OK while they are there.
  absl::Status lost_device();

 private:
  using Clock = std::chrono::steady_clock;
  JobPartition(const Options& options, const Layout& layout, std::string job_id, const Log& log,
               base::Interruption& interruption)
      : options_(options),
        layout_(layout),
        job_id_(std::move(job_id)),
        log_(log),
        interruption_(interruption) {}
  absl::Status FindServer();
  // Instances on other hosts cannot come back to a loopback address of this one.
  absl::Status CheckServerForHosts() const;
  absl::Status CheckDevicesForHosts() const;
  absl::Status FindId();
  absl::Status MakeItFit();
  absl::Status Create();
  std::optional<std::string> WhyUnfit(const vipuuser::Partition& partition) const;
  vipuuser::PartitionRequirements Wanted() const;
  // A lease that keeps IPUs and hears of the instances' ends.
  ipuof::LeaseOptions Reservation();
  bool MustBeRemoved() const { return created_ && options_.remove_partition; }
  absl::Status Reset();
  // Waits for a final state, up to the number of attempts.
  absl::Status Await();

  const Options& options_;
  const Layout& layout_;
  const std::string job_id_;
  const Log& log_;
  base::Interruption& interruption_;
  std::unique_ptr<vipu::Client> client_;
  std::string id_;
  std::string id_source_;  // the option or variable that names the partition; empty: none does
  bool reconfigurable_ = false;
  bool created_ = false;
  uint32_t size_ = 0;
  uint32_t parent_device_ = 0;
  std::map<std::string, std::string> vipu_options_;
  std::string target_options_ = "{}";
  std::vector<std::unique_ptr<ipuof::Lease>> reserved_;  // one at each agent
  base::Mutex mutex_;
  Clock::time_point last_left_ ABSL_GUARDED_BY(mutex_);  // in an orderly way
  absl::Status lost_device_ ABSL_GUARDED_BY(mutex_);
  std::optional<LostInstance> lost_ ABSL_GUARDED_BY(mutex_);
  std::set<uint32_t> stopped_ ABSL_GUARDED_BY(mutex_);  // instances
};

}  // namespace vpod::launch
