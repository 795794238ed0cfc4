// Configurations: which partitions the agent has, by the controller's word, and which leases end by
// it.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/base/counted.h"
#include "device/base/secret.h"
#include "device/base/status.h"
#include "server/agent/agent.h"
#include "server/agent/agent_state.h"

namespace vpod::agent {
namespace {

// Whether only the key of a partition's configuration is another one.
bool IsKeyChange(const vipuagent::AgentPartition& before, const vipuagent::AgentPartition& after) {
  return before.config_generation() == after.config_generation() &&
         before.fabric_key() != after.fabric_key();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent::Partition>> Agent::MakePartition(
    const vipuagent::AgentPartition& spec) const {
  const auto wrong = [&](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat("partition ", spec.id(), ": ", parts...));
  };
  auto partition = std::make_unique<Partition>();
  partition->spec = spec;
  if (spec.config_generation() == 0) partition->spec.set_config_generation(spec.generation());
  uint32_t gcd = 0;
  for (const vipuagent::Gcd& description : spec.gcds()) {
    std::vector<Member>& members = partition->gcds.emplace_back();
    for (const vipuagent::Slice& slice : description.slices()) {
      if (slice.first_pcie_id() >= arch::kIpusPerMachine || slice.num_ipus() < 1 ||
          slice.num_ipus() > slice.first_pcie_id() + 1) {
        return wrong(base::Counted(slice.num_ipus(), "IPU"), " of machine ", slice.machine_host(),
                     " from IPU ", slice.first_pcie_id(), " down do not exist");
      }
      const auto machine = machine_by_host_.find(slice.machine_host());
      const bool here = machine != machine_by_host_.end();
      if (!here && (slice.endpoint().empty() || slice.endpoint() == endpoint_)) {
        return wrong("machine ", slice.machine_host(), " is not on this agent");
      }
      for (uint32_t i = 0; i < slice.num_ipus(); ++i) {
        const auto routing_id = static_cast<uint32_t>(members.size());
        const uint32_t number = slice.first_pcie_id() - i;
        members.push_back(
            {here ? static_cast<uint32_t>(machine->second * arch::kIpusPerMachine + number)
                  : Member::kElsewhere,
             gcd, routing_id});
      }
    }
    ++gcd;
  }
  // The slices were found to exist.
  if (auto wiring = Wiring::Create(spec); wiring.ok())
    partition->wiring = std::make_shared<const Wiring>(*std::move(wiring));
  return partition;
}

absl::Status Agent::CheckDisjoint(const PartitionsById& changed,
                                  const std::set<std::string>& going) const {
  std::set<uint32_t> taken;
  for (const auto& [id, partition] : changed) {
    for (const auto& gcd : partition->gcds) {
      for (const Member& member : gcd) {
        if (!member.here()) continue;
        const std::string& other = partition_of_[member.ipu];
        const bool stays = !other.empty() && other != id && !going.contains(other);
        if (stays || !taken.insert(member.ipu).second) {
          return absl::InvalidArgumentError(absl::StrCat(
              "partition ", id, ": IPU ", member.ipu % arch::kIpusPerMachine, " of machine ",
              machines_[member.ipu / arch::kIpusPerMachine]->identity().management_ip,
              " is in two partitions"));
        }
      }
    }
  }
  return absl::OkStatus();
}

void Agent::SetPartitionOfIpus(const Partition& partition, const std::string& id) {
  for (const auto& gcd : partition.gcds) {
    for (const Member& member : gcd) {
      if (member.here()) partition_of_[member.ipu] = id;
    }
  }
}

absl::Status Agent::CheckFollows(const vipuagent::ConfigureRequest& request) const {
  const bool same_controller = request.controller_boot_id() == controller_boot_id_;
  const bool same_store =
      !request.controller_store().empty() && request.controller_store() == controller_store_;
  if (!same_controller && same_store && request.controller_epoch() <= controller_epoch_) {
    return absl::AlreadyExistsError(
        absl::StrCat("a controller of epoch ", controller_epoch_, " has configured the agent at ",
                     endpoint_, "; this one has epoch ", request.controller_epoch()));
  }
  if (same_controller && request.sequence() < configure_sequence_)
    return absl::AbortedError("an older configuration arrived late");
  if (!request.complete() && (!same_controller || request.base_sequence() != configure_sequence_)) {
    return absl::FailedPreconditionError(
        "the change refers to a configuration that this agent does not have");
  }
  return absl::OkStatus();
}

std::set<std::string> Agent::Going(const vipuagent::ConfigureRequest& request,
                                   const PartitionsById& changed) const {
  std::set<std::string> going;
  for (const vipuagent::RemovedPartition& removed : request.removed()) {
    const auto it = partitions_.find(removed.id());
    if (it != partitions_.end() && it->second->spec.config_generation() <= removed.generation())
      going.insert(removed.id());
  }
  if (request.complete()) {
    for (const auto& [id, partition] : partitions_) going.insert(id);
    for (const vipuagent::KeptPartition& kept : request.kept()) {
      const auto it = partitions_.find(kept.id());
      if (it != partitions_.end() &&
          it->second->spec.config_generation() == kept.config_generation())
        going.erase(kept.id());
    }
  }
  for (const auto& [id, partition] : changed) going.insert(id);
  return going;
}

void Agent::ReplacePartitions(const std::set<std::string>& going, PartitionsById changed) {
  std::set<std::string> in_use;
  for (const auto& [id, lease] : leases_) {
    const auto kept = changed.find(lease->open.partition_id());
    if (!lease->releasing && kept != changed.end() &&
        kept->second->spec.config_generation() == lease->open.generation())
      in_use.insert(kept->first);
  }
  for (const std::string& id : going) {
    const auto old = partitions_.find(id);
    if (old == partitions_.end()) continue;
    const auto kept = changed.find(id);
    // A new key of an old configuration resets nothing.
    const bool same = kept != changed.end() && IsKeyChange(old->second->spec, kept->second->spec);
    if (kept == changed.end() ||
        (!same && kept->second->spec.generation() != old->second->spec.generation()))
      used_.erase(id);
    if (kept != changed.end() && !same && !in_use.contains(id) &&
        kept->second->spec.generation() > old->second->spec.generation())
      ClearIpus(*old->second, *kept->second);
    EndSimulatedErrors(*old->second, kept == changed.end() ? nullptr : kept->second.get());
    SetPartitionOfIpus(*old->second, "");
    partitions_.erase(old);
  }
  for (auto& [id, partition] : changed) {
    SetPartitionOfIpus(*partition, id);
    partitions_[id] = std::move(partition);
  }
}

absl::Status Agent::Configure(const vipuagent::ConfigureRequest& request) {
  // Over the network the id is demanded (server/rpc/incoming_configuration.h).
  if (!request.agent_boot_id().empty() && !base::IsSecret(boot_id_, request.agent_boot_id())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the configuration is for an earlier process at ", endpoint_));
  }
  PartitionsById changed;
  for (const vipuagent::AgentPartition& spec : request.partitions()) {
    if (changed.contains(spec.id()))
      return absl::InvalidArgumentError(absl::StrCat("partition ", spec.id(), " is named twice"));
    VPOD_ASSIGN_OR_RETURN(changed[spec.id()], MakePartition(spec));
  }
  std::vector<std::pair<LeasePtr, std::string>> revoked;
  {
    base::MutexLock lock(mutex_);
    VPOD_RETURN_IF_ERROR(CheckFollows(request));
    const std::set<std::string> going = Going(request, changed);
    VPOD_RETURN_IF_ERROR(CheckDisjoint(changed, going));
    controller_boot_id_ = request.controller_boot_id();
    controller_epoch_ = request.controller_epoch();
    controller_store_ = request.controller_store();
    controller_proof_ = request.controller_proof();
    configure_sequence_ = request.sequence();
    revoked = Revoked(request, changed, going);
    ReplacePartitions(going, std::move(changed));
  }
  Revoke(revoked);
  return absl::OkStatus();
}

bool Agent::HasEnded(const vipuagent::AgentPartition& spec, const Lease& lease) {
  // A lease that was opened by no user's key may be anybody's.
  return std::any_of(spec.ended_before().begin(), spec.ended_before().end(), [&](const auto& end) {
    return lease.taken_at < end.second && (lease.user.empty() || lease.user == end.first);
  });
}

std::vector<std::pair<Agent::LeasePtr, std::string>> Agent::Revoked(
    const vipuagent::ConfigureRequest& request, const PartitionsById& changed,
    const std::set<std::string>& going) {
  std::map<std::string, uint64_t> removed;  // up to which generation
  for (const vipuagent::RemovedPartition& partition : request.removed()) {
    uint64_t& generation = removed[partition.id()];
    generation = std::max(generation, partition.generation());
  }
  std::vector<std::pair<LeasePtr, std::string>> revoked;
  for (const auto& [lease_id, lease] : leases_) {
    if (lease->releasing) continue;
    const std::string& id = lease->open.partition_id();
    const uint64_t held = lease->open.generation();
    // Generations of another store say nothing about this one.
    if (lease->store != request.controller_store()) {
      const auto old = partitions_.find(id);
      if (lease->unclaimed == nullptr && old != partitions_.end()) lease->unclaimed = old->second;
      continue;
    }
    const auto now = changed.find(id);
    const auto gone = removed.find(id);
    const uint64_t next = now == changed.end() ? 0 : now->second->spec.config_generation();
    if (next > held) {
      revoked.emplace_back(lease, absl::StrCat("partition ", id, " was reset or changed"));
    } else if (gone != removed.end() && held <= gone->second) {
      revoked.emplace_back(lease, absl::StrCat("partition ", id, " was removed"));
    } else if (next == held && HasEnded(now->second->spec, *lease)) {
      const std::string right =
          lease->user.empty() ? "a user's right" : absl::StrCat("the right of user ", lease->user);
      revoked.emplace_back(lease, absl::StrCat(right, " to partition ", id, " was taken away"));
    } else if (next == held) {
      lease->unclaimed = nullptr;
    } else if (going.contains(id) && lease->unclaimed == nullptr) {
      const auto old = partitions_.find(id);
      if (old != partitions_.end()) lease->unclaimed = old->second;
    }
  }
  return revoked;
}

void Agent::Revoke(const std::vector<std::pair<LeasePtr, std::string>>& leases) {
  // All are marked before any client hears of it: one that ends because of it ends its own lease,
  // too, and that is not the reason.
  std::vector<std::pair<LeasePtr, absl::Status>> ending;
  for (const auto& [lease, reason] : leases) {
    const absl::Status cause = absl::AbortedError(reason);
    if (MarkReleasing(lease, cause)) ending.emplace_back(lease, cause);
  }
  for (const auto& [lease, cause] : ending) {
    if (lease->events.on_revoked) lease->events.on_revoked(cause);
    GoOnReleasing(lease, cause, /*lost=*/false);
  }
}

void Agent::Disown() {
  base::MutexLock lock(mutex_);
  for (const auto& [id, lease] : leases_) {
    const auto partition = partitions_.find(lease->open.partition_id());
    if (!lease->releasing && lease->unclaimed == nullptr && partition != partitions_.end())
      lease->unclaimed = partition->second;
  }
  for (const auto& [id, partition] : partitions_) {
    EndSimulatedErrors(*partition, nullptr);
    SetPartitionOfIpus(*partition, "");
  }
  partitions_.clear();
  used_.clear();
  configure_sequence_ = 0;  // the controller has to send everything again
}

}  // namespace vpod::agent
