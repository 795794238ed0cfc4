// Partitions: what users ask for. Which IPUs they get, and what users see of them.
#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "server/controller/controller.h"
#include "server/controller/requirements.h"
#include "server/controller/test_cluster.h"

namespace vpod::controller {
namespace {

using arch::kIpusPerMachine;

std::string ObjectOf(const std::string& id) { return absl::StrCat("partition ", id); }

// "4 IPUs of allocation c1 from ag0"
std::string PlaceText(const Cluster& cluster, const store::StoredPartition& partition) {
  const vipuuser::PartitionRequirements& r = partition.requirements();
  return absl::StrCat(base::Counted(r.size(), "IPU"), " of allocation ", r.allocation_id(),
                      " from ",
                      cluster.agents[partition.first_ipu() / kIpusPerMachine]->stored.id());
}

// Programs make it up, and it is kept as long as the partition.
absl::Status CheckRequestId(absl::string_view id) {
  constexpr size_t kMost = 128;
  if (id.size() > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("request_id has ", id.size(), " bytes; give at most ", kMost, "."));
  }
  if (base::IsTextLine(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request_id '", base::Printable(id), "' is not one line of printable text."));
}

// Keeps the values that an update does not name.
void KeepUnset(const store::StoredPartition& old, store::StoredPartition& next) {
  const vipuuser::PartitionRequirements& before = old.requirements();
  vipuuser::PartitionRequirements& r = *next.mutable_requirements();
  if (r.size() == 0) r.set_size(before.size());
  if (!r.has_reconfigurable()) r.set_reconfigurable(before.reconfigurable());
  if (!r.has_shared()) r.set_shared(before.shared());
  if (r.allocation_id().empty() && r.cluster_id().empty())
    r.set_allocation_id(before.allocation_id());
}

// What is wrong with a size that no partition of the allocation can have.
absl::Status TooLarge(uint32_t size, const Allocation& allocation, uint64_t pod_ipus) {
  const uint64_t ipus = allocation.room.ipus();
  const bool is_all = ipus >= pod_ipus;
  return absl::ResourceExhaustedError(absl::StrCat(
      size, " IPUs requested, allocation ", allocation.id, " has ", ipus,
      is_all ? ", which are all of the POD's" : absl::StrCat(" of the POD's ", pod_ipus), "; use ",
      allocation.room.LargestPartition(), " or less, or ",
      is_all ? "a larger POD." : "another allocation."));
}

}  // namespace

absl::StatusOr<Partition*> Controller::FindPartition(const std::string& id,
                                                     const PartitionCheck& check) {
  VPOD_ASSIGN_OR_RETURN(Partition * partition, FindPartition(id));
  if (check) VPOD_RETURN_IF_ERROR(check(AccessTo(*partition)));
  return partition;
}

void Controller::RaiseGeneration(store::StoredPartition& partition) {
  partition.set_generation(++generation_);
  partition.set_config_generation(generation_);
  partition.set_fabric_key(base::RandomId());
  partition.clear_ended_before();
}

absl::Status Controller::PlanIn(const Allocation& allocation, store::StoredPartition& partition,
                                Partition* replaced) {
  vipuuser::PartitionRequirements& r = *partition.mutable_requirements();
  // What else such a partition would lack, such as GW-Links, is of no interest then.
  if (arch::IsPowerOfTwo(r.size()) && r.size() > allocation.room.ipus())
    return TooLarge(r.size(), allocation, state_.agents.size() * kIpusPerMachine);
  const store::StoredCluster& cluster = allocation.cluster->stored;
  const ClusterFacts facts = {
      .id = cluster.id(),
      .ipus_per_ild = allocation.cluster->ipus_per_ild(),
      .is_torus = cluster.topology() == "torus",
      .has_gw_links = cluster.cluster_topology() != "none" || cluster.num_ipulinkdomains() == 1,
      .looped_ilds = cluster.cluster_topology() == "looped" ? cluster.num_ipulinkdomains() : 0};
  VPOD_RETURN_IF_ERROR(CompleteRequirements(facts, r));
  r.set_cluster_id(cluster.id());
  r.set_allocation_id(allocation.id);
  r.set_reconfigurable(r.reconfigurable());
  r.set_shared(r.shared());
  const int64_t index = r.has_index() ? static_cast<int64_t>(r.index().index()) : -1;
  absl::StatusOr<uint32_t> first;
  if (replaced != nullptr && replaced->allocation == &allocation) {
    Room room = allocation.room;
    const uint32_t present = allocation.FromCluster(replaced->first());
    room.Release(present, replaced->size());
    // A better place is no reason to move what nobody asked to move.
    const bool stays = index < 0 && r.size() == replaced->size() && room.CanHold(present, r.size());
    first = stays ? present : room.Place(r.size(), index);
  } else {
    first = allocation.room.Place(r.size(), index);
  }
  if (!first.ok()) return first.status();
  partition.set_first_ipu(allocation.ToCluster(*first));
  return absl::OkStatus();
}

absl::Status Controller::Plan(store::StoredPartition& partition, Partition* replaced,
                              const Caller& caller) {
  const vipuuser::PartitionRequirements& r = partition.requirements();
  const std::string& named = r.allocation_id();
  if (!named.empty()) {
    VPOD_ASSIGN_OR_RETURN(const Allocation* allocation, FindAllocation(named));
    if (!caller.MayUse(named)) {
      return absl::PermissionDeniedError(
          absl::StrCat("User ", caller.user_id, " may not use allocation ", named, "."));
    }
    if (!r.cluster_id().empty() && r.cluster_id() != allocation->cluster->id() &&
        r.cluster_id() != named) {
      return absl::InvalidArgumentError(absl::StrCat("Allocation ", named, " is in cluster ",
                                                     allocation->cluster->id(), ", not ",
                                                     r.cluster_id(), "."));
    }
    return PlanIn(*allocation, partition, replaced);
  }
  if (!r.cluster_id().empty()) VPOD_RETURN_IF_ERROR(FindCluster(r.cluster_id()).status());
  if (state_.clusters.empty())
    return absl::FailedPreconditionError("There is no cluster; create one first.");
  absl::Status refusal;
  uint32_t candidates = 0, largest = 0;
  for (const auto& [id, allocation] : state_.allocations) {
    if (!allocation->visible() || !caller.MayUse(id)) continue;
    if (!r.cluster_id().empty() && r.cluster_id() != allocation->cluster->id()) continue;
    ++candidates;
    largest = std::max(largest, allocation->room.ipus());
    store::StoredPartition attempt = partition;
    const absl::Status status = PlanIn(*allocation, attempt, replaced);
    if (status.ok()) {
      partition = std::move(attempt);
      return status;
    }
    // The most telling refusal: what is wrong with the request comes before what is full.
    if (refusal.ok() || absl::IsInvalidArgument(status)) refusal = status;
  }
  if (candidates == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "User ", caller.user_id, " has no allocation to use",
        r.cluster_id().empty() ? "" : absl::StrCat(" in cluster ", r.cluster_id()), "."));
  }
  if (candidates > 1 && r.size() > largest && absl::IsResourceExhausted(refusal)) {
    return absl::ResourceExhaustedError(absl::StrCat("Size ", r.size(),
                                                     " exceeds every allocation of user ",
                                                     caller.user_id, " (at most ", largest, ")."));
  }
  return refusal;
}

absl::StatusOr<std::string> Controller::CreatePartition(
    const vipuuser::CreatePartitionRequest& request, const Caller& caller,
    const CallerCheck& check) {
  const std::string& id = request.requirements().id();
  VPOD_RETURN_IF_ERROR(CheckId(id));
  VPOD_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  {
    base::MutexLock lock(mutex_);
    if (check) VPOD_RETURN_IF_ERROR(check());
    const Partition* existing = state_.FindPartition(id);
    if (existing != nullptr) {
      if (!request.request_id().empty() && existing->stored.request_id() == request.request_id())
        return id;
      return absl::AlreadyExistsError(absl::StrCat("Partition ", id, " already exists."));
    }
    store::StoredPartition stored;
    *stored.mutable_requirements() = request.requirements();
    VPOD_RETURN_IF_ERROR(Plan(stored, nullptr, caller));
    stored.set_created_by(caller.user_id);
    stored.set_created_at(std::time(nullptr));
    stored.set_request_id(request.request_id());
    stored.set_disable_auto_reset(request.disable_auto_reset());
    stored.set_relocatable(request.relocatable());
    RaiseGeneration(stored);
    const Cluster* cluster = state_.FindCluster(stored.requirements().cluster_id());
    VPOD_RETURN_IF_ERROR(Commit({{"partition", id, stored.SerializeAsString()}}, ObjectOf(id),
                                caller.user_id,
                                absl::StrCat("created with ", PlaceText(*cluster, stored))));
    removed_.erase(id);
    Partition& partition = state_.AddPartition(std::move(stored));
    partition.pending = pending_.insert(pending_.end(), &partition);
    partition.pending_since = options_.now();
  }
  Reconcile();
  return id;
}

absl::Status Controller::UpdatePartition(const vipuuser::UpdatePartitionRequest& request,
                                         const Caller& caller, const PartitionCheck& check) {
  const std::string& id = request.requirements().id();
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(Partition * partition, FindPartition(id, check));
    store::StoredPartition next = partition->stored;
    *next.mutable_requirements() = request.requirements();
    KeepUnset(partition->stored, next);
    if (request.has_disable_auto_reset()) next.set_disable_auto_reset(request.disable_auto_reset());
    if (request.has_relocatable()) next.set_relocatable(request.relocatable());
    VPOD_RETURN_IF_ERROR(Plan(next, partition, caller));
    RaiseGeneration(next);
    const Cluster* cluster = state_.FindCluster(next.requirements().cluster_id());
    VPOD_RETURN_IF_ERROR(CommitMove(*partition, next, caller.user_id,
                                    absl::StrCat("updated to ", PlaceText(*cluster, next))));
    state_.ReplacePartition(*partition, std::move(next));
    SetPending(*partition);
  }
  Reconcile();
  return absl::OkStatus();
}

absl::Status Controller::CommitMove(const Partition& partition, const store::StoredPartition& next,
                                    const std::string& user, std::string text) {
  const Cluster* cluster = state_.FindCluster(next.requirements().cluster_id());
  const uint32_t first = next.first_ipu() / kIpusPerMachine;
  const uint32_t last = (next.first_ipu() + next.requirements().size() - 1) / kIpusPerMachine;
  std::vector<Agent*> left = state_.AgentsOf(partition);
  std::erase_if(left, [&](const Agent* agent) {
    return agent->cluster == cluster && agent->position >= first && agent->position <= last;
  });
  std::vector<Change> changes = {{"partition", partition.id(), next.SerializeAsString()}};
  store::StoredRemoval removal = Removals::Of(partition, left);
  if (!left.empty()) changes.push_back(Removals::Row(removal));
  VPOD_RETURN_IF_ERROR(Commit(std::move(changes), ObjectOf(partition.id()), user, std::move(text)));
  if (!left.empty()) removals_.Add(std::move(removal), state_);
  return absl::OkStatus();
}

absl::Status Controller::Renew(Partition& partition, const std::string& user,
                               const std::string& text) {
  store::StoredPartition next = partition.stored;
  RaiseGeneration(next);
  VPOD_RETURN_IF_ERROR(Commit({{"partition", partition.id(), next.SerializeAsString()}},
                              ObjectOf(partition.id()), user, text));
  partition.stored = std::move(next);
  state_.Touch(partition);
  SetPending(partition);
  return absl::OkStatus();
}

absl::Status Controller::ResetPartition(const std::string& id, const std::string& user,
                                        const PartitionCheck& check) {
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(Partition * partition, FindPartition(id, check));
    if (const auto [trouble, text] = FindTrouble(*partition); trouble == Trouble::kAgentLost)
      return absl::FailedPreconditionError(
          absl::StrCat("Partition ", id, " cannot be reset: ", text));
    VPOD_RETURN_IF_ERROR(Renew(*partition, user, "reset"));
  }
  Reconcile();
  return absl::OkStatus();
}

absl::Status Controller::RemovePartition(const std::string& id, const std::string& user,
                                         const PartitionCheck& check) {
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(Partition * partition, FindPartition(id, check));
    store::StoredRemoval removal = Removals::Of(*partition, state_.AgentsOf(*partition));
    VPOD_RETURN_IF_ERROR(Commit({{"partition", id, std::nullopt}, Removals::Row(removal)},
                                ObjectOf(id), user, "removed"));
    Removed(*partition, std::move(removal));
  }
  Reconcile();
  return absl::OkStatus();
}

void Controller::Removed(Partition& partition, store::StoredRemoval removal) {
  removals_.Add(std::move(removal), state_);
  vipuuser::PartitionStatus status = DescribeStatus(partition);
  status.set_state(vipuuser::PS_REMOVED);
  status.set_provisioning_state(vipuuser::PRS_IDLE);
  const Clock::time_point now = options_.now();
  removed_[partition.id()] = {std::move(status), AccessTo(partition), now};
  removed_order_.emplace_back(now, partition.id());
  if (removed_order_.size() > options_.most_removed_kept) ForgetOldestRemoved();
  if (partition.state == vipuuser::PS_PENDING) pending_.erase(partition.pending);
  state_.RemovePartition(partition);
}

// --- What is seen ---

vipuuser::PartitionConfig Controller::DescribeGcd(const Partition& partition, uint32_t gcd) {
  const vipuuser::PartitionRequirements& r = partition.stored.requirements();
  const uint32_t per_gcd = r.size() / r.num_gcds();
  const uint32_t ipus_per_ild = partition.cluster->ipus_per_ild();
  vipuuser::PartitionConfig config;
  for (uint32_t routing_id = 0; routing_id < per_gcd; ++routing_id) {
    const uint32_t ipu = partition.first() + gcd * per_gcd + routing_id;
    const Agent& agent = *partition.cluster->agents[ipu / kIpusPerMachine];
    const uint32_t pcie_id = arch::IpuNumberOfPosition(ipu % kIpusPerMachine);
    vipuuser::IpuofDevice* device = config.add_devices();
    device->set_server_port(11000 + pcie_id);
    device->set_rdma_port(11100 + pcie_id);
    device->set_agent_id(agent.stored.id());
    device->set_ild(ipu / ipus_per_ild);
    device->set_routing_id(routing_id);
    device->set_pcie_id(pcie_id);
    if (agent.machine != nullptr) {
      device->set_ip(agent.machine->description.data_ip());
      device->set_endpoint(agent.machine->process->endpoint);
    }
  }
  auto& attributes = *config.mutable_attributes();
  attributes["GCD Id"] = absl::StrCat(gcd);
  attributes["Partition Id"] = r.id();
  attributes["Partition generation"] = absl::StrCat(partition.stored.config_generation());
  attributes["Number of GCDs"] = absl::StrCat(r.num_gcds());
  attributes["Number of replicas"] = absl::StrCat(r.num_replicas());
  attributes["Reconfigurable"] = r.reconfigurable() ? "true" : "false";
  attributes["Sync type"] = r.sync_type();
  attributes["Routing type"] = r.ipu_link_routing();
  for (const auto& [key, value] : TargetOptions(r)) attributes[key] = value;
  config.set_fabric_key(partition.stored.fabric_key());
  return config;
}

vipuuser::PartitionStatus Controller::DescribeStatus(const Partition& partition,
                                                     bool with_target_options) {
  vipuuser::PartitionStatus status;
  status.set_state(partition.state);
  status.set_provisioning_state(partition.state == vipuuser::PS_PENDING ? vipuuser::PRS_BUSY
                                                                        : vipuuser::PRS_IDLE);
  status.set_error(partition.state == vipuuser::PS_ERROR
                       ? static_cast<uint32_t>(absl::StatusCode::kAborted)
                       : 0);
  status.set_message(partition.last_error.empty() ? FindParityError(partition)
                                                  : partition.last_error);
  status.set_num_ilds(partition.stored.requirements().num_ilds());
  status.set_created_by(partition.stored.created_by());
  status.set_created_at(partition.stored.created_at());
  status.set_generation(partition.stored.generation());
  if (!with_target_options) return status;
  for (auto& [key, value] : TargetOptions(partition.stored.requirements()))
    (*status.mutable_target_options())[key] = value;
  return status;
}

vipuuser::Partition Controller::DescribePartition(const Partition& partition, bool with_devices) {
  vipuuser::Partition result;
  *result.mutable_requirements() = partition.stored.requirements();
  *result.mutable_status() = DescribeStatus(partition, with_devices);
  for (uint32_t gcd = 0; with_devices && gcd < result.requirements().num_gcds(); ++gcd)
    *result.add_gcds() = DescribeGcd(partition, gcd);
  return result;
}

std::vector<vipuuser::Partition> Controller::ListPartitions(bool with_devices) {
  base::MutexLock lock(mutex_);
  std::vector<vipuuser::Partition> result;
  result.reserve(state_.partitions.size());
  for (const auto& [id, partition] : state_.partitions)
    result.push_back(DescribePartition(*partition, with_devices));
  return result;
}

absl::StatusOr<vipuuser::Partition> Controller::GetPartition(const std::string& id,
                                                             const PartitionCheck& check) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Partition* partition, FindPartition(id, check));
  return DescribePartition(*partition, /*with_devices=*/true);
}

absl::StatusOr<vipuuser::PartitionStatus> Controller::GetPartitionStatus(
    const std::string& id, const PartitionCheck& check) {
  base::MutexLock lock(mutex_);
  const auto removed = removed_.find(id);
  if (removed != removed_.end()) {
    if (check) VPOD_RETURN_IF_ERROR(check(removed->second.access));
    return removed->second.status;
  }
  VPOD_ASSIGN_OR_RETURN(const Partition* partition, FindPartition(id, check));
  return DescribeStatus(*partition);
}

absl::StatusOr<vipuuser::PartitionConfig> Controller::GetPartitionConfig(
    const std::string& id, std::optional<uint32_t> gcd, const PartitionCheck& check) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const Partition* partition, FindPartition(id, check));
  const uint32_t gcds = partition->stored.requirements().num_gcds();
  if (!gcd.has_value() && gcds > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Partition has ", gcds, " GCDs; give a GCD id."));
  }
  const uint32_t number = gcd.value_or(0);
  if (number >= gcds) {
    return absl::InvalidArgumentError(absl::StrCat("Partition has ", base::Counted(gcds, "GCD"),
                                                   "; GCD ", number, " does not exist."));
  }
  if (partition->state != vipuuser::PS_ACTIVE) {
    const bool releasing = partition->state == vipuuser::PS_RELEASING;
    return absl::FailedPreconditionError(
        absl::StrCat("Partition ", id, " is not ACTIVE (state ", StateText(partition->state),
                     releasing ? ": " : "", releasing ? partition->last_error : "", ")."));
  }
  return DescribeGcd(*partition, number);
}

absl::StatusOr<uint32_t> Controller::AvailablePartitions(uint32_t size, const Caller& caller) {
  if (!arch::IsPowerOfTwo(size)) return absl::InvalidArgumentError("Size must be a power of two.");
  base::MutexLock lock(mutex_);
  uint32_t available = 0;
  for (const auto& [id, allocation] : state_.allocations) {
    if (allocation->visible() && caller.MayUse(id)) available += allocation->room.Available(size);
  }
  return available;
}

std::vector<vipuuser::IpuAttributes> Controller::ListIpuAttributes(
    const Caller& caller, const IsCancelled& is_cancelled) {
  std::vector<MachineAddress> machines;
  {
    base::MutexLock lock(mutex_);
    for (const auto& [id, cluster] : state_.clusters) {
      for (const Agent* agent : cluster->agents) {
        const auto address = AddressOf(*agent);
        if (address.ok() && caller.MayUse(agent->allocation->id)) machines.push_back(*address);
      }
    }
  }
  std::vector<vipuuser::IpuAttributes> result;
  std::set<std::string> lost;  // end-points that did not answer
  for (const MachineAddress& machine : machines) {
    if (is_cancelled()) break;
    if (lost.contains(machine.endpoint)) continue;
    auto description = gateway_->DescribeMachine(machine.endpoint, machine.host);
    if (IsSilence(description.status())) lost.insert(machine.endpoint);
    if (!description.ok()) continue;
    for (vipuagent::MachineIpu& ipu : *description->mutable_ipus()) {
      vipuuser::IpuAttributes& attributes = result.emplace_back();
      attributes.set_agent_id(machine.agent_id);
      attributes.set_pcie_id(ipu.pcie_id());
      attributes.mutable_attributes()->swap(*ipu.mutable_attributes());
    }
  }
  return result;
}

}  // namespace vpod::controller
