// Changes of the model without a command: processes come and go, partitions follow.
#include <algorithm>

#include "server/controller/random_model.h"

namespace vpod::controller {

void Model::SetPending(Partition& partition) {
  partition.state = kPending;
  partition.cause = kNone;
  partition.pending_since = now;
}

bool Model::Lost(const Partition& partition) const {
  for (const std::string& agent : AgentsOf(partition)) {
    if (AgentLost(agent)) return true;
  }
  return false;
}

bool Model::Sick(const Partition& partition) const {
  const Cluster& cluster = clusters.at(partition.wanted.cluster);
  for (uint32_t i = partition.first; i < partition.first + partition.wanted.size; ++i) {
    const std::string& agent = cluster.agents[i / 4];
    const auto process = failed_.find(ProcessOf(agent));
    if (process == failed_.end()) continue;
    const auto mask = process->second.find(agents.at(agent));
    if (mask != process->second.end() && (mask->second >> (3 - i % 4) & 1) != 0) return true;
  }
  if (partition.wanted.size <= IpusPerIld(cluster)) return false;
  for (const std::string& agent : AgentsOf(partition)) {
    if (!HasGateway(agent)) return true;
  }
  return false;
}

bool Model::Confirmed(const Partition& partition) const {
  for (const std::string& agent : AgentsOf(partition)) {
    const std::string process = ProcessOf(agent);
    if (process.empty() || !known.at(process).up) return false;
    const auto told = known.at(process).told.find(partition.wanted.id);
    if (told == known.at(process).told.end() || told->second != partition.generation) return false;
  }
  return true;
}

// Updates the state of every partition. `fresh`: the health of the machines was told just now.
void Model::Follow(bool fresh) {
  for (auto& [id, partition] : partitions) {
    const bool lost = Lost(partition), sick = Sick(partition), confirmed = Confirmed(partition);
    if (partition.state == kActive) {
      if (lost || sick) {
        partition.state = kError;
        partition.cause = lost ? kLost : kSick;
      } else if (!confirmed) {
        SetPending(partition);
      }
    } else if (partition.state == kPending) {
      if (confirmed && !sick) partition.state = kActive;
      if (lost || (confirmed && sick && fresh)) {
        partition.state = kError;
        partition.cause = lost ? kLost : kSick;
      }
    } else if (!lost && !sick && !partition.wanted.no_auto_reset.value_or(false) &&
               partition.cause != kRefused && (partition.cause != kTimeout || confirmed)) {
      SetPending(partition);
      if (confirmed) partition.state = kActive;
    }
  }
}

void Model::Reconfirm(const std::set<std::string>& hosts) {
  for (const auto& [id, partition] : partitions) {
    for (const std::string& agent : AgentsOf(partition)) {
      if (!hosts.contains(agents.at(agent))) continue;
      for (auto& [name, process] : known) process.told.erase(id);
    }
  }
}

void Model::Registered(const std::string& name, const ModelProcess& world) {
  for (auto& [other, process] : known) {
    for (const std::string& host : world.hosts) {
      if (other == name) continue;
      process.hosts.erase(host);
      if (failed_.contains(other)) failed_[other].erase(host);
      gateways_down_[other].erase(host);
    }
  }
  Known& process = known[name];
  // Every process with a partition on machines that came, went or restarted must be told of it.
  std::set<std::string> changed;
  const bool restarted = process.boot != world.boot;
  for (const std::string& host : process.hosts) {
    if (restarted || !world.hosts.contains(host)) changed.insert(host);
  }
  for (const std::string& host : world.hosts) {
    if (!process.hosts.contains(host)) changed.insert(host);
  }
  Reconfirm(changed);
  if (restarted) {
    process = {};
    process.boot = world.boot;
    failed_.erase(name);
    gateways_down_.erase(name);
  }
  for (const std::string& host : process.hosts) {
    if (!world.hosts.contains(host) && failed_.contains(name)) failed_[name].erase(host);
    if (!world.hosts.contains(host)) gateways_down_[name].erase(host);
  }
  process.hosts = world.hosts;
  process.up = true;
  process.seen = now;
  Follow(false);
}

void Model::Restarted() {
  known.clear();
  failed_.clear();
  gateways_down_.clear();
  started = now;
  awaited_.clear();
  missing_.clear();
  for (const auto& [id, host] : agents) awaited_.insert(id);
  for (auto& [id, partition] : partitions) SetPending(partition);
}

void Model::Heartbeats(const std::map<std::string, ModelProcess>& world) {
  for (const auto& [name, process] : world) {
    if (!process.alive) continue;
    if (!known.contains(name) || known[name].boot != process.boot) Registered(name, process);
    known[name].up = true;
    known[name].seen = now;
    failed_[name] = process.failed;
    gateways_down_[name] = process.gateways_down;
  }
  Follow(true);
}

bool Model::MustKnowAll(const std::string& name, const ModelProcess& world) const {
  return world.alive && !world.slow && known.contains(name) && MayBeTold(name);
}

// A controller that has just started tells a process of its partitions when all their machines are
// known.
bool Model::MayBeTold(const std::string& name) const {
  if (known.at(name).may_be_told || now - started > 5000) return true;
  for (const auto& [id, partition] : partitions) {
    bool here = false, complete = true;
    for (const std::string& agent : AgentsOf(partition)) {
      here = here || ProcessOf(agent) == name;
      complete = complete && !ProcessOf(agent).empty();
    }
    if (here && !complete) return false;
  }
  return true;
}

std::map<std::string, uint64_t> Model::PartitionsOf(const std::string& name) const {
  std::map<std::string, uint64_t> result;
  for (const auto& [id, partition] : partitions) {
    bool here = false, complete = true;
    for (const std::string& agent : AgentsOf(partition)) {
      here = here || ProcessOf(agent) == name;
      complete = complete && !ProcessOf(agent).empty();
    }
    if (here && complete && !(partition.state == kError && partition.cause == kRefused))
      result[id] = partition.generation;
  }
  return result;
}

void Model::Told(const std::map<std::string, ModelProcess>& world) {
  std::set<std::string> reached;
  for (const auto& [name, process] : world) {
    if (process.alive && known.contains(name)) known[name].may_be_told = MayBeTold(name);
    if (!MustKnowAll(name, process)) continue;
    reached.insert(name);
    for (const auto& [id, wanted] : PartitionsOf(name)) {
      // It does not refuse what it took before.
      const auto held = process.view.find(id);
      const bool has_it = held != process.view.end() && held->second == wanted;
      if (!process.rejects.contains(id) || has_it) continue;
      partitions[id].state = kError;
      partitions[id].cause = kRefused;
    }
  }
  // If one process has refused a partition, the others need not hold it either.
  for (const std::string& name : reached) known[name].told = PartitionsOf(name);
  Follow(false);
}

void Model::Relocate(Partition& partition) {
  if (!Lost(partition) && !Sick(partition)) return;  // it may be well again
  uint32_t first = 0;
  if (Place(partition.wanted.allocation, partition.wanted, partition.wanted.id, first) != Code::kOk)
    return;
  partition.first = first;
  partition.generation = ++generation;
  SetPending(partition);
}

void Model::Tick(const std::map<std::string, ModelProcess>&) {
  for (auto& [name, process] : known) process.up = process.up && now - process.seen <= 5000;
  // Nothing is kept of processes that are down if none of their machines is an agent.
  std::erase_if(known, [this](const auto& entry) {
    const bool is_agents = std::any_of(agents.begin(), agents.end(), [&](const auto& agent) {
      return entry.second.hosts.contains(agent.second);
    });
    return !entry.second.up && !is_agents;
  });
  if (now - started > 5000) missing_ = awaited_;
  Follow(false);
  for (auto& [id, partition] : partitions) {
    if (partition.state != kPending || now - partition.pending_since <= 300000) continue;
    partition.state = kError;
    partition.cause = kTimeout;
  }
  for (auto& [id, partition] : partitions) {
    if (partition.state == kError && partition.wanted.relocatable.value_or(false) &&
        !partition.wanted.index.has_value() &&
        (partition.cause == kLost || partition.cause == kSick))
      Relocate(partition);
  }
}

}  // namespace vpod::controller
