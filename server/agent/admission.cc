#include "server/agent/admission.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/secret.h"

namespace vpod::agent {
namespace {

absl::string_view HostOf(absl::string_view endpoint) {
  return endpoint.substr(0, endpoint.rfind(':'));
}

}  // namespace

bool StaysOnHost(absl::string_view peer_endpoint, absl::string_view endpoint) {
  const absl::string_view host = HostOf(peer_endpoint);
  return host == HostOf(endpoint) || absl::StartsWith(host, "127.") || host == "localhost";
}

absl::Status Admit(const vipuagent::AgentPartition& partition, absl::string_view fabric_key,
                   bool require_encrypted_fabric, absl::string_view endpoint) {
  if (partition.fabric_key().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "partition ", partition.id(), " has no fabric key; reset the partition to give it one"));
  }
  if (!base::IsSecret(partition.fabric_key(), fabric_key)) {
    return absl::UnauthenticatedError(absl::StrCat(
        fabric_key.empty() ? "no fabric key for partition " : "wrong fabric key for partition ",
        partition.id(), "; fetch its IPUoF configuration again"));
  }
  if (!require_encrypted_fabric) return absl::OkStatus();
  for (const vipuagent::Peer& peer : partition.peers()) {
    if (StaysOnHost(peer.endpoint(), endpoint)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("partition ", partition.id(), " has IPUs on ", peer.endpoint(),
                     " too, and tensors would travel there in clear; this agent runs with "
                     "--require-encrypted-fabric"));
  }
  return absl::OkStatus();
}

}  // namespace vpod::agent
