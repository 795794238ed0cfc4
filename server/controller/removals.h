// Partitions that were removed, or have left machines, and the agents that have not confirmed it
// yet. Agents end jobs for no other reason than such a record or a higher generation: that a
// controller does not name a partition may also mean that it has lost it. So a record is committed
// with the change, and kept until every agent has confirmed it, over restarts too.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/vipu/v1/vipuagent.pb.h"
#include "server/controller/state.h"
#include "server/controller/store/state.pb.h"
#include "server/controller/store/store.h"

namespace vpod::controller {

// Not thread-safe: guarded by the controller's lock.
class Removals {
 public:
  // Returns the removal of the partition, as it is now, from these agents.
  static store::StoredRemoval Of(const Partition& partition, const std::vector<Agent*>& agents);
  // As committed with the change that causes it.
  static Change Row(const store::StoredRemoval& removal);

  // One that was committed. Agents that do not exist any more confirm nothing.
  void Add(store::StoredRemoval removal, const State& state);
  // Names those that the process has to confirm.
  void AddTo(const Process& process, const State& state,
             vipuagent::ConfigureRequest& request) const;
  bool Concern(const Process& process, const State& state) const;
  // Whether what the agent has of the partition is to end.
  bool Cover(const std::string& agent_id, const std::string& partition_id,
             uint64_t generation) const;
  void Confirm(const Process& process, const State& state, const vipuagent::ConfigureRequest& sent);
  // The agent was removed.
  void Forget(const std::string& agent_id);

  // Rows that nobody has to confirm any more, to be committed with what is committed next.
  bool has_confirmed() const { return !confirmed_.empty(); }
  void AddConfirmed(std::vector<Change>& changes) const;
  void Committed() { confirmed_.clear(); }

 private:
  // Ids of those that the process has to confirm.
  std::set<std::string> IdsFor(const Process& process, const State& state) const;
  void Erase(const std::string& id, const std::string& agent_id);

  std::map<std::string, store::StoredRemoval> removals_;       // by id
  std::map<std::string, std::set<std::string>> ids_by_agent_;  // who has to confirm which
  std::map<std::string, size_t> waiting_;                      // for so many agents, by id
  std::set<std::string> confirmed_;
};

}  // namespace vpod::controller
