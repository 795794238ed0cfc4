// Agents: what an administrator adds, one for each IPU-Machine.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/arch/hardware.h"
#include "device/base/host_name.h"
#include "device/base/id_order.h"
#include "device/base/status.h"
#include "server/controller/controller.h"
#include "server/controller/test_cluster.h"

namespace vpod::controller {
namespace {

std::string ObjectOf(const std::string& id) { return absl::StrCat("agent ", id); }

}  // namespace

absl::Status CheckAddress(const std::string& host, uint32_t port) {
  // Without this check, a name that no resolver accepts would be refused later, by a caller of it.
  if (const std::string trouble = base::HostTrouble(host); !trouble.empty())
    return absl::InvalidArgumentError(absl::StrCat("Host ", trouble, "."));
  if (port >= 1 && port <= 65535) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Port is ", port, "; give 1 to 65535."));
}

absl::Status Controller::CheckAddressFree(const std::string& host, uint32_t port) {
  const auto it = state_.agent_by_address.find(HostPort(host, port));
  if (it == state_.agent_by_address.end()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat("Agent ", it->second->stored.id(), " is already at ",
                                               HostPort(host, port), "."));
}

absl::Status Controller::CreateAgent(const vipuadmin::CreateAgentRequest& request,
                                     const std::string& user) {
  VPOD_RETURN_IF_ERROR(CheckId(request.id()));
  VPOD_RETURN_IF_ERROR(CheckAddress(request.host(), request.port()));
  base::MutexLock lock(mutex_);
  if (state_.FindAgent(request.id()) != nullptr)
    return absl::AlreadyExistsError(absl::StrCat("Agent ", request.id(), " already exists."));
  VPOD_RETURN_IF_ERROR(CheckAddressFree(request.host(), request.port()));
  store::StoredAgent agent;
  agent.set_id(request.id());
  agent.set_host(request.host());
  agent.set_port(request.port());
  VPOD_RETURN_IF_ERROR(Commit({{"agent", agent.id(), agent.SerializeAsString()}},
                              ObjectOf(agent.id()), user,
                              absl::StrCat("created at ", HostPort(agent.host(), agent.port()))));
  state_.AddAgent(std::move(agent));
  ++names_version_;
  return absl::OkStatus();
}

absl::Status Controller::UpdateAgent(const vipuadmin::UpdateAgentRequest& request,
                                     const std::string& user) {
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(Agent * agent, FindAgent(request.id()));
    store::StoredAgent next = agent->stored;
    if (!request.host().empty()) next.set_host(request.host());
    if (request.port() != 0) next.set_port(request.port());
    VPOD_RETURN_IF_ERROR(CheckAddress(next.host(), next.port()));
    if (next.host() == agent->stored.host() && next.port() == agent->stored.port())
      return absl::OkStatus();
    VPOD_RETURN_IF_ERROR(CheckAddressFree(next.host(), next.port()));
    VPOD_RETURN_IF_ERROR(Commit({{"agent", next.id(), next.SerializeAsString()}},
                                ObjectOf(next.id()), user,
                                absl::StrCat("moved to ", HostPort(next.host(), next.port()))));
    state_.MoveAgent(*agent, next.host(), next.port());
    ++names_version_;
    if (agent->cluster != nullptr) {
      for (Partition* partition : state_.PartitionsAt(*agent->cluster, agent->position))
        UpdateState(*partition);
    }
  }
  Reconcile();
  return absl::OkStatus();
}

absl::Status Controller::Silent(const std::string& agent_id) {
  return absl::FailedPreconditionError(absl::StrCat("Agent ", agent_id, " does not answer."));
}

absl::StatusOr<Controller::MachineAddress> Controller::AddressOf(const Agent& agent) {
  if (agent.machine == nullptr || !agent.machine->process->up) {
    return Silent(agent.stored.id());
  }
  return MachineAddress{agent.stored.id(), agent.machine->process->endpoint, agent.stored.host()};
}

absl::Status Controller::ResetMachines(const std::vector<MachineAddress>& machines) {
  for (const MachineAddress& machine : machines) {
    const absl::Status status = gateway_->ResetMachine(machine.endpoint, machine.host);
    if (IsSilence(status)) return Silent(machine.agent_id);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("Agent ", machine.agent_id,
                                                      " was not reset: ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Controller::ResetAgent(const std::string& id, const std::string& user) {
  MachineAddress address;
  {
    base::MutexLock lock(mutex_);
    VPOD_RETURN_IF_ERROR(fenced_);
    VPOD_ASSIGN_OR_RETURN(const Agent* agent, FindAgent(id));
    VPOD_ASSIGN_OR_RETURN(address, AddressOf(*agent));
  }
  VPOD_RETURN_IF_ERROR(ResetMachines({address}));
  base::MutexLock lock(mutex_);
  return Commit({}, ObjectOf(id), user, "reset");
}

absl::Status Controller::RemoveAgent(const std::string& id, const std::string& user) {
  base::MutexLock lock(mutex_);
  VPOD_ASSIGN_OR_RETURN(Agent * agent, FindAgent(id));
  if (agent->cluster != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("Agent ", id, " is in use by cluster ", agent->cluster->id(), "."));
  }
  VPOD_RETURN_IF_ERROR(Commit({{"agent", id, std::nullopt}}, ObjectOf(id), user, "removed"));
  removals_.Forget(id);
  state_.RemoveAgent(*agent);
  ++names_version_;
  return absl::OkStatus();
}

vipuadmin::Agent Controller::DescribeAgent(const Agent& agent) {
  vipuadmin::Agent result;
  result.set_id(agent.stored.id());
  result.set_host(agent.stored.host());
  result.set_port(agent.stored.port());
  if (agent.cluster != nullptr) result.set_cluster_id(agent.cluster->id());
  result.set_num_ipus(arch::kIpusPerMachine);
  result.set_free_ipus(state_.FreeIpus(agent));
  result.set_status("Unknown");
  result.set_last_seen_ms(-1);
  if (agent.machine != nullptr) {
    const Process& process = *agent.machine->process;
    result.set_status(process.up ? "Up" : "Down");
    result.set_last_seen_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(options_.now() - process.seen)
            .count());
    result.set_error(agent.machine->trouble);
    for (uint32_t ipu = 0; ipu < arch::kIpusPerMachine; ++ipu) {
      if ((agent.machine->failed_ipus >> ipu & 1) == 0) continue;
      result.set_failed_ipus(result.failed_ipus() + 1);
      if (state_.PartitionOfIpu(agent, ipu) == nullptr)
        result.set_failed_free_ipus(result.failed_free_ipus() + 1);
    }
    if (!process.metrics_endpoint.empty())
      result.set_exporter(absl::StrCat("http://", process.metrics_endpoint, "/metrics"));
  }
  const auto refused = refused_.find(HostPort(agent.stored.host(), agent.stored.port()));
  if (refused != refused_.end()) result.set_error(refused->second.reason);
  return result;
}

std::vector<vipuadmin::Agent> Controller::ListAgents() {
  base::MutexLock lock(mutex_);
  std::vector<vipuadmin::Agent> result;
  result.reserve(state_.agents.size());
  for (const auto& [id, agent] : state_.agents) result.push_back(DescribeAgent(*agent));
  return result;
}

absl::StatusOr<vipuadmin::Agent> Controller::GetAgent(const std::string& id) {
  vipuadmin::Agent result;
  std::string endpoint;
  {
    base::MutexLock lock(mutex_);
    VPOD_ASSIGN_OR_RETURN(const Agent* agent, FindAgent(id));
    result = DescribeAgent(*agent);
    for (uint32_t number = 0; number < arch::kIpusPerMachine; ++number) {
      vipuadmin::AgentIpu* ipu = result.add_ipus();
      ipu->set_index(number);
      const Partition* partition = state_.PartitionOfIpu(*agent, number);
      if (partition != nullptr) ipu->set_partition_id(partition->id());
      if (agent->machine == nullptr) continue;
      const auto releasing = agent->machine->releasing.find(number);
      if (releasing != agent->machine->releasing.end()) ipu->set_releasing(releasing->second);
    }
    if (result.status() == "Up") endpoint = agent->machine->process->endpoint;
  }
  if (endpoint.empty()) return result;
  const auto machine = gateway_->DescribeMachine(endpoint, result.host());
  if (!machine.ok()) return result;  // what the controller itself knows is worth showing
  *result.mutable_facts() = machine->facts();
  for (const vipuagent::MachineIpu& described : machine->ipus()) {
    if (described.pcie_id() >= arch::kIpusPerMachine) continue;
    vipuadmin::AgentIpu* ipu = result.mutable_ipus(static_cast<int>(described.pcie_id()));
    ipu->set_pci(described.pci());
    ipu->set_firmware(described.firmware());
    ipu->set_architecture(described.architecture());
    ipu->set_num_tiles(described.num_tiles());
    ipu->set_clock(described.clock());
  }
  return result;
}

absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> Controller::DiscoverAgents(
    bool add, const std::string& user) {
  base::MutexLock lock(mutex_);
  return Discover([add](const Machine&) { return add; }, user);
}

absl::Status Controller::AddDiscovered(const Process& process) {
  const std::vector<std::string>& interfaces = options_.autodiscovery_interfaces;
  if (std::find(interfaces.begin(), interfaces.end(), process.heard_on) == interfaces.end())
    return absl::OkStatus();
  const auto wanted = [&](const Machine& machine) {
    return machine.process == &process && machine.agent == nullptr;
  };
  if (std::none_of(process.machines.begin(), process.machines.end(),
                   [&](const Machine* machine) { return wanted(*machine); })) {
    return absl::OkStatus();
  }
  return Discover(wanted, "").status();
}

absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> Controller::Discover(
    const std::function<bool(const Machine&)>& add, const std::string& user) {
  std::vector<std::pair<std::string, const Machine*>> found;  // by address
  found.reserve(state_.machines.size());
  for (const auto& [address, machine] : state_.machines) found.emplace_back(address, machine.get());
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return base::IdOrder()(a.first, b.first); });
  std::vector<vipuadmin::DiscoveredAgent> result;
  result.reserve(found.size());
  std::vector<store::StoredAgent> agents;
  std::vector<Change> changes;
  uint64_t beyond = found.size();  // numbers for those whose own is taken
  for (const auto& [address, machine] : found) {
    vipuadmin::DiscoveredAgent& agent = result.emplace_back();
    agent.set_host(machine->description.host());
    agent.set_port(machine->description.port());
    agent.set_network_interface(machine->process->heard_on);
    agent.set_last_seen_ms(std::chrono::duration_cast<std::chrono::milliseconds>(
                               options_.now() - machine->process->seen)
                               .count());
    agent.set_added(machine->agent != nullptr || add(*machine));
    if (machine->agent != nullptr) {
      agent.set_agent_id(machine->agent->stored.id());
      continue;
    }
    std::string id = absl::StrCat("ag", result.size() - 1);
    while (state_.FindAgent(id) != nullptr) id = absl::StrCat("ag", beyond++);
    agent.set_agent_id(id);
    if (!agent.added()) continue;
    store::StoredAgent& stored = agents.emplace_back();
    stored.set_id(id);
    stored.set_host(agent.host());
    stored.set_port(agent.port());
    changes.push_back({"agent", id, stored.SerializeAsString()});
  }
  if (agents.empty()) return result;
  VPOD_RETURN_IF_ERROR(
      Commit(changes, "agents", user,
             absl::StrCat(agents.size(), " discovered and added: ", agents.front().id(),
                          agents.size() == 1 ? "" : absl::StrCat(" to ", agents.back().id()))));
  for (store::StoredAgent& agent : agents) state_.AddAgent(std::move(agent));
  ++names_version_;
  return result;
}

}  // namespace vpod::controller
