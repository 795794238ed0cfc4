// Agents, clusters, IPU attributes.
#include "device/base/status.h"
#include "tools/vipu/show.h"
#include "tools/vipu/tables.h"

namespace vpod::tools {
namespace {

// With the facts and IPUs of `get agent`, if they are wanted. An agent that goes meanwhile is left
// out.
absl::StatusOr<std::vector<vipuadmin::Agent>> Agents(vipu::Client& client, bool with_facts) {
  VPOD_ASSIGN_OR_RETURN(auto agents, client.ListAgents());
  if (!with_facts) return agents;
  std::vector<vipuadmin::Agent> described;
  for (const vipuadmin::Agent& agent : agents) {
    auto one = client.GetAgent(agent.id());
    if (absl::IsNotFound(one.status())) continue;
    if (!one.ok()) return one.status();
    described.push_back(*std::move(one));
  }
  return described;
}

}  // namespace

absl::Status CreateAgent(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, call.arguments.Number(kPort, 8080));
  return Done(call, call.client.CreateAgent(call.id, call.arguments.Text(kHost), port));
}

absl::Status ListAgents(const Call& call) {
  // Facts are known to the machines, which have to be asked one by one.
  return ShowList(
      call, [&](const ListOptions& options) { return Agents(call.client, !options.is_plain()); },
      AgentsListing);
}

absl::Status GetAgent(const Call& call) {
  return Show(call, call.client.GetAgent(call.id), AgentText);
}

absl::Status UpdateAgent(const Call& call) {
  if (!call.arguments.Has(kHost) && !call.arguments.Has(kPort))
    return UsageError("update agent needs --host or --port.");
  vipuadmin::UpdateAgentRequest request;
  request.set_id(call.id);
  request.set_host(call.arguments.Text(kHost));
  VPOD_ASSIGN_OR_RETURN(const uint32_t port, call.arguments.Number(kPort, 0));
  request.set_port(port);
  return Done(call, call.client.UpdateAgent(request));
}

absl::Status ResetAgent(const Call& call) { return Done(call, call.client.ResetAgent(call.id)); }

absl::Status RemoveAgent(const Call& call) { return Done(call, call.client.RemoveAgent(call.id)); }

absl::Status DiscoverAgents(const Call& call) {
  return ShowList(
      call,
      [&](const ListOptions&) { return call.client.DiscoverAgents(call.arguments.Switch(kAdd)); },
      DiscoveredListing);
}

absl::Status CreateCluster(const Call& call) {
  vipuadmin::Cluster cluster;
  cluster.set_id(call.id);
  for (std::string& agent : call.arguments.List(kAgents)) cluster.add_agent_ids(std::move(agent));
  VPOD_ASSIGN_OR_RETURN(const uint32_t ilds, call.arguments.Number(kNumIpuLinkDomains, 1));
  cluster.set_num_ipulinkdomains(ilds);
  cluster.set_topology(call.arguments.Text(kTopology));
  cluster.set_cluster_topology(call.arguments.Text(kClusterTopology));
  return Done(call, call.client.CreateCluster(cluster));
}

absl::Status ListClusters(const Call& call) {
  return ShowList(
      call, [&](const ListOptions&) { return call.client.ListClusters(); }, ClustersListing);
}

absl::Status GetCluster(const Call& call) {
  return Show(call, call.client.GetCluster(call.id), ClusterText);
}

absl::Status UpdateCluster(const Call& call) {
  vipuadmin::UpdateClusterRequest request;
  request.set_id(call.id);
  for (std::string& agent : call.arguments.List(kAgents)) request.add_agent_ids(std::move(agent));
  return Done(call, call.client.UpdateCluster(request));
}

absl::Status ResetCluster(const Call& call) {
  return Done(call, call.client.ResetCluster(call.id));
}

absl::Status RemoveCluster(const Call& call) {
  return Done(call, call.client.RemoveCluster(call.id));
}

absl::Status ListIpuAttributes(const Call& call) {
  return ShowList(
      call, [&](const ListOptions&) { return call.client.ListIpuAttributes(); },
      IpuAttributesListing);
}

}  // namespace vpod::tools
