// Keeps the agents' processes told of their partitions, and the partitions' states in step with
// what the processes confirm and how their machines are.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/device_id.h"
#include "device/arch/hardware.h"
#include "device/base/secret.h"
#include "device/base/text.h"
#include "server/controller/controller.h"
#include "server/controller/requirements.h"

namespace vpod::controller {
namespace {

using arch::kIpusPerMachine;

// Whether clients may use it: a reset after the last client may still be under way.
bool IsConfirmed(const Partition& partition) {
  const uint64_t needed =
      std::max(partition.stored.config_generation(), partition.stored.key_generation());
  return partition.unregistered == 0 &&
         std::all_of(partition.holders.begin(), partition.holders.end(),
                     [&](const Process* holder) {
                       const auto it = holder->confirmed.find(partition.id());
                       return holder->up && it != holder->confirmed.end() && it->second >= needed;
                     });
}

// Refused by an agent: not told again until it is reset or changed.
bool IsRefused(const Partition& partition) {
  return partition.state == vipuuser::PS_ERROR && partition.trouble == Trouble::kRefused;
}

// Returns how GW-Links join the ILDs of a partition. In a looped cluster they close to a ring only
// if it has all ILDs and is routed as a ring; two ILDs have both cables of the loop in any case.
std::string GwTopologyOf(const Partition& partition) {
  const vipuuser::PartitionRequirements& r = partition.stored.requirements();
  const store::StoredCluster& cluster = partition.cluster->stored;
  if (cluster.cluster_topology() != "looped") return cluster.cluster_topology();
  const bool whole = r.num_ilds() == cluster.num_ipulinkdomains();
  return whole && (r.num_ilds() == 2 || r.gw_link_routing() == "RING") ? "looped" : "mesh";
}

void AddRemoved(const std::string& id, uint64_t generation, vipuagent::ConfigureRequest& request) {
  vipuagent::RemovedPartition* removed = request.add_removed();
  removed->set_id(id);
  removed->set_generation(generation);
}

// Leaves the partition to a later configuration. The agent keeps it if its generation is right, and
// drops an older one.
void AddLater(const Partition& partition, vipuagent::ConfigureRequest& request) {
  AddRemoved(partition.id(), partition.stored.config_generation() - 1, request);
  if (!request.complete()) return;
  vipuagent::KeptPartition* kept = request.add_kept();
  kept->set_id(partition.id());
  kept->set_config_generation(partition.stored.config_generation());
}

}  // namespace

// --- States ---

void Controller::SetState(Partition& partition, vipuuser::PartitionState state, Trouble trouble,
                          const std::string& error) {
  const std::string before = StateText(partition.state);
  if (partition.state == vipuuser::PS_PENDING) pending_.erase(partition.pending);
  partition.state = state;
  partition.trouble = trouble;
  partition.last_error = base::Printable(error, kMostReasonBytes);
  if (state == vipuuser::PS_PENDING) {
    partition.pending = pending_.insert(pending_.end(), &partition);
    partition.pending_since = options_.now();
  }
  if (state == vipuuser::PS_ERROR && partition.stored.relocatable()) {
    stranded_.insert(partition.id());
    partition.room_without_place = 0;
  }
  const std::string after = StateText(partition.state);
  if (before == after && state != vipuuser::PS_ERROR) return;
  events_.Add(state == vipuuser::PS_ERROR ? Severity::kError : Severity::kInfo,
              absl::StrCat("partition ", partition.id()),
              absl::StrCat(before, " -> ", after, partition.last_error.empty() ? "" : ": ",
                           partition.last_error));
}

void Controller::SetPending(Partition& partition) { SetState(partition, vipuuser::PS_PENDING); }

void Controller::SetUsable(Partition& partition) {
  const std::string releasing = FindReleasing(partition);
  if (releasing.empty()) return SetState(partition, vipuuser::PS_ACTIVE);
  SetState(partition, vipuuser::PS_RELEASING, Trouble::kNone, releasing);
}

void Controller::UpdateState(Partition& partition, bool health_is_fresh) {
  const auto [trouble, text] = FindTrouble(partition);
  const bool confirmed = IsConfirmed(partition);
  switch (partition.state) {
    case vipuuser::PS_PENDING:
      if (trouble == Trouble::kAgentLost) {
        SetState(partition, vipuuser::PS_ERROR, trouble, text);
        break;
      }
      if (!confirmed || options_.now() - partition.pending_since < options_.provisioning_delay)
        break;
      if (trouble == Trouble::kNone) {
        SetUsable(partition);
      } else if (health_is_fresh) {
        // Not before: the reset that was just confirmed may have cured what was last told.
        SetState(partition, vipuuser::PS_ERROR, trouble, text);
      }
      break;
    case vipuuser::PS_RELEASING:
      if (trouble != Trouble::kNone) {
        SetState(partition, vipuuser::PS_ERROR, trouble, text);
      } else if (!confirmed) {
        SetPending(partition);
      } else {
        SetUsable(partition);
      }
      break;
    case vipuuser::PS_ACTIVE:
      if (trouble != Trouble::kNone) {
        SetState(partition, vipuuser::PS_ERROR, trouble, text);
      } else if (!confirmed) {
        SetPending(partition);  // its agent restarted
      }
      break;
    case vipuuser::PS_ERROR:
      if (trouble != Trouble::kNone || partition.stored.disable_auto_reset() ||
          partition.trouble == Trouble::kRefused ||
          (partition.trouble == Trouble::kTimeout && !confirmed)) {
        break;
      }
      // Back by itself: the lost agents have returned, or confirmed late.
      SetPending(partition);
      if (confirmed) SetUsable(partition);
      break;
    default:
      break;
  }
}

void Controller::EndProvisioningDelays() {
  if (options_.provisioning_delay.count() == 0) return;
  std::vector<Partition*> due;
  for (Partition* partition : pending_) {
    if (options_.now() - partition->pending_since < options_.provisioning_delay) break;
    due.push_back(partition);
  }
  for (Partition* partition : due) UpdateState(*partition);
}

void Controller::Relocate(Partition& partition) {
  if (partition.trouble != Trouble::kAgentLost && partition.trouble != Trouble::kUnwell) return;
  if (partition.stored.requirements().has_index()) return;     // its place was chosen
  if (FindTrouble(partition).first == Trouble::kNone) return;  // it is well again where it is
  const uint64_t room = partition.allocation->room.version();
  if (partition.room_without_place == room) return;
  store::StoredPartition next = partition.stored;
  if (!PlanIn(*partition.allocation, next, &partition).ok()) {
    partition.room_without_place = room;
    return;
  }
  RaiseGeneration(next);
  const std::string to = partition.cluster->agents[next.first_ipu() / kIpusPerMachine]->stored.id();
  const absl::Status committed = CommitMove(
      partition, next, "", absl::StrCat("relocated to IPUs from ", to, ": ", partition.last_error));
  if (!committed.ok()) return;
  state_.ReplacePartition(partition, std::move(next));
  SetPending(partition);
}

void Controller::RelocateStranded() {
  for (auto it = stranded_.begin(); it != stranded_.end();) {
    Partition* partition = state_.FindPartition(*it);
    if (partition != nullptr && partition->state == vipuuser::PS_ERROR) Relocate(*partition);
    const bool stays = partition != nullptr && partition->state == vipuuser::PS_ERROR;
    it = stays ? std::next(it) : stranded_.erase(it);
  }
}

// --- Configuration ---

void Controller::Describe(const Partition& partition, vipuagent::AgentPartition& spec) {
  const vipuuser::PartitionRequirements& r = partition.stored.requirements();
  spec.set_id(r.id());
  spec.set_generation(partition.stored.generation());
  spec.set_config_generation(partition.stored.config_generation());
  spec.set_reconfigurable(r.reconfigurable());
  spec.set_num_replicas(r.num_replicas());
  spec.set_sync_type(r.sync_type());
  spec.set_ild_routing(r.ipu_link_routing());
  spec.set_gw_routing(r.gw_link_routing());
  spec.set_cluster_topology(GwTopologyOf(partition));
  spec.set_owner(partition.stored.created_by());
  spec.set_shared(r.shared());
  spec.set_fabric_key(partition.stored.fabric_key());
  *spec.mutable_ended_before() = partition.stored.ended_before();
  for (const auto& [key, value] : TargetOptions(r)) (*spec.mutable_target_options())[key] = value;
  std::map<const Process*, std::vector<const Machine*>> machines;
  const uint32_t per_gcd = r.size() / r.num_gcds();
  for (uint32_t gcd = 0; gcd < r.num_gcds(); ++gcd) {
    vipuagent::Gcd* description = spec.add_gcds();
    const uint32_t begin = partition.first() + gcd * per_gcd, end = begin + per_gcd;
    for (uint32_t ipu = begin; ipu < end;) {
      const uint32_t position = ipu % kIpusPerMachine;
      const uint32_t count = std::min(end - ipu, kIpusPerMachine - position);
      const Machine& machine = *partition.cluster->agents[ipu / kIpusPerMachine]->machine;
      vipuagent::Slice* slice = description->add_slices();
      slice->set_machine_host(machine.description.host());
      slice->set_endpoint(machine.process->endpoint);
      slice->set_first_pcie_id(arch::IpuNumberOfPosition(position));
      slice->set_num_ipus(count);
      slice->set_ild(ipu / partition.cluster->ipus_per_ild());
      std::vector<const Machine*>& of_process = machines[machine.process];
      if (of_process.empty() || of_process.back() != &machine) of_process.push_back(&machine);
      ipu += count;
    }
  }
  for (const Process* holder : partition.holders) {
    vipuagent::Peer* peer = spec.add_peers();
    peer->set_endpoint(holder->endpoint);
    peer->set_boot_id(holder->boot_id);
    for (const Machine* machine : machines[holder])
      peer->add_agent_ids(machine->agent->stored.id());
  }
}

bool Controller::IsDue(const Process& process) {
  if (process.in_flight || !process.up) return false;
  if (process.was_sent_all || options_.now() - started_ > options_.agent_timeout) return true;
  // A controller that has just started waits for the other processes of the partitions to register:
  // a partition cannot be described without them.
  return std::all_of(process.partitions.begin(), process.partitions.end(),
                     [](const auto& entry) { return entry.second->unregistered == 0; });
}

vipuagent::ConfigureRequest Controller::NextConfiguration(Process& process) {
  vipuagent::ConfigureRequest request;
  request.set_complete(process.sequence == 0);
  request.set_base_sequence(process.sequence);
  request.set_sequence(++sequence_);
  request.set_controller_boot_id(boot_id_);
  request.set_controller_epoch(store_->epoch());
  request.set_controller_store(store_->id());
  request.set_controller_proof(OwnProof());
  request.set_agent_boot_id(process.boot_id);
  if (request.complete()) {
    for (const auto& [id, partition] : process.partitions) process.changed.insert(id);
  }
  removals_.AddTo(process, state_, request);
  // All get their turn, also if the process refuses one of them again and again.
  const std::set<std::string> changed = std::exchange(process.changed, {});
  std::vector<std::string> ids(changed.upper_bound(process.put_off), changed.end());
  ids.insert(ids.end(), changed.begin(), changed.upper_bound(process.put_off));
  std::set<std::string> later;
  bool has_new = false;
  for (const std::string& id : ids) {
    const auto it = process.partitions.find(id);
    const bool holds =
        it != process.partitions.end() && it->second->unregistered == 0 && !IsRefused(*it->second);
    if (!holds) {
      const Partition* partition = state_.FindPartition(id);
      if (it != process.partitions.end()) {
        AddLater(*partition, request);
      } else if (partition != nullptr && !request.complete()) {
        AddRemoved(id, partition->stored.generation(), request);  // its agent has moved
      }
      continue;
    }
    const Partition& partition = *it->second;
    const auto confirmed = process.confirmed.find(id);
    const bool is_new =
        confirmed == process.confirmed.end() || confirmed->second != partition.stored.generation();
    if (is_new && has_new && process.one_new_at_a_time) {
      later.insert(id);
      AddLater(partition, request);
      continue;
    }
    has_new = has_new || is_new;
    Describe(partition, *request.add_partitions());
  }
  process.changed = std::move(later);
  return request;
}

void Controller::Reconcile() {
  struct Call {
    std::string endpoint;
    vipuagent::ConfigureRequest request;
  };
  std::vector<Call> calls;
  {
    base::MutexLock lock(mutex_);
    if (!fenced_.ok()) return;
    for (auto it = state_.dirty.begin(); it != state_.dirty.end();) {
      Process& process = *it->second;
      if (!IsDue(process)) {
        ++it;
        continue;
      }
      process.in_flight = true;
      calls.push_back({process.endpoint, NextConfiguration(process)});
      it = state_.dirty.erase(it);
    }
  }
  for (const Call& call : calls) {
    gateway_->Configure(call.endpoint, call.request,
                        [this, call](const absl::StatusOr<vipuagent::ConfigureReply>& reply) {
                          Configured(call.endpoint, call.request, reply);
                        });
  }
}

void Controller::Configured(const std::string& endpoint, const vipuagent::ConfigureRequest& sent,
                            const absl::StatusOr<vipuagent::ConfigureReply>& reply) {
  absl::Status status = reply.status();
  {
    base::MutexLock lock(mutex_);
    const auto it = state_.processes.find(endpoint);
    if (it == state_.processes.end()) return;
    Process& process = *it->second;
    process.in_flight = false;
    const bool is_same = base::IsSecret(process.boot_id, sent.agent_boot_id());
    // A request that the network lost is sent again by the next tick, not at once and for ever.
    bool again = true;
    // Without a proof the process has taken nothing, whatever its reason is: it is asked again.
    if (status.ok() && reply->has_later()) {
      status = absl::AbortedError("another controller's configuration");
      if (is_same && IsLater(reply->later())) FenceIfProven(reply->later(), endpoint).IgnoreError();
    }
    if (is_same && status.ok()) {
      NoteAnswer(process);
      const auto affected = SetReleasing(process, reply->releasing());
      Confirmed(process, sent);
      for (const auto& [id, partition] : affected) UpdateState(*partition);
    } else if (is_same) {
      again = NotConfirmed(process, sent, status);
    }
    if (process.sequence == 0 || !process.changed.empty()) state_.dirty[endpoint] = &process;
    if (!again) return;
  }
  Reconcile();
}

void Controller::Confirmed(Process& process, const vipuagent::ConfigureRequest& sent) {
  process.sequence = sent.sequence();
  if (process.changed.empty()) {
    process.one_new_at_a_time = false;
    process.put_off.clear();
  }
  if (sent.complete()) {
    process.confirmed.clear();
    process.was_sent_all = true;
  }
  for (const vipuagent::RemovedPartition& removed : sent.removed()) {
    const auto it = process.confirmed.find(removed.id());
    if (it == process.confirmed.end()) continue;
    if (it->second <= removed.generation() || !process.partitions.contains(removed.id()))
      process.confirmed.erase(it);
  }
  removals_.Confirm(process, state_, sent);
  for (const auto& spec : sent.partitions()) {
    // Partitions that have changed since will be sent again.
    if (!process.changed.contains(spec.id())) process.confirmed[spec.id()] = spec.generation();
  }
  for (const auto& spec : sent.partitions()) {
    Partition* partition = state_.FindPartition(spec.id());
    if (partition != nullptr) UpdateState(*partition);
  }
}

bool Controller::NotConfirmed(Process& process, const vipuagent::ConfigureRequest& sent,
                              const absl::Status& status) {
  for (const vipuagent::RemovedPartition& removed : sent.removed())
    process.changed.insert(removed.id());
  std::vector<const vipuagent::AgentPartition*> news;
  for (const auto& spec : sent.partitions()) {
    process.changed.insert(spec.id());
    const auto it = process.confirmed.find(spec.id());
    if (it == process.confirmed.end() || it->second != spec.generation()) news.push_back(&spec);
  }
  if (absl::IsFailedPrecondition(status)) {
    process.sequence = 0;  // it has lost what it was told
    return !sent.complete();
  }
  if (!absl::IsInvalidArgument(status) || sent.partitions_size() == 0) return false;
  if (news.size() > 1) {
    process.one_new_at_a_time = true;  // which of them is it?
    return true;
  }
  bool again = true;
  for (const auto& spec : sent.partitions()) {
    if (!news.empty() && &spec != news[0]) continue;
    Partition* partition = state_.FindPartition(spec.id());
    if (partition == nullptr || partition->stored.generation() != spec.generation()) continue;
    const auto held = process.confirmed.find(spec.id());
    if (held != process.confirmed.end() && held->second >= spec.config_generation()) {
      // The agent runs the partition, and must take its new key and end the jobs that are to end.
      if (partition->state == vipuuser::PS_PENDING)
        partition->last_error = base::Printable(status.message(), kMostReasonBytes);
      process.put_off = spec.id();
      again = false;
      continue;
    }
    // The agent will never take it: trying again is useless.
    SetState(*partition, vipuuser::PS_ERROR, Trouble::kRefused, std::string(status.message()));
    state_.Touch(*partition);  // the others need not hold it either
  }
  return again;
}

}  // namespace vpod::controller
