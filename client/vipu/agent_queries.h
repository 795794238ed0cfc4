// Questions to the processes that hold the IPUs of a partition.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "proto/telemetry/v1/telemetry.pb.h"

namespace vpod::vipu {

// A question to an agent's process about a partition.
struct AgentQuery {
  std::string endpoint;  // host:port
  std::string partition_id;
  std::string controller;  // that named the agent; as in TlsOf

  auto operator<=>(const AgentQuery&) const = default;
};
template <class Reply>
using AgentAnswers = std::map<AgentQuery, absl::StatusOr<Reply>>;

// Asks for the devices of partitions, all agents at once; all answers are there within 4 s.
// NotFound: the agent does not have the partition; Unavailable: it does not answer, for whatever
// reason. The message of the latter is what follows the agent's name.
AgentAnswers<telemetry::v1::GetPartitionTelemetryReply> GetTelemetry(
    const std::set<AgentQuery>& queries);

// Likewise for the links between their IPUs.
AgentAnswers<telemetry::v1::GetPartitionLinksReply> GetLinks(const std::set<AgentQuery>& queries);

}  // namespace vpod::vipu
