// Keeps the agents' processes told of their partitions, and the partitions' states in step with
// what they confirm.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/controller/controller.h"

namespace vpod::controller {

void Controller::Register(const vipuagent::RegisterRequest& request) {
  {
    base::MutexLock lock(mutex_);
    Endpoint& endpoint = endpoints_[request.endpoint()];
    if (endpoint.boot_id != request.boot_id()) {
      // A new process knows nothing yet, and its peers do not know it.
      endpoint.boot_id = request.boot_id();
      endpoint.fabric_address = request.fabric_address();
      endpoint.metrics_endpoint = request.metrics_endpoint();
      endpoint.confirmed.clear();
      endpoint.dirty = true;
    }
    endpoint.seen = options_.now();
    endpoint.up = true;
    for (const vipuagent::Machine& machine : request.machines()) {
      Registration& registration = registered_[absl::StrCat(machine.host(), ":", machine.port())];
      if (registration.endpoint != request.endpoint()) endpoint.dirty = true;
      registration = {request.endpoint(), machine};
    }
    for (const auto& [id, partition] : partitions_) {
      const std::set<std::string> endpoints = EndpointsOf(partition.stored);
      if (endpoint.dirty && endpoints.contains(request.endpoint())) MarkDirty(endpoints);
    }
    UpdateStates();
  }
  Reconcile();
}

vipuagent::HeartbeatReply Controller::Heartbeat(const vipuagent::HeartbeatRequest& request) {
  vipuagent::HeartbeatReply reply;
  {
    base::MutexLock lock(mutex_);
    const auto it = endpoints_.find(request.endpoint());
    if (it == endpoints_.end() || it->second.boot_id != request.boot_id()) {
      reply.set_register_(true);
      return reply;
    }
    it->second.seen = options_.now();
    AddNames(request, reply);
    if (it->second.up) return reply;
    it->second.up = true;
    UpdateStates();
  }
  Reconcile();
  return reply;
}

void Controller::AddNames(const vipuagent::HeartbeatRequest& request,
                          vipuagent::HeartbeatReply& reply) {
  reply.set_names_version(absl::StrCat(boot_id_, ".", agents_version_));
  if (request.names_version() == reply.names_version()) return;
  for (const auto& [id, agent] : agents_) {
    const Registration* registration = RegistrationOf(agent);
    if (registration == nullptr || registration->endpoint != request.endpoint()) continue;
    vipuagent::MachineName* name = reply.add_names();
    name->set_host(agent.host());
    name->set_agent_id(id);
  }
}

std::set<std::string> Controller::EndpointsOf(const store::StoredPartition& partition) {
  std::set<std::string> endpoints;
  std::set<std::string> seen;
  for (const store::StoredIpu& ipu : partition.ipus()) {
    if (!seen.insert(ipu.agent_id()).second) continue;
    const auto agent = agents_.find(ipu.agent_id());
    const Registration* registration =
        agent == agents_.end() ? nullptr : RegistrationOf(agent->second);
    endpoints.insert(registration == nullptr ? "" : registration->endpoint);
  }
  return endpoints;
}

void Controller::MarkDirty(const std::set<std::string>& endpoints) {
  for (const std::string& endpoint : endpoints) {
    const auto it = endpoints_.find(endpoint);
    if (it != endpoints_.end()) it->second.dirty = true;
  }
}

void Controller::SetPending(Partition& partition) {
  partition.state = vipuuser::PS_PENDING;
  partition.last_error.clear();
  partition.pending_since = options_.now();
  MarkDirty(EndpointsOf(partition.stored));
}

void Controller::AddSlices(const store::StoredPartition& partition,
                           vipuagent::AgentPartition& spec) {
  std::set<std::string> named;
  vipuagent::Slice* slice = nullptr;
  std::string agent_id;
  for (const store::StoredIpu& ipu : partition.ipus()) {
    while (static_cast<uint32_t>(spec.gcds_size()) <= ipu.gcd_id()) {
      spec.add_gcds();
      slice = nullptr;
    }
    if (slice != nullptr && agent_id == ipu.agent_id() &&
        slice->first_pcie_id() - slice->num_ipus() == ipu.pcie_id()) {
      slice->set_num_ipus(slice->num_ipus() + 1);
      continue;
    }
    const auto agent = agents_.find(ipu.agent_id());
    const Registration* registration =
        agent == agents_.end() ? nullptr : RegistrationOf(agent->second);
    slice = spec.mutable_gcds(static_cast<int>(ipu.gcd_id()))->add_slices();
    agent_id = ipu.agent_id();
    slice->set_first_pcie_id(ipu.pcie_id());
    slice->set_num_ipus(1);
    slice->set_ild(ipu.ild());
    if (registration == nullptr) continue;
    slice->set_machine_host(registration->machine.host());
    slice->set_endpoint(registration->endpoint);
    if (!named.insert(registration->endpoint).second) continue;
    const Endpoint& endpoint = endpoints_[registration->endpoint];
    vipuagent::Peer* peer = spec.add_peers();
    peer->set_endpoint(registration->endpoint);
    peer->set_boot_id(endpoint.boot_id);
    peer->set_fabric_address(endpoint.fabric_address);
  }
}

vipuagent::ConfigureRequest Controller::ConfigurationOf(const std::string& endpoint) {
  vipuagent::ConfigureRequest request;
  request.set_complete(true);
  request.set_sequence(++sequence_);
  request.set_controller_boot_id(boot_id_);
  request.set_agent_boot_id(endpoints_[endpoint].boot_id);
  for (const auto& [id, partition] : partitions_) {
    const std::set<std::string> endpoints = EndpointsOf(partition.stored);
    // Its processes must know each other, so it waits for machines that have not registered.
    if (!endpoints.contains(endpoint) || endpoints.contains("")) continue;
    const vipuuser::PartitionRequirements& r = partition.stored.requirements();
    vipuagent::AgentPartition* spec = request.add_partitions();
    spec->set_id(id);
    spec->set_generation(partition.stored.generation());
    spec->set_reconfigurable(r.reconfigurable());
    spec->set_num_replicas(r.num_replicas());
    spec->set_sync_type(r.sync_type());
    spec->set_ild_routing(r.ipu_link_routing());
    spec->set_gw_routing(r.gw_link_routing());
    spec->set_owner(partition.stored.created_by());
    spec->set_shared(r.shared());
    spec->set_fabric_key(partition.stored.fabric_key());
    if (const auto cluster = clusters_.find(r.cluster_id()); cluster != clusters_.end())
      spec->set_cluster_topology(cluster->second.cluster_topology());
    for (const auto& [key, value] : TargetOptions(partition.stored))
      (*spec->mutable_target_options())[key] = value;
    AddSlices(partition.stored, *spec);
  }
  return request;
}

void Controller::Reconcile() {
  struct Call {
    std::string endpoint, boot_id;
    vipuagent::ConfigureRequest request;
  };
  std::vector<Call> calls;
  {
    base::MutexLock lock(mutex_);
    for (auto& [name, endpoint] : endpoints_) {
      if (!endpoint.dirty || endpoint.in_flight || !endpoint.up) continue;
      endpoint.dirty = false;
      endpoint.in_flight = true;
      calls.push_back({name, endpoint.boot_id, ConfigurationOf(name)});
    }
  }
  for (const Call& call : calls) {
    gateway_->Configure(call.endpoint, call.request, [this, call](const absl::Status& status) {
      Configured(call.endpoint, call.boot_id, call.request, status);
    });
  }
}

void Controller::Configured(const std::string& name, const std::string& boot_id,
                            const vipuagent::ConfigureRequest& sent, const absl::Status& status) {
  {
    base::MutexLock lock(mutex_);
    Endpoint& endpoint = endpoints_[name];
    endpoint.in_flight = false;
    if (endpoint.boot_id != boot_id) {
      endpoint.dirty = true;  // the process that answered has ended; the new one knows nothing yet
    } else if (status.ok()) {
      endpoint.confirmed.clear();
      for (const auto& partition : sent.partitions())
        endpoint.confirmed[partition.id()] = partition.generation();
    } else if (absl::IsInvalidArgument(status)) {
      // The agent will never take it: trying again is useless.
      for (const auto& spec : sent.partitions()) {
        const auto it = partitions_.find(spec.id());
        if (it == partitions_.end() || it->second.state != vipuuser::PS_PENDING) continue;
        it->second.state = vipuuser::PS_ERROR;
        it->second.last_error = std::string(status.message());
      }
    } else {
      endpoint.dirty = true;  // the next heartbeat or tick tries again
      return;
    }
    UpdateStates();
  }
  Reconcile();
}

void Controller::UpdateStates() {
  for (auto& [id, partition] : partitions_) {
    bool confirmed = true;
    std::string silent;
    for (const store::StoredIpu& ipu : partition.stored.ipus()) {
      const auto agent = agents_.find(ipu.agent_id());
      const Registration* registration =
          agent == agents_.end() ? nullptr : RegistrationOf(agent->second);
      const auto endpoint =
          registration == nullptr ? endpoints_.end() : endpoints_.find(registration->endpoint);
      if (endpoint == endpoints_.end()) {
        confirmed = false;
        continue;
      }
      if (!endpoint->second.up) silent = ipu.agent_id();
      const auto it = endpoint->second.confirmed.find(id);
      confirmed = confirmed && it != endpoint->second.confirmed.end() &&
                  it->second == partition.stored.generation();
    }
    switch (partition.state) {
      case vipuuser::PS_PENDING:
        if (confirmed && silent.empty()) partition.state = vipuuser::PS_ACTIVE;
        break;
      case vipuuser::PS_ACTIVE:
        if (!silent.empty()) {
          partition.state = vipuuser::PS_ERROR;
          partition.last_error = absl::StrCat("Agent ", silent, " does not answer.");
        } else if (!confirmed) {
          SetPending(partition);  // its agent started anew
        }
        break;
      case vipuuser::PS_ERROR:
        // Back by itself when the lost agents have returned, or confirm late.
        if (silent.empty() && !partition.stored.disable_auto_reset() &&
            (confirmed || partition.last_error.rfind("Agent ", 0) == 0)) {
          SetPending(partition);
          if (confirmed) partition.state = vipuuser::PS_ACTIVE;
        }
        break;
      default:
        break;
    }
  }
}

void Controller::Tick() {
  {
    base::MutexLock lock(mutex_);
    const Clock::time_point now = options_.now();
    for (auto& [name, endpoint] : endpoints_)
      endpoint.up = now - endpoint.seen <= options_.agent_timeout;
    UpdateStates();
    for (auto& [id, partition] : partitions_) {
      if (partition.state == vipuuser::PS_PENDING &&
          now - partition.pending_since > options_.partition_timeout) {
        partition.state = vipuuser::PS_ERROR;
        partition.last_error =
            absl::StrCat("Not configured within ", options_.partition_timeout.count(), " s.");
      }
    }
    for (auto it = removed_.begin(); it != removed_.end();) {
      it = now - it->second.second > options_.removed_status_kept ? removed_.erase(it)
                                                                  : std::next(it);
    }
  }
  Reconcile();
}

}  // namespace vpod::controller
