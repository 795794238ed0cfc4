#include "client/vipu/client.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "device/base/random_id.h"
#include "device/base/status.h"
#include "device/base/text.h"
#include "proto/telemetry/v1/telemetry.grpc.pb.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"

namespace vpod::vipu {
namespace {

using vipuadmin::VipuAdmin;
using vipuuser::VipuUser;

// A request about one object.
template <class Request>
Request Named(const std::string& id) {
  Request request;
  if constexpr (requires { request.set_partition_id(id); }) {
    request.set_partition_id(id);
  } else {
    request.set_id(id);
  }
  return request;
}

// The one part of a reply that matters.
template <class Reply, class Part>
absl::StatusOr<Part> One(absl::StatusOr<Reply> reply, Part* (Reply::*part)()) {
  if (!reply.ok()) return reply.status();
  return std::move(*((*reply).*part)());
}

// The same for replies that are a list.
template <class Reply, class Message>
absl::StatusOr<std::vector<Message>> All(
    absl::StatusOr<Reply> reply, google::protobuf::RepeatedPtrField<Message>* (Reply::*list)()) {
  if (!reply.ok()) return reply.status();
  auto* messages = ((*reply).*list)();
  return std::vector<Message>(std::make_move_iterator(messages->begin()),
                              std::make_move_iterator(messages->end()));
}

// What the end of a call to an agent means. NotFound comes from one that answers.
absl::Status AgentEnded(const grpc::Status& status, const std::string& endpoint,
                        const std::optional<base::Tls>& tls) {
  if (status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND)
    return base::FromGrpc(status);
  return absl::UnavailableError(
      absl::StrCat("the agent at ", endpoint, " does not answer: ", base::ConnectionError(status),
                   ".", base::TlsHint(tls, endpoint, status.error_message())));
}

std::shared_ptr<grpc::Channel> Open(const std::string& address, base::Peer peer,
                                    const std::optional<base::Tls>& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(256 << 20);
  // A stopped server must not be hidden by the back-off of another channel's attempt.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return base::Connect(address, peer, tls, arguments);
}

// Text that protobuf cannot carry would arrive as a message that cannot be read. InvalidArgument
// names the field.
absl::Status CheckText(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        VPOD_RETURN_IF_ERROR(CheckText(field->is_repeated()
                                           ? reflection.GetRepeatedMessage(message, field, i)
                                           : reflection.GetMessage(message, field)));
      } else if (field->type() == FieldDescriptor::TYPE_STRING) {
        VPOD_RETURN_IF_ERROR(base::CheckUtf8(
            field->name(), field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                : reflection.GetString(message, field)));
      }
    }
  }
  return absl::OkStatus();
}

// With a controller that goes away while it is asked, and may start anew.
constexpr std::chrono::seconds kRestartPatience(5);

// A refusal of the store's, by its words, is an answer.
bool IsOfTheStore(const grpc::Status& status) {
  return absl::StartsWith(status.error_message(), "storage");
}

// The controller was there when it was asked. What it made of the request is not known.
bool AnswerWasLost(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && !IsOfTheStore(status) &&
         !absl::StrContains(status.error_message(), "failed to connect");
}

using telemetry::v1::Telemetry;
constexpr std::chrono::seconds kAgentPatience(4);

// An agent's process, if it is known how to reach it.
struct AgentPeer {
  explicit AgentPeer(const AgentQuery& query) : tls(TlsOf(query.controller)) {
    if (tls.ok()) stub = Telemetry::NewStub(Open(query.endpoint, base::Peer::kAgent, *tls));
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

struct Client::Impl {
  Impl(ClientConfig config, std::chrono::seconds timeout)
      : config(std::move(config)), timeout(timeout) {}

  struct Connection {
    explicit Connection(const ClientConfig& config)
        : channel(Open(config.address(), base::Peer::kController, config.tls)),
          user(VipuUser::NewStub(channel)),
          admin(VipuAdmin::NewStub(channel)) {}
    VipuUser::Stub& Get(VipuUser::Stub*) { return *user; }
    VipuAdmin::Stub& Get(VipuAdmin::Stub*) { return *admin; }

    const std::shared_ptr<grpc::Channel> channel;
    const std::unique_ptr<VipuUser::Stub> user;
    const std::unique_ptr<VipuAdmin::Stub> admin;
  };

  std::shared_ptr<Connection> Current() {
    base::MutexLock lock(mutex);
    if (connection == nullptr) connection = std::make_shared<Connection>(config);
    return connection;
  }

  // A channel that failed reconnects in its own time (seconds, as nothing polls it between calls):
  // the next call makes a new one.
  void Drop(const std::shared_ptr<Connection>& failed) {
    base::MutexLock lock(mutex);
    if (connection == failed) connection = nullptr;
  }

  void Prepare(grpc::ClientContext& context) const {
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    context.AddMetadata("vipu-user-id", config.user_id);
    // No controller without TLS asks for it, and anybody could read it.
    if (!config.access_key.empty() && config.tls.has_value())
      context.AddMetadata("vipu-access-key", config.access_key);
  }

  // What a call's end means to the caller.
  absl::Status Ended(const std::shared_ptr<Connection>& used, const grpc::Status& status) {
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE && !IsOfTheStore(status)) {
      Drop(used);
      return absl::UnavailableError(
          absl::StrCat("Cannot connect to the V-IPU server at ", config.address(), ".",
                       base::TlsHint(config.tls, config.address(), status.error_message())));
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      Drop(used);
      return absl::DeadlineExceededError(absl::StrCat("No result within ", timeout.count(),
                                                      " s from the V-IPU server at ",
                                                      config.address(), "."));
    }
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return absl::UnimplementedError(
          absl::StrCat("The V-IPU server at ", config.address(),
                       " does not know this call; is it an older one?"));
    }
    return base::FromGrpc(status);
  }

  template <class Stub, class Request, class Reply>
  absl::StatusOr<Reply> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Reply*),
                             const Request& request) {
    VPOD_RETURN_IF_ERROR(CheckText(request));
    grpc::ClientContext context;
    Prepare(context);
    const std::shared_ptr<Connection> used = Current();
    Reply reply;
    VPOD_RETURN_IF_ERROR(
        Ended(used, (used->Get(static_cast<Stub*>(nullptr)).*method)(&context, request, &reply)));
    return reply;
  }

  template <class Stub, class Request, class Reply>
  absl::Status Stream(std::unique_ptr<grpc::ClientReader<Reply>> (Stub::*method)(
                          grpc::ClientContext*, const Request&),
                      const Request& request, const std::function<void(const Reply&)>& each) {
    VPOD_RETURN_IF_ERROR(CheckText(request));
    grpc::ClientContext context;
    Prepare(context);
    const std::shared_ptr<Connection> used = Current();
    const auto reader = (used->Get(static_cast<Stub*>(nullptr)).*method)(&context, request);
    for (Reply reply; reader->Read(&reply);) each(reply);
    return Ended(used, reader->Finish());
  }

  const ClientConfig config;
  const std::chrono::seconds timeout;
  base::Mutex mutex;
  // Made by the first call. Null also after one that failed.
  std::shared_ptr<Connection> connection ABSL_GUARDED_BY(mutex);
};

Client::Client(ClientConfig config, std::chrono::seconds timeout)
    : impl_(std::make_unique<Impl>(std::move(config), timeout)) {}
Client::~Client() = default;

const ClientConfig& Client::config() const { return impl_->config; }

absl::StatusOr<vipuuser::GetServerInfoReply> Client::ServerInfo() {
  return impl_->Call(&VipuUser::Stub::GetServerInfo, {});
}

absl::StatusOr<std::vector<vipuuser::Allocation>> Client::ListAllocations() {
  return All(impl_->Call(&VipuUser::Stub::ListAllocations, {}),
             &vipuuser::ListAllocationsReply::mutable_allocations);
}

absl::StatusOr<std::vector<vipuuser::IpuAttributes>> Client::ListIpuAttributes() {
  return All(impl_->Call(&VipuUser::Stub::ListIpuAttributes, {}),
             &vipuuser::ListIpuAttributesReply::mutable_ipus);
}

absl::StatusOr<std::vector<vipuuser::Partition>> Client::ListPartitions(bool with_devices) {
  vipuuser::ListPartitionsRequest request;
  request.set_with_devices(with_devices);
  return All(impl_->Call(&VipuUser::Stub::ListPartitions, request),
             &vipuuser::ListPartitionsReply::mutable_partitions);
}

absl::StatusOr<vipuuser::Partition> Client::GetPartition(const std::string& id) {
  return One(impl_->Call(&VipuUser::Stub::GetPartition, Named<vipuuser::GetPartitionRequest>(id)),
             &vipuuser::GetPartitionReply::mutable_partition);
}

absl::StatusOr<vipuuser::PartitionStatus> Client::GetPartitionStatus(const std::string& id) {
  return One(impl_->Call(&VipuUser::Stub::GetPartitionStatus,
                         Named<vipuuser::GetPartitionStatusRequest>(id)),
             &vipuuser::GetPartitionStatusReply::mutable_status);
}

absl::StatusOr<vipuuser::PartitionConfig> Client::GetPartitionConfig(const std::string& id,
                                                                     int64_t gcd) {
  auto request = Named<vipuuser::GetPartitionIpuofConfigRequest>(id);
  if (gcd >= 0) request.mutable_gcd_id()->set_id(static_cast<uint32_t>(gcd));
  return One(impl_->Call(&VipuUser::Stub::GetPartitionIpuofConfig, request),
             &vipuuser::GetPartitionIpuofConfigReply::mutable_ipuof_config);
}

absl::Status Client::CreatePartition(vipuuser::CreatePartitionRequest request) {
  VPOD_RETURN_IF_ERROR(CheckText(request));
  if (request.request_id().empty()) request.set_request_id(base::RandomId());
  const auto deadline = std::chrono::system_clock::now() + kRestartPatience;
  bool reached = false;
  while (true) {
    grpc::ClientContext context;
    impl_->Prepare(context);
    const auto used = impl_->Current();
    vipuuser::CreatePartitionReply reply;
    const grpc::Status ended = used->user->CreatePartition(&context, request, &reply);
    reached = reached || AnswerWasLost(ended);
    const absl::Status status = impl_->Ended(used, ended);
    if (!absl::IsUnavailable(status) || IsOfTheStore(ended) || !reached) return status;
    if (!impl_->Current()->channel->WaitForConnected(deadline)) return status;
  }
}

absl::Status Client::UpdatePartition(const vipuuser::UpdatePartitionRequest& request) {
  return impl_->Call(&VipuUser::Stub::UpdatePartition, request).status();
}

absl::Status Client::ResetPartition(const std::string& id) {
  return impl_->Call(&VipuUser::Stub::ResetPartition, Named<vipuuser::ResetPartitionRequest>(id))
      .status();
}

absl::Status Client::RemovePartition(const std::string& id) {
  return impl_->Call(&VipuUser::Stub::RemovePartition, Named<vipuuser::RemovePartitionRequest>(id))
      .status();
}

absl::Status Client::WaitUntilActive(const std::string& id, const std::function<bool()>& stop) {
  // The published API is asynchronous: clients poll.
  const auto deadline = std::chrono::steady_clock::now() + impl_->timeout;
  auto pause = std::chrono::milliseconds(2);
  while (true) {
    VPOD_ASSIGN_OR_RETURN(const vipuuser::PartitionStatus status, GetPartitionStatus(id));
    if (status.state() == vipuuser::PS_ACTIVE) return absl::OkStatus();
    if (status.state() != vipuuser::PS_PENDING && status.state() != vipuuser::PS_RELEASING) {
      return absl::AbortedError(absl::StrCat("Partition is in state ", StateText(status.state()),
                                             ": ", status.message()));
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "No result within ", impl_->timeout.count(), " s; partition is ",
          StateText(status.state()), status.message().empty() ? "." : ": ", status.message()));
    }
    if (stop && stop()) return absl::CancelledError("interrupted");
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
}

absl::Status Client::CreateAgent(const std::string& id, const std::string& host, uint32_t port) {
  auto request = Named<vipuadmin::CreateAgentRequest>(id);
  request.set_host(host);
  request.set_port(port);
  return impl_->Call(&VipuAdmin::Stub::CreateAgent, request).status();
}

absl::StatusOr<std::vector<vipuadmin::Agent>> Client::ListAgents() {
  return All(impl_->Call(&VipuAdmin::Stub::ListAgents, {}),
             &vipuadmin::ListAgentsReply::mutable_agents);
}

absl::StatusOr<vipuadmin::Agent> Client::GetAgent(const std::string& id) {
  return One(impl_->Call(&VipuAdmin::Stub::GetAgent, Named<vipuadmin::GetAgentRequest>(id)),
             &vipuadmin::GetAgentReply::mutable_agent);
}

absl::Status Client::UpdateAgent(const vipuadmin::UpdateAgentRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::UpdateAgent, request).status();
}

absl::Status Client::ResetAgent(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::ResetAgent, Named<vipuadmin::ResetAgentRequest>(id))
      .status();
}

absl::Status Client::RemoveAgent(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::RemoveAgent, Named<vipuadmin::RemoveAgentRequest>(id))
      .status();
}

absl::StatusOr<std::vector<vipuadmin::DiscoveredAgent>> Client::DiscoverAgents(bool add) {
  vipuadmin::DiscoverAgentsRequest request;
  request.set_add(add);
  return All(impl_->Call(&VipuAdmin::Stub::DiscoverAgents, request),
             &vipuadmin::DiscoverAgentsReply::mutable_agents);
}

absl::Status Client::CreateCluster(const vipuadmin::Cluster& cluster) {
  vipuadmin::CreateClusterRequest request;
  *request.mutable_cluster() = cluster;
  return impl_->Call(&VipuAdmin::Stub::CreateCluster, request).status();
}

absl::StatusOr<std::vector<vipuadmin::Cluster>> Client::ListClusters() {
  return All(impl_->Call(&VipuAdmin::Stub::ListClusters, {}),
             &vipuadmin::ListClustersReply::mutable_clusters);
}

absl::StatusOr<vipuadmin::GetClusterReply> Client::GetCluster(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::GetCluster, Named<vipuadmin::GetClusterRequest>(id));
}

absl::Status Client::UpdateCluster(const vipuadmin::UpdateClusterRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::UpdateCluster, request).status();
}

absl::Status Client::ResetCluster(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::ResetCluster, Named<vipuadmin::ResetClusterRequest>(id))
      .status();
}

absl::Status Client::RemoveCluster(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::RemoveCluster, Named<vipuadmin::RemoveClusterRequest>(id))
      .status();
}

absl::Status Client::TestCluster(
    const vipuadmin::TestClusterRequest& request,
    const std::function<void(const vipuadmin::TestClusterReply&)>& row) {
  return impl_->Stream(&VipuAdmin::Stub::TestCluster, request, row);
}

absl::Status Client::CreateAllocation(const vipuadmin::Allocation& allocation) {
  vipuadmin::CreateAllocationRequest request;
  *request.mutable_allocation() = allocation;
  return impl_->Call(&VipuAdmin::Stub::CreateAllocation, request).status();
}

absl::StatusOr<std::vector<vipuadmin::Allocation>> Client::ListAllAllocations() {
  return All(impl_->Call(&VipuAdmin::Stub::ListAllocations, {}),
             &vipuadmin::ListAllocationsReply::mutable_allocations);
}

absl::StatusOr<vipuadmin::Allocation> Client::GetAllocation(const std::string& id) {
  return One(
      impl_->Call(&VipuAdmin::Stub::GetAllocation, Named<vipuadmin::GetAllocationRequest>(id)),
      &vipuadmin::GetAllocationReply::mutable_allocation);
}

absl::Status Client::UpdateAllocation(const vipuadmin::UpdateAllocationRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::UpdateAllocation, request).status();
}

absl::Status Client::RemoveAllocation(const std::string& id) {
  return impl_
      ->Call(&VipuAdmin::Stub::RemoveAllocation, Named<vipuadmin::RemoveAllocationRequest>(id))
      .status();
}

absl::StatusOr<std::string> Client::CreateUser(const vipuadmin::User& user) {
  vipuadmin::CreateUserRequest request;
  *request.mutable_user() = user;
  VPOD_ASSIGN_OR_RETURN(auto reply, impl_->Call(&VipuAdmin::Stub::CreateUser, request));
  return std::move(*reply.mutable_access_key());
}

absl::StatusOr<std::vector<vipuadmin::User>> Client::ListUsers() {
  return All(impl_->Call(&VipuAdmin::Stub::ListUsers, {}),
             &vipuadmin::ListUsersReply::mutable_users);
}

absl::StatusOr<vipuadmin::User> Client::GetUser(const std::string& id) {
  return One(impl_->Call(&VipuAdmin::Stub::GetUser, Named<vipuadmin::GetUserRequest>(id)),
             &vipuadmin::GetUserReply::mutable_user);
}

absl::StatusOr<std::string> Client::UpdateUser(const vipuadmin::UpdateUserRequest& request) {
  VPOD_ASSIGN_OR_RETURN(auto reply, impl_->Call(&VipuAdmin::Stub::UpdateUser, request));
  return std::move(*reply.mutable_access_key());
}

absl::Status Client::RemoveUser(const std::string& id) {
  return impl_->Call(&VipuAdmin::Stub::RemoveUser, Named<vipuadmin::RemoveUserRequest>(id))
      .status();
}

absl::StatusOr<std::vector<vipuadmin::Event>> Client::ListEvents(
    const vipuadmin::ListEventsRequest& request) {
  return All(impl_->Call(&VipuAdmin::Stub::ListEvents, request),
             &vipuadmin::ListEventsReply::mutable_events);
}

absl::Status Client::Inject(const vipuadmin::InjectRequest& request) {
  return impl_->Call(&VipuAdmin::Stub::Inject, request).status();
}

AgentAnswers<telemetry::v1::GetPartitionTelemetryReply> GetTelemetry(
    const std::set<AgentQuery>& queries) {
  return AskAgents(queries, &Telemetry::Stub::AsyncGetPartitionTelemetry);
}

AgentAnswers<telemetry::v1::GetPartitionLinksReply> GetLinks(const std::set<AgentQuery>& queries) {
  return AskAgents(queries, &Telemetry::Stub::AsyncGetPartitionLinks);
}

std::string StateText(vipuuser::PartitionState state) {
  const std::string name = vipuuser::PartitionState_Name(state);
  return name.size() > 3 ? name.substr(3) : "UNKNOWN";
}

}  // namespace vpod::vipu
