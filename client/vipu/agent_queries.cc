#include "client/vipu/agent_queries.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/vipu/config.h"
#include "client/vipu/connection.h"
#include "device/base/connection_failure.h"
#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "proto/telemetry/v1/telemetry.grpc.pb.h"

namespace vpod::vipu {
namespace {

using telemetry::v1::Telemetry;

constexpr std::chrono::seconds kAgentPatience(4);

// Returns the status of a finished call to an agent. NotFound comes from an agent that answers.
absl::Status AgentEnded(const grpc::Status& status, const std::string& endpoint,
                        const std::optional<base::Tls>& tls) {
  if (status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND)
    return base::FromGrpc(status);
  const std::string why = base::IsConnectionFailure(status)
                              ? base::ConnectionFailure(tls, endpoint, status)
                              : status.error_message();
  return absl::UnavailableError(why == base::kSilence ? "does not answer"
                                                      : absl::StrCat("does not answer: ", why));
}

// An agent's process, if it is known how to reach it.
struct AgentPeer {
  explicit AgentPeer(const AgentQuery& query) : tls(TlsOf(query.controller)) {
    if (const absl::Status may = base::CheckMayConnect(); !may.ok()) tls = may;
    if (tls.ok()) stub = Telemetry::NewStub(OpenChannel(query.endpoint, base::Peer::kAgent, *tls));
  }
  absl::StatusOr<std::optional<base::Tls>> tls;
  std::unique_ptr<Telemetry::Stub> stub;
};

// A call to it, from its start to its answer.
template <class Reply>
struct AgentCall {
  const AgentPeer* peer = nullptr;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
  Reply reply;
  grpc::Status status;
};

// Makes a call for each query, all at once.
template <class Request, class Reply>
AgentAnswers<Reply> AskAgents(const std::set<AgentQuery>& queries,
                              std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> (
                                  Telemetry::Stub::*start)(grpc::ClientContext*, const Request&,
                                                           grpc::CompletionQueue*)) {
  const auto deadline = std::chrono::system_clock::now() + kAgentPatience;
  std::map<std::string, AgentPeer> peers;  // by endpoint
  std::map<AgentQuery, AgentCall<Reply>> calls;
  grpc::CompletionQueue queue;
  for (const AgentQuery& query : queries) {
    const AgentPeer& peer = peers.try_emplace(query.endpoint, query).first->second;
    AgentCall<Reply>& call = calls[query];
    call.peer = &peer;
    if (!peer.tls.ok()) continue;
    call.context.set_deadline(deadline);
    call.reader = ((*peer.stub).*start)(&call.context, Named<Request>(query.partition_id), &queue);
    call.reader->Finish(&call.reply, &call.status, &call);
  }
  queue.Shutdown();
  void* ended = nullptr;
  for (bool ok = false; queue.Next(&ended, &ok);) {
  }
  AgentAnswers<Reply> answers;
  for (auto& [query, call] : calls) {
    absl::Status status = call.peer->tls.status();
    if (status.ok()) status = AgentEnded(call.status, query.endpoint, *call.peer->tls);
    if (status.ok()) {
      answers.emplace(query, std::move(call.reply));
    } else {
      answers.emplace(query, std::move(status));
    }
  }
  return answers;
}

}  // namespace

AgentAnswers<telemetry::v1::GetPartitionTelemetryReply> GetTelemetry(
    const std::set<AgentQuery>& queries) {
  return AskAgents(queries, &Telemetry::Stub::AsyncGetPartitionTelemetry);
}

AgentAnswers<telemetry::v1::GetPartitionLinksReply> GetLinks(const std::set<AgentQuery>& queries) {
  return AskAgents(queries, &Telemetry::Stub::AsyncGetPartitionLinks);
}

}  // namespace vpod::vipu
