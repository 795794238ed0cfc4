// Life of the controller and its agents, clusters and allocations; partitions are in partitions.cc,
// their configuration on the agents in reconcile.cc.
#include "server/controller/controller.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "device/arch/hardware.h"
#include "device/base/random_id.h"
#include "device/base/status.h"

namespace vpod::controller {
namespace {

std::string HostPort(const std::string& host, uint32_t port) {
  return absl::StrCat(host, ":", port);
}

template <class Message>
absl::Status LoadKind(Store& store, absl::string_view kind, std::map<std::string, Message>& into) {
  VPOD_ASSIGN_OR_RETURN(const auto rows, store.Load(kind));
  for (const auto& [id, data] : rows) {
    if (!into[id].ParseFromString(data)) {
      return absl::DataLossError(absl::StrCat("storage: ", kind, " ", id, " is damaged"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckId(absl::string_view id) {
  bool good = !id.empty() && id.size() <= 63 && std::isalnum(static_cast<unsigned char>(id[0]));
  for (char c : id)
    good =
        good && (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-');
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "Invalid id '", id,
      "'. Ids have 1 to 63 letters, digits, '.', '_' and '-' and begin with a letter or digit."));
}

Controller::Controller(std::unique_ptr<Store> store, AgentGateway* gateway,
                       ControllerOptions options)
    : gateway_(gateway),
      options_(std::move(options)),
      boot_id_(base::RandomId()),
      store_(std::move(store)) {}

absl::StatusOr<std::unique_ptr<Controller>> Controller::Create(std::unique_ptr<Store> store,
                                                               AgentGateway* gateway,
                                                               ControllerOptions options) {
  std::unique_ptr<Controller> controller(
      new Controller(std::move(store), gateway, std::move(options)));
  VPOD_RETURN_IF_ERROR(controller->LoadState());
  return controller;
}

absl::Status Controller::LoadState() {
  base::MutexLock lock(mutex_);
  VPOD_RETURN_IF_ERROR(LoadKind(*store_, "agent", agents_));
  VPOD_RETURN_IF_ERROR(LoadKind(*store_, "cluster", clusters_));
  std::map<std::string, store::StoredPartition> partitions;
  VPOD_RETURN_IF_ERROR(LoadKind(*store_, "partition", partitions));
  for (auto& [id, stored] : partitions) {
    Partition& partition = partitions_[id];
    partition.stored = std::move(stored);
    partition.pending_since = options_.now();
  }
  return absl::OkStatus();
}

// --- Agents ---

absl::Status Controller::CreateAgent(const vipuadmin::CreateAgentRequest& request) {
  VPOD_RETURN_IF_ERROR(CheckId(request.id()));
  if (request.host().empty() || request.port() < 1 || request.port() > 65535) {
    return absl::InvalidArgumentError("An agent needs a host and a port of 1 to 65535.");
  }
  base::MutexLock lock(mutex_);
  if (agents_.contains(request.id())) {
    return absl::AlreadyExistsError(absl::StrCat("Agent ", request.id(), " already exists."));
  }
  for (const auto& [id, agent] : agents_) {
    if (agent.host() == request.host() && agent.port() == request.port()) {
      return absl::AlreadyExistsError(
          absl::StrCat("Agent ", id, " is already at ", HostPort(agent.host(), agent.port()), "."));
    }
  }
  store::StoredAgent agent;
  agent.set_id(request.id());
  agent.set_host(request.host());
  agent.set_port(request.port());
  VPOD_RETURN_IF_ERROR(store_->Put("agent", agent.id(), agent.SerializeAsString()));
  agents_[agent.id()] = agent;
  ++agents_version_;
  return absl::OkStatus();
}

absl::Status Controller::RemoveAgent(const std::string& id) {
  base::MutexLock lock(mutex_);
  if (!agents_.contains(id))
    return absl::NotFoundError(absl::StrCat("Agent ", id, " does not exist."));
  const std::string cluster = ClusterOfAgent(id);
  if (!cluster.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("Agent ", id, " is in use by cluster ", cluster, "."));
  }
  VPOD_RETURN_IF_ERROR(store_->Remove("agent", id));
  agents_.erase(id);
  ++agents_version_;
  return absl::OkStatus();
}

std::string Controller::ClusterOfAgent(const std::string& agent_id) {
  for (const auto& [id, cluster] : clusters_) {
    for (const std::string& member : cluster.agent_ids()) {
      if (member == agent_id) return id;
    }
  }
  return "";
}

const Controller::Registration* Controller::RegistrationOf(const store::StoredAgent& agent) {
  const auto it = registered_.find(HostPort(agent.host(), agent.port()));
  return it == registered_.end() ? nullptr : &it->second;
}

vipuadmin::Agent Controller::DescribeAgent(const store::StoredAgent& agent, bool with_ipus) {
  vipuadmin::Agent result;
  result.set_id(agent.id());
  result.set_host(agent.host());
  result.set_port(agent.port());
  result.set_cluster_id(ClusterOfAgent(agent.id()));
  result.set_num_ipus(arch::kIpusPerMachine);
  const auto used = IpusInUse("");
  uint32_t free = 0;
  for (uint32_t ipu = 0; ipu < arch::kIpusPerMachine; ++ipu)
    free += !used.contains({agent.id(), ipu});
  result.set_free_ipus(free);
  result.set_status("Unknown");
  result.set_last_seen_ms(-1);
  const Registration* registration = RegistrationOf(agent);
  if (registration != nullptr) {
    const auto age = options_.now() - endpoints_[registration->endpoint].seen;
    result.set_last_seen_ms(std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
    result.set_status(age > options_.agent_timeout ? "Down" : "Up");
    const std::string& exporter = endpoints_[registration->endpoint].metrics_endpoint;
    if (!exporter.empty()) result.set_exporter(absl::StrCat("http://", exporter, "/metrics"));
  }
  if (!with_ipus) return result;
  for (uint32_t number = 0; number < arch::kIpusPerMachine; ++number) {
    vipuadmin::AgentIpu* ipu = result.add_ipus();
    ipu->set_index(number);
    const auto it = used.find({agent.id(), number});
    if (it != used.end()) ipu->set_partition_id(it->second);
  }
  return result;
}

std::vector<vipuadmin::Agent> Controller::ListAgents() {
  base::MutexLock lock(mutex_);
  std::vector<vipuadmin::Agent> result;
  for (const auto& [id, agent] : agents_) result.push_back(DescribeAgent(agent, false));
  return result;
}

absl::StatusOr<vipuadmin::Agent> Controller::GetAgent(const std::string& id) {
  vipuadmin::Agent agent;
  std::string endpoint;
  {
    base::MutexLock lock(mutex_);
    const auto it = agents_.find(id);
    if (it == agents_.end())
      return absl::NotFoundError(absl::StrCat("Agent ", id, " does not exist."));
    agent = DescribeAgent(it->second, true);
    if (const Registration* registration = RegistrationOf(it->second); registration != nullptr)
      endpoint = registration->endpoint;
  }
  if (agent.status() != "Up") return agent;
  const auto machine = gateway_->DescribeMachine(endpoint, agent.host());
  if (!machine.ok()) return agent;  // what the controller itself knows is worth showing
  *agent.mutable_facts() = machine->facts();
  for (const vipuagent::MachineIpu& described : machine->ipus()) {
    if (described.pcie_id() >= static_cast<uint32_t>(agent.ipus_size())) continue;
    vipuadmin::AgentIpu* ipu = agent.mutable_ipus(static_cast<int>(described.pcie_id()));
    ipu->set_pci(described.pci());
    ipu->set_firmware(described.firmware());
    ipu->set_architecture(described.architecture());
    ipu->set_num_tiles(described.num_tiles());
    ipu->set_clock(described.clock());
  }
  return agent;
}

std::vector<vipuadmin::DiscoveredAgent> Controller::DiscoverAgents() {
  base::MutexLock lock(mutex_);
  std::map<std::string, std::string> id_by_address;
  for (const auto& [id, agent] : agents_) id_by_address[HostPort(agent.host(), agent.port())] = id;
  // By address as a number, not as text.
  std::vector<vipuadmin::DiscoveredAgent> result;
  for (const auto& [address, registration] : registered_) {
    vipuadmin::DiscoveredAgent agent;
    agent.set_host(registration.machine.host());
    agent.set_port(registration.machine.port());
    agent.set_network_interface(registration.machine.network_interface());
    agent.set_last_seen_ms(std::chrono::duration_cast<std::chrono::milliseconds>(
                               options_.now() - endpoints_[registration.endpoint].seen)
                               .count());
    const auto it = id_by_address.find(address);
    agent.set_added(it != id_by_address.end());
    if (it != id_by_address.end()) agent.set_agent_id(it->second);
    result.push_back(std::move(agent));
  }
  const auto number = [](const std::string& host) {
    uint64_t value = 0, part = 0;
    for (char c : host) {
      if (c == '.') {
        value = value * 256 + part;
        part = 0;
      } else if (std::isdigit(static_cast<unsigned char>(c))) {
        part = part * 10 + static_cast<uint64_t>(c - '0');
      }
    }
    return value * 256 + part;
  };
  std::sort(result.begin(), result.end(), [&](const auto& a, const auto& b) {
    return std::make_pair(number(a.host()), a.port()) < std::make_pair(number(b.host()), b.port());
  });
  for (size_t i = 0; i < result.size(); ++i) {
    if (!result[i].added()) result[i].set_agent_id(absl::StrCat("ag", i));
  }
  return result;
}

// --- Clusters and allocations ---

absl::Status Controller::CheckAgentsFree(const vipuadmin::Cluster& cluster) {
  std::set<std::string> seen;
  for (const std::string& id : cluster.agent_ids()) {
    if (!agents_.contains(id))
      return absl::NotFoundError(absl::StrCat("Agent ", id, " does not exist."));
    if (!seen.insert(id).second)
      return absl::InvalidArgumentError(absl::StrCat("Agent ", id, " is named twice."));
    const std::string other = ClusterOfAgent(id);
    if (!other.empty()) {
      return absl::AlreadyExistsError(
          absl::StrCat("Agent ", id, " is already in cluster ", other, "."));
    }
  }
  return absl::OkStatus();
}

absl::Status Controller::CreateCluster(const vipuadmin::Cluster& cluster) {
  VPOD_RETURN_IF_ERROR(CheckId(cluster.id()));
  const auto agents = static_cast<uint32_t>(cluster.agent_ids_size());
  const uint32_t ilds = cluster.num_ipulinkdomains() == 0 ? 1 : cluster.num_ipulinkdomains();
  if (agents == 0) return absl::InvalidArgumentError("A cluster needs at least one agent.");
  if (agents % ilds != 0) {
    return absl::InvalidArgumentError(absl::StrCat("Number of IPU-Link domains (", ilds,
                                                   ") must divide the number of agents (", agents,
                                                   ")."));
  }
  if (agents / ilds * arch::kIpusPerMachine > arch::kMaxIpusPerLinkDomain) {
    return absl::InvalidArgumentError(
        absl::StrCat("An IPU-Link domain has at most 16 agents; ", agents / ilds,
                     " given (try --num-ipulinkdomains ", (agents + 15) / 16, ")."));
  }
  const std::string topology = cluster.topology().empty() ? "mesh" : cluster.topology();
  const std::string cluster_topology = cluster.cluster_topology().empty()
                                           ? (ilds > 1 ? "mesh" : "none")
                                           : cluster.cluster_topology();
  if (topology != "mesh" && topology != "torus") {
    return absl::InvalidArgumentError(
        absl::StrCat("Topology '", topology, "' is none of mesh, torus."));
  }
  if (cluster_topology != "none" && cluster_topology != "mesh" && cluster_topology != "looped" &&
      cluster_topology != "switched") {
    return absl::InvalidArgumentError(absl::StrCat("Cluster topology '", cluster_topology,
                                                   "' is none of none, mesh, looped, switched."));
  }
  base::MutexLock lock(mutex_);
  if (clusters_.contains(cluster.id())) {
    return absl::AlreadyExistsError(absl::StrCat("Cluster ", cluster.id(), " already exists."));
  }
  VPOD_RETURN_IF_ERROR(CheckAgentsFree(cluster));
  store::StoredCluster stored;
  stored.set_id(cluster.id());
  *stored.mutable_agent_ids() = cluster.agent_ids();
  stored.set_num_ipulinkdomains(ilds);
  stored.set_topology(topology);
  stored.set_cluster_topology(cluster_topology);
  VPOD_RETURN_IF_ERROR(store_->Put("cluster", stored.id(), stored.SerializeAsString()));
  clusters_[stored.id()] = stored;
  return absl::OkStatus();
}

absl::Status Controller::RemoveCluster(const std::string& id) {
  base::MutexLock lock(mutex_);
  if (!clusters_.contains(id))
    return absl::NotFoundError(absl::StrCat("Cluster ", id, " does not exist."));
  for (const auto& [partition_id, partition] : partitions_) {
    if (partition.stored.requirements().cluster_id() == id) {
      return absl::FailedPreconditionError(
          absl::StrCat("Cluster ", id, " is in use by partition ", partition_id, "."));
    }
  }
  VPOD_RETURN_IF_ERROR(store_->Remove("cluster", id));
  clusters_.erase(id);
  return absl::OkStatus();
}

std::vector<vipuadmin::Cluster> Controller::ListClusters() {
  base::MutexLock lock(mutex_);
  const auto used = IpusInUse("");
  std::vector<vipuadmin::Cluster> result;
  for (const auto& [id, cluster] : clusters_) {
    vipuadmin::Cluster description;
    description.set_id(id);
    *description.mutable_agent_ids() = cluster.agent_ids();
    description.set_num_ipulinkdomains(cluster.num_ipulinkdomains());
    description.set_topology(cluster.topology());
    description.set_cluster_topology(cluster.cluster_topology());
    const auto ipus = static_cast<uint32_t>(cluster.agent_ids_size()) * arch::kIpusPerMachine;
    description.set_num_ipus(ipus);
    uint32_t taken = 0, partitions = 0;
    for (const auto& [place, partition] : used) taken += ClusterOfAgent(place.first) == id;
    for (const auto& [partition_id, partition] : partitions_) {
      partitions += partition.stored.requirements().cluster_id() == id;
    }
    description.set_free_ipus(ipus - taken);
    description.set_num_partitions(partitions);
    description.add_allocation_ids(id);  // the default allocation
    result.push_back(std::move(description));
  }
  return result;
}

std::vector<vipuuser::Allocation> Controller::ListAllocations() {
  base::MutexLock lock(mutex_);
  std::vector<vipuuser::Allocation> result;
  for (const auto& [id, cluster] : clusters_) {
    // Each cluster's default allocation has the cluster's id and all of its agents.
    vipuuser::Allocation allocation;
    allocation.set_id(id);
    allocation.mutable_spec()->set_cluster_id(id);
    *allocation.mutable_spec()->mutable_agent_ids() = cluster.agent_ids();
    result.push_back(std::move(allocation));
  }
  return result;
}

}  // namespace vpod::controller
