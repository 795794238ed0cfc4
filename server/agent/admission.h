// Admission to the devices of a partition.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/vipu/v1/vipuagent.pb.h"

namespace vpod::agent {

// Unauthenticated for those who do not show the partition's fabric key. FailedPrecondition when it
// has none, and when `require_encrypted_fabric` and the partition's tensors would travel from
// `endpoint`, this process, to other hosts.
absl::Status Admit(const vipuagent::AgentPartition& partition, absl::string_view fabric_key,
                   bool require_encrypted_fabric, absl::string_view endpoint);

// Whether what `endpoint`, this process, sends to an agent stays on its host.
bool StaysOnHost(absl::string_view peer_endpoint, absl::string_view endpoint);

}  // namespace vpod::agent
