#include "tools/link_test/partition_links.h"

#include "client/ipuof/telemetry.h"

namespace vpod::tools {

absl::StatusOr<std::vector<telemetry::v1::LinkTelemetry>> LinksOf(
    const vipu::ActivePartition& partition) {
  std::vector<telemetry::v1::LinkTelemetry> links;
  const std::vector<vipu::AgentQuery> agents = ipuof::AgentsOf(partition);
  const auto replies = vipu::GetLinks({agents.begin(), agents.end()});
  for (const vipu::AgentQuery& agent : agents) {
    const auto& reply = replies.at(agent);
    if (!reply.ok()) return ipuof::WithAgent(partition, agent.endpoint, reply.status());
    links.insert(links.end(), reply->links().begin(), reply->links().end());
  }
  return links;
}

}  // namespace vpod::tools
