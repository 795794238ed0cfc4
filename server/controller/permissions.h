// Rights of callers: one rule for every call of every service of the POD. Pure; enforced by
// server/rpc/call_guard.h and, where a rule speaks of a partition, by the user service.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vpod::controller {

enum class Rule {
  kAnyone,      // needs no key; with TLS, a certificate of the POD all the same
  kMember,      // controller and agents, who show the certificate of a server
  kUser,        // every user; lists show what the caller may see
  kAllocation,  // users of the partition's allocation
  kDevices,     // of these users, the partition's creator; all of them if it is shared
  kOwner,       // of these users, the partition's creator; administrators
  kAdmin,       // administrators
};

struct Permission {
  absl::string_view method;  // full name, e.g. "vipuuser.VipuUser.ResetPartition"
  Rule rule;
  absl::string_view words;  // for messages, e.g. "reset partition"
};

// Whether a call of that rule needs a user's access key.
inline bool NeedsKey(Rule rule) { return rule != Rule::kAnyone && rule != Rule::kMember; }

// All rules; each call has one.
const std::vector<Permission>& Permissions();
// The rule of a method. A method without one is a mistake of ours and refused as PermissionDenied.
absl::StatusOr<Permission> PermissionOf(absl::string_view method);
// The same for the path of a call as gRPC has it: "/vipuuser.VipuUser/ResetPartition".
absl::StatusOr<Permission> PermissionOfPath(absl::string_view path);

// The caller.
struct Caller {
  std::string user_id;
  bool admin = false;
  std::optional<std::set<std::string>> allocation_ids;  // those the user may use; unset: all
  // The hash of the access key, as it is stored. Two callers with different keys are not equal.
  std::string key_hash = "";

  bool operator==(const Caller&) const = default;

  bool MayUse(const std::string& allocation_id) const {
    return admin || !allocation_ids.has_value() || allocation_ids->contains(allocation_id);
  }
};

// Facts about a partition that a rule needs.
struct PartitionAccess {
  std::string id;
  std::string allocation_id;
  std::string created_by;
  bool shared = false;
};

// Whether a call may be made for a partition; the controller asks it under the lock under which the
// call is then carried out. Empty: it may.
using PartitionCheck = std::function<absl::Status(const PartitionAccess&)>;
// The same for a call that is about no partition yet.
using CallerCheck = std::function<absl::Status()>;

// Whether a user may make the call at all; rules about a partition are for the next function.
// PermissionDenied: "User <u> may not <words>."
absl::Status CheckCaller(const Permission& permission, const Caller& caller);
// Whether a user may make the call for that partition.
absl::Status CheckPartition(const Permission& permission, const Caller& caller,
                            const PartitionAccess& partition);
// Whether the caller sees the devices of a partition, and so its fabric key.
bool MayUseDevices(const Caller& caller, const PartitionAccess& partition);

}  // namespace vpod::controller
