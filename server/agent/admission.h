// Admission to the devices of a partition.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/vipu/v1/vipuagent.pb.h"

namespace vpod::agent {

// The fabric key of a user, made from the partition's secret: hexadecimal digits that name the user
// and that nobody else can make. So agents know whose lease it is, and can end those of one user.
std::string FabricKeyFor(absl::string_view secret, absl::string_view user);

// The user whose fabric key is shown; empty for the partition's secret itself, which only
// controller and agents have. Unauthenticated for other keys. FailedPrecondition when the partition
// has no secret, and when `require_encrypted_fabric` and the partition's tensors would travel from
// `endpoint`, this process, to other hosts.
absl::StatusOr<std::string> Admit(const vipuagent::AgentPartition& partition,
                                  absl::string_view fabric_key, bool require_encrypted_fabric,
                                  absl::string_view endpoint);

// Whether what `endpoint`, this process, sends to an agent stays on its host.
bool StaysOnHost(absl::string_view peer_endpoint, absl::string_view endpoint);

}  // namespace vpod::agent
