#include "server/agent/admission.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/keyed_hash.h"
#include "device/base/secret.h"

namespace vpod::agent {
namespace {

absl::string_view HostOf(absl::string_view endpoint) {
  return endpoint.substr(0, endpoint.rfind(':'));
}

constexpr size_t kProofDigits = 32;  // 128 bits, as the partition's secret has

// The user of a user's key; empty for the secret itself; nothing for any other text.
std::optional<std::string> UserOf(absl::string_view secret, absl::string_view key) {
  if (base::IsSecret(secret, key)) return "";
  if (key.size() < kProofDigits || key.size() % 2 != 0 ||
      !std::all_of(key.begin(), key.end(),
                   [](unsigned char digit) { return absl::ascii_isxdigit(digit); })) {
    return std::nullopt;
  }
  std::string user = absl::HexStringToBytes(key.substr(kProofDigits));
  if (!base::IsSecret(FabricKeyFor(secret, user), key)) return std::nullopt;
  return user;
}

}  // namespace

std::string FabricKeyFor(absl::string_view secret, absl::string_view user) {
  return base::KeyedHashHex(secret, absl::StrCat("fabric key of ", user)).substr(0, kProofDigits) +
         absl::BytesToHexString(user);
}

bool StaysOnHost(absl::string_view peer_endpoint, absl::string_view endpoint) {
  const absl::string_view host = HostOf(peer_endpoint);
  return host == HostOf(endpoint) || absl::StartsWith(host, "127.") || host == "localhost";
}

absl::StatusOr<std::string> Admit(const vipuagent::AgentPartition& partition,
                                  absl::string_view fabric_key, bool require_encrypted_fabric,
                                  absl::string_view endpoint) {
  if (partition.fabric_key().empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "partition ", partition.id(), " has no fabric key; reset the partition to give it one"));
  }
  std::optional<std::string> user = UserOf(partition.fabric_key(), fabric_key);
  if (!user.has_value()) {
    return absl::UnauthenticatedError(absl::StrCat(
        fabric_key.empty() ? "no fabric key for partition " : "wrong fabric key for partition ",
        partition.id(), "; fetch its IPUoF configuration again"));
  }
  if (!require_encrypted_fabric) return *std::move(user);
  for (const vipuagent::Peer& peer : partition.peers()) {
    if (StaysOnHost(peer.endpoint(), endpoint)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("partition ", partition.id(), " has IPUs on ", peer.endpoint(),
                     " too, and tensors would travel there in clear; this agent runs with "
                     "--require-encrypted-fabric"));
  }
  return *std::move(user);
}

}  // namespace vpod::agent
