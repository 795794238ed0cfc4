#include "server/controller/removals.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vpod::controller {
namespace {

constexpr char kKind[] = "removal";

bool Holds(const Process& process, const Agent* agent) {
  return agent != nullptr && agent->machine != nullptr && agent->machine->process == &process;
}

}  // namespace

store::StoredRemoval Removals::Of(const Partition& partition, const std::vector<Agent*>& agents) {
  store::StoredRemoval removal;
  removal.set_id(absl::StrCat(partition.id(), "@", partition.stored.generation()));
  removal.set_partition_id(partition.id());
  removal.set_generation(partition.stored.generation());
  for (const Agent* agent : agents) removal.add_agent_ids(agent->stored.id());
  return removal;
}

Change Removals::Row(const store::StoredRemoval& removal) {
  return {kKind, removal.id(), removal.SerializeAsString()};
}

void Removals::Add(store::StoredRemoval removal, const State& state) {
  const std::string id = removal.id();
  size_t& waiting = waiting_[id];
  for (const std::string& agent_id : removal.agent_ids()) {
    if (state.FindAgent(agent_id) != nullptr) waiting += ids_by_agent_[agent_id].insert(id).second;
  }
  removals_[id] = std::move(removal);
  if (waiting > 0) return;
  confirmed_.insert(id);
  removals_.erase(id);
  waiting_.erase(id);
}

std::set<std::string> Removals::IdsFor(const Process& process, const State& state) const {
  std::set<std::string> ids;
  for (const auto& [agent_id, of_agent] : ids_by_agent_) {
    if (Holds(process, state.FindAgent(agent_id))) ids.insert(of_agent.begin(), of_agent.end());
  }
  return ids;
}

void Removals::AddTo(const Process& process, const State& state,
                     vipuagent::ConfigureRequest& request) const {
  for (const std::string& id : IdsFor(process, state)) {
    const store::StoredRemoval& removal = removals_.at(id);
    vipuagent::RemovedPartition* removed = request.add_removed();
    removed->set_id(removal.partition_id());
    removed->set_generation(removal.generation());
  }
}

bool Removals::Concern(const Process& process, const State& state) const {
  return !IdsFor(process, state).empty();
}

bool Removals::Cover(const std::string& agent_id, const std::string& partition_id,
                     uint64_t generation) const {
  const auto it = ids_by_agent_.find(agent_id);
  if (it == ids_by_agent_.end()) return false;
  for (const std::string& id : it->second) {
    const store::StoredRemoval& removal = removals_.at(id);
    if (removal.partition_id() == partition_id && generation <= removal.generation()) return true;
  }
  return false;
}

void Removals::Confirm(const Process& process, const State& state,
                       const vipuagent::ConfigureRequest& sent) {
  for (const vipuagent::RemovedPartition& removed : sent.removed()) {
    const auto it = removals_.find(absl::StrCat(removed.id(), "@", removed.generation()));
    if (it == removals_.end()) continue;
    const store::StoredRemoval removal = it->second;
    for (const std::string& agent_id : removal.agent_ids()) {
      if (Holds(process, state.FindAgent(agent_id))) Erase(removal.id(), agent_id);
    }
  }
}

void Removals::Forget(const std::string& agent_id) {
  const auto it = ids_by_agent_.find(agent_id);
  if (it == ids_by_agent_.end()) return;
  for (const std::string& id : std::set(it->second)) Erase(id, agent_id);
}

void Removals::Erase(const std::string& id, const std::string& agent_id) {
  const auto it = ids_by_agent_.find(agent_id);
  if (it == ids_by_agent_.end() || it->second.erase(id) == 0) return;
  if (it->second.empty()) ids_by_agent_.erase(it);
  if (--waiting_[id] > 0) return;
  confirmed_.insert(id);
  removals_.erase(id);
  waiting_.erase(id);
}

void Removals::AddConfirmed(std::vector<Change>& changes) const {
  for (const std::string& id : confirmed_) changes.push_back({kKind, id, std::nullopt});
}

}  // namespace vpod::controller
