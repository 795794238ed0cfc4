#include "client/popdist/job.h"

#include <atomic>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/popdist/context.hpp"
#include "device/base/random_id.h"

namespace popdist {
namespace {

// poprun names the job; a bare mpirun gives all its processes one namespace; a lone process is a
// job of its own.
std::string JobId() {
  for (const char* name : {"VPOD_JOB_ID", "PMIX_NAMESPACE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return vpod::base::RandomId();
}

}  // namespace

vpod::ipuof::v1::JobMember ThisJobMember(uint32_t replicas, uint32_t ipus_per_replica) {
  static const std::string job_id = JobId();
  static std::atomic<int> round = 0;
  vpod::ipuof::v1::JobMember member;
  member.set_job_id(absl::StrCat(job_id, "#", round++));
  const char* launcher = std::getenv("VPOD_JOB_ID");
  member.set_reserved(launcher != nullptr && *launcher != '\0');
  member.set_ipus_per_replica(ipus_per_replica);
  if (isPopdistEnvSet()) {
    member.set_instance_index(getInstanceIndex());
    member.set_num_instances(getNumInstances());
    member.set_replica_offset(getReplicaIndexOffset());
    member.set_local_replicas(getNumLocalReplicas());
    member.set_total_replicas(getNumTotalReplicas());
  } else {
    member.set_num_instances(1);
    member.set_local_replicas(replicas);
    member.set_total_replicas(replicas);
  }
  uint32_t timeout = 0;
  const char* text = std::getenv("IPUOF_VIPU_API_TIMEOUT");
  if (text != nullptr && absl::SimpleAtoi(text, &timeout)) member.set_join_timeout_seconds(timeout);
  return member;
}

}  // namespace popdist
