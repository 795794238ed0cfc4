// Reads the state at start. Data that no controller writes is refused by name, and the store stays
// as it is: better no controller than one that gives IPUs twice.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/counted.h"
#include "device/base/status.h"
#include "server/controller/controller.h"

namespace vpod::controller {
namespace {

using arch::kIpusPerMachine;

template <class... What>
absl::Status Broken(absl::string_view kind, const std::string& id, const What&... what) {
  return absl::DataLossError(
      absl::StrCat("storage: ", kind, " ", id, " ", what..., "; restore a backup"));
}

template <class Message>
const std::string& IdOf(const Message& message) {
  if constexpr (requires { message.requirements(); }) {
    return message.requirements().id();
  } else {
    return message.id();
  }
}

template <class Message, class Take>
absl::Status LoadKind(Store& store, absl::string_view kind, const Take& take) {
  VPOD_ASSIGN_OR_RETURN(const auto rows, store.Load(kind));
  for (const auto& [id, data] : rows) {
    Message message;
    if (!message.ParseFromString(data) || IdOf(message) != id)
      return Broken(kind, id, "is damaged");
    VPOD_RETURN_IF_ERROR(take(std::move(message)));
  }
  return absl::OkStatus();
}

absl::Status CheckAgent(const State& state, const store::StoredAgent& agent) {
  const auto other = state.agent_by_address.find(HostPort(agent.host(), agent.port()));
  if (other == state.agent_by_address.end()) return absl::OkStatus();
  return Broken("agent", agent.id(), "has the address of agent ", other->second->stored.id());
}

absl::Status CheckCluster(const State& state, const store::StoredCluster& cluster) {
  const uint32_t ilds = cluster.num_ipulinkdomains();
  if (ilds == 0 || cluster.agent_ids().empty() ||
      static_cast<uint32_t>(cluster.agent_ids_size()) % ilds != 0) {
    return Broken("cluster", cluster.id(), "has ",
                  base::Counted(static_cast<uint64_t>(cluster.agent_ids_size()), "agent"), " in ",
                  base::Counted(ilds, "IPU-Link domain"));
  }
  std::set<absl::string_view> seen;
  for (const std::string& id : cluster.agent_ids()) {
    const Agent* agent = state.FindAgent(id);
    if (agent == nullptr)
      return Broken("cluster", cluster.id(), "names agent ", id, " that does not exist");
    if (agent->cluster != nullptr || !seen.insert(id).second)
      return Broken("cluster", cluster.id(), "names agent ", id, " that is in a cluster already");
  }
  return absl::OkStatus();
}

absl::Status CheckAllocation(const State& state, const store::StoredAllocation& allocation) {
  const std::string& id = allocation.id();
  const Cluster* cluster = state.FindCluster(allocation.cluster_id());
  if (cluster == nullptr)
    return Broken("allocation", id, "names cluster ", allocation.cluster_id(),
                  " that does not exist");
  if (state.allocations.contains(id)) return Broken("allocation", id, "has the id of a cluster");
  std::set<absl::string_view> seen;
  for (const std::string& agent_id : allocation.agent_ids()) {
    const Agent* agent = state.FindAgent(agent_id);
    if (agent == nullptr || agent->cluster != cluster)
      return Broken("allocation", id, "names agent ", agent_id, " that does not exist");
    if (!agent->allocation->is_default || !seen.insert(agent_id).second)
      return Broken("allocation", id, "names agent ", agent_id,
                    " that is in an allocation already");
  }
  return absl::OkStatus();
}

// The partition that has one of these IPUs of the cluster, or null.
const Partition* FindTaken(const Cluster& cluster, uint64_t first, uint64_t end) {
  auto it = cluster.partitions.lower_bound(static_cast<uint32_t>(end));
  if (it == cluster.partitions.begin()) return nullptr;
  const Partition* last = std::prev(it)->second;
  return uint64_t{last->first()} + last->size() > first ? last : nullptr;
}

absl::Status CheckPartition(const State& state, const store::StoredPartition& partition) {
  const vipuuser::PartitionRequirements& r = partition.requirements();
  if (r.size() == 0 || r.num_gcds() == 0 || r.size() % r.num_gcds() != 0)
    return Broken("partition", r.id(), "has ", base::Counted(r.size(), "IPU"), " in ",
                  base::Counted(r.num_gcds(), "GCD"));
  const absl::Status missing = Broken("partition", r.id(), "names IPUs of allocation ",
                                      r.allocation_id(), " that do not exist");
  const Allocation* allocation = state.FindAllocation(r.allocation_id());
  if (allocation == nullptr || allocation->cluster->id() != r.cluster_id()) return missing;
  const Cluster& cluster = *allocation->cluster;
  const uint64_t first = partition.first_ipu(), end = first + r.size();
  if (end > cluster.agents.size() * kIpusPerMachine) return missing;
  for (uint64_t position = first / kIpusPerMachine; position * kIpusPerMachine < end; ++position) {
    if (cluster.agents[position]->allocation != allocation) return missing;
  }
  const Partition* other = FindTaken(cluster, first, end);
  if (other == nullptr) return absl::OkStatus();
  return Broken("partition", r.id(), "has IPUs that partition ", other->id(), " has too");
}

}  // namespace

absl::Status Controller::LoadState() {
  VPOD_ASSIGN_OR_RETURN(users_, Users::Load(*store_));
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(const uint64_t last_event, store_->LastEvent());
  events_ = EventLog(last_event);
  VPOD_ASSIGN_OR_RETURN(generation_, store_->Counter("generation"));
  VPOD_ASSIGN_OR_RETURN(const uint64_t fenced, store_->Counter("fenced"));
  if (fenced != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("storage: another controller has taken over from this one, which had epoch ",
                     fenced, "; if that one is gone for good, start with --take-over"));
  }
  VPOD_RETURN_IF_ERROR(LoadKind<store::StoredAgent>(*store_, "agent", [&](auto agent) {
    VPOD_RETURN_IF_ERROR(CheckAgent(state_, agent));
    state_.Await(state_.AddAgent(std::move(agent)), started_);
    return absl::OkStatus();
  }));
  VPOD_RETURN_IF_ERROR(LoadKind<store::StoredCluster>(*store_, "cluster", [&](auto cluster) {
    VPOD_RETURN_IF_ERROR(CheckCluster(state_, cluster));
    state_.AddCluster(std::move(cluster));
    return absl::OkStatus();
  }));
  VPOD_RETURN_IF_ERROR(
      LoadKind<store::StoredAllocation>(*store_, "allocation", [&](auto allocation) {
        VPOD_RETURN_IF_ERROR(CheckAllocation(state_, allocation));
        state_.AddAllocation(allocation);
        return absl::OkStatus();
      }));
  VPOD_RETURN_IF_ERROR(LoadKind<store::StoredPartition>(*store_, "partition", [&](auto stored) {
    VPOD_RETURN_IF_ERROR(CheckPartition(state_, stored));
    generation_ = std::max(generation_, stored.generation());
    // Older controllers kept whatever a client had sent with it, and every list showed that.
    stored.mutable_requirements()->DiscardUnknownFields();
    if (stored.config_generation() == 0) stored.set_config_generation(stored.generation());
    Partition& partition = state_.AddPartition(std::move(stored));
    partition.pending_since = options_.now();
    partition.pending = pending_.insert(pending_.end(), &partition);
    return absl::OkStatus();
  }));
  VPOD_RETURN_IF_ERROR(LoadKind<store::StoredRemoval>(*store_, "removal", [&](auto removal) {
    removals_.Add(std::move(removal), state_);
    return absl::OkStatus();
  }));
  return GiveMissingKeys();
}

absl::Status Controller::GiveMissingKeys() {
  for (const auto& [id, partition] : state_.partitions) {
    if (!partition->stored.fabric_key().empty()) continue;
    VPOD_RETURN_IF_ERROR(
        Renew(*partition, "", "reset: an older vipu-server had given it no fabric key"));
  }
  return absl::OkStatus();
}

}  // namespace vpod::controller
