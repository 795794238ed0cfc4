#include <atomic>

#include "absl/cleanup/cleanup.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using grpc::ServerContext;
using grpc::Status;

class AdminService : public MeasuredService {
 public:
  AdminService(controller::Controller& controller, Callers& callers, MessageMemory& memory)
      : MeasuredService(vipuadmin::VipuAdmin::service_full_name(), memory),
        controller_(controller),
        callers_(callers) {
    Add("CreateAgent", kWords, &AdminService::CreateAgent);
    Add("ListAgents", kWords, &AdminService::ListAgents);
    Add("GetAgent", kWords, &AdminService::GetAgent);
    Add("UpdateAgent", kWords, &AdminService::UpdateAgent);
    Add("ResetAgent", kWords, &AdminService::ResetAgent);
    Add("RemoveAgent", kWords, &AdminService::RemoveAgent);
    Add("DiscoverAgents", kWords, &AdminService::DiscoverAgents);
    Add("CreateCluster", kLists, &AdminService::CreateCluster);
    Add("ListClusters", kWords, &AdminService::ListClusters);
    Add("GetCluster", kWords, &AdminService::GetCluster);
    Add("UpdateCluster", kLists, &AdminService::UpdateCluster);
    Add("ResetCluster", kWords, &AdminService::ResetCluster);
    Add("RemoveCluster", kWords, &AdminService::RemoveCluster);
    Add("CreateAllocation", kLists, &AdminService::CreateAllocation);
    Add("ListAllocations", kWords, &AdminService::ListAllocations);
    Add("GetAllocation", kWords, &AdminService::GetAllocation);
    Add("UpdateAllocation", kLists, &AdminService::UpdateAllocation);
    Add("RemoveAllocation", kWords, &AdminService::RemoveAllocation);
    Add("CreateUser", kLists, &AdminService::CreateUser);
    Add("ListUsers", kWords, &AdminService::ListUsers);
    Add("GetUser", kWords, &AdminService::GetUser);
    Add("UpdateUser", kLists, &AdminService::UpdateUser);
    Add("RemoveUser", kWords, &AdminService::RemoveUser);
    Add("TestCluster", kWords, &AdminService::TestCluster);
    Add("Inject", kWords, &AdminService::Inject);
    Add("ListEvents", kWords, &AdminService::ListEvents);
    Add("Backup", kWords, &AdminService::Backup);
  }

  Status CreateAgent(ServerContext* context, const vipuadmin::CreateAgentRequest* request,
                     vipuadmin::CreateAgentReply*) {
    return ToGrpc(controller_.CreateAgent(*request, User(*context)));
  }
  Status ListAgents(ServerContext*, const vipuadmin::ListAgentsRequest*,
                    vipuadmin::ListAgentsReply* reply) {
    for (auto& agent : controller_.ListAgents()) *reply->add_agents() = std::move(agent);
    return Status::OK;
  }
  Status GetAgent(ServerContext*, const vipuadmin::GetAgentRequest* request,
                  vipuadmin::GetAgentReply* reply) {
    return Answer(controller_.GetAgent(request->id()),
                  [&](vipuadmin::Agent agent) { *reply->mutable_agent() = std::move(agent); });
  }
  Status UpdateAgent(ServerContext* context, const vipuadmin::UpdateAgentRequest* request,
                     vipuadmin::UpdateAgentReply*) {
    return ToGrpc(controller_.UpdateAgent(*request, User(*context)));
  }
  Status ResetAgent(ServerContext* context, const vipuadmin::ResetAgentRequest* request,
                    vipuadmin::ResetAgentReply*) {
    return ToGrpc(controller_.ResetAgent(request->id(), User(*context)));
  }
  Status RemoveAgent(ServerContext* context, const vipuadmin::RemoveAgentRequest* request,
                     vipuadmin::RemoveAgentReply*) {
    return ToGrpc(controller_.RemoveAgent(request->id(), User(*context)));
  }
  Status DiscoverAgents(ServerContext* context, const vipuadmin::DiscoverAgentsRequest* request,
                        vipuadmin::DiscoverAgentsReply* reply) {
    return Answer(controller_.DiscoverAgents(request->add(), User(*context)),
                  [&](std::vector<vipuadmin::DiscoveredAgent> agents) {
                    for (auto& agent : agents) *reply->add_agents() = std::move(agent);
                  });
  }
  Status CreateCluster(ServerContext* context, const vipuadmin::CreateClusterRequest* request,
                       vipuadmin::CreateClusterReply*) {
    return ToGrpc(controller_.CreateCluster(request->cluster(), User(*context)));
  }
  Status ListClusters(ServerContext*, const vipuadmin::ListClustersRequest*,
                      vipuadmin::ListClustersReply* reply) {
    for (auto& cluster : controller_.ListClusters()) *reply->add_clusters() = std::move(cluster);
    return Status::OK;
  }
  Status GetCluster(ServerContext*, const vipuadmin::GetClusterRequest* request,
                    vipuadmin::GetClusterReply* reply) {
    return Answer(controller_.GetCluster(request->id()),
                  [&](vipuadmin::GetClusterReply found) { *reply = std::move(found); });
  }
  Status UpdateCluster(ServerContext* context, const vipuadmin::UpdateClusterRequest* request,
                       vipuadmin::UpdateClusterReply*) {
    return ToGrpc(controller_.UpdateCluster(*request, User(*context)));
  }
  Status ResetCluster(ServerContext* context, const vipuadmin::ResetClusterRequest* request,
                      vipuadmin::ResetClusterReply*) {
    return ToGrpc(controller_.ResetCluster(request->id(), User(*context)));
  }
  Status RemoveCluster(ServerContext* context, const vipuadmin::RemoveClusterRequest* request,
                       vipuadmin::RemoveClusterReply*) {
    return ToGrpc(controller_.RemoveCluster(request->id(), User(*context)));
  }
  Status CreateAllocation(ServerContext* context, const vipuadmin::CreateAllocationRequest* request,
                          vipuadmin::CreateAllocationReply*) {
    return ToGrpc(controller_.CreateAllocation(request->allocation(), User(*context)));
  }
  Status ListAllocations(ServerContext*, const vipuadmin::ListAllocationsRequest*,
                         vipuadmin::ListAllocationsReply* reply) {
    for (auto& allocation : controller_.ListAllocations())
      *reply->add_allocations() = std::move(allocation);
    return Status::OK;
  }
  Status GetAllocation(ServerContext*, const vipuadmin::GetAllocationRequest* request,
                       vipuadmin::GetAllocationReply* reply) {
    return Answer(controller_.GetAllocation(request->id()), [&](vipuadmin::Allocation allocation) {
      *reply->mutable_allocation() = std::move(allocation);
    });
  }
  Status UpdateAllocation(ServerContext* context, const vipuadmin::UpdateAllocationRequest* request,
                          vipuadmin::UpdateAllocationReply*) {
    return ToGrpc(controller_.UpdateAllocation(*request, User(*context)));
  }
  Status RemoveAllocation(ServerContext* context, const vipuadmin::RemoveAllocationRequest* request,
                          vipuadmin::RemoveAllocationReply*) {
    return ToGrpc(controller_.RemoveAllocation(request->id(), User(*context)));
  }
  Status CreateUser(ServerContext* context, const vipuadmin::CreateUserRequest* request,
                    vipuadmin::CreateUserReply* reply) {
    return Answer(controller_.CreateUser(request->user(), User(*context)),
                  [&](std::string key) { reply->set_access_key(std::move(key)); });
  }
  Status ListUsers(ServerContext*, const vipuadmin::ListUsersRequest*,
                   vipuadmin::ListUsersReply* reply) {
    for (vipuadmin::User& user : controller_.ListUsers()) *reply->add_users() = std::move(user);
    return Status::OK;
  }
  Status GetUser(ServerContext*, const vipuadmin::GetUserRequest* request,
                 vipuadmin::GetUserReply* reply) {
    return Answer(controller_.GetUser(request->id()),
                  [&](vipuadmin::User user) { *reply->mutable_user() = std::move(user); });
  }
  Status UpdateUser(ServerContext* context, const vipuadmin::UpdateUserRequest* request,
                    vipuadmin::UpdateUserReply* reply) {
    return Answer(controller_.UpdateUser(*request, User(*context)),
                  [&](std::string key) { reply->set_access_key(std::move(key)); });
  }
  Status RemoveUser(ServerContext* context, const vipuadmin::RemoveUserRequest* request,
                    vipuadmin::RemoveUserReply*) {
    return ToGrpc(controller_.RemoveUser(request->id(), User(*context)));
  }
  Status TestCluster(ServerContext* context, const vipuadmin::TestClusterRequest* request,
                     grpc::ServerWriter<vipuadmin::TestClusterReply>* writer) {
    return ToGrpc(controller_.TestCluster(
        *request, [&](const vipuadmin::TestClusterReply& row) { return writer->Write(row); },
        [&] { return context->IsCancelled(); }, User(*context)));
  }
  Status Inject(ServerContext* context, const vipuadmin::InjectRequest* request,
                vipuadmin::InjectReply*) {
    return ToGrpc(controller_.Inject(*request, User(*context)));
  }
  Status ListEvents(ServerContext*, const vipuadmin::ListEventsRequest* request,
                    vipuadmin::ListEventsReply* reply) {
    return Answer(controller_.ListEvents(*request),
                  [&](std::vector<controller::StoredEvent> events) {
                    for (controller::StoredEvent& event : events) {
                      vipuadmin::Event* shown = reply->add_events();
                      shown->set_number(event.number);
                      shown->set_time_ms(event.time_ms);
                      shown->set_severity(std::move(event.severity));
                      shown->set_object(std::move(event.object));
                      shown->set_user(std::move(event.user));
                      shown->set_text(std::move(event.text));
                    }
                  });
  }
  Status Backup(ServerContext* context, const vipuadmin::BackupRequest*,
                grpc::ServerWriter<vipuadmin::BackupReply>* writer) {
    constexpr size_t kPiece = 256 << 10;
    // Each takes as much memory as the store has bytes.
    if (backing_up_.exchange(true))
      return ToGrpc(absl::ResourceExhaustedError("Another backup is under way; try again."));
    const absl::Cleanup done = [this] { backing_up_ = false; };
    auto backup = controller_.Backup(User(*context));
    if (!backup.ok()) return ToGrpc(backup.status());
    const auto& [bytes, summary] = *backup;
    vipuadmin::BackupReply reply;
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      reply.set_data(bytes.substr(at, kPiece));
      if (!writer->Write(reply)) return Status::CANCELLED;
    }
    reply.clear_data();
    *reply.mutable_summary() = summary;
    writer->Write(reply);
    return Status::OK;
  }

 private:
  // For the log of events.
  std::string User(const ServerContext& context) {
    const auto caller = callers_.Of(context);
    return caller.ok() ? caller->user_id : "";
  }

  controller::Controller& controller_;
  Callers& callers_;
  std::atomic<bool> backing_up_ = false;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(controller::Controller& controller,
                                                Callers& callers, MessageMemory& memory) {
  return std::make_unique<AdminService>(controller, callers, memory);
}

}  // namespace vpod::rpc
