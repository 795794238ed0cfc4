#include <atomic>

#include "absl/cleanup/cleanup.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using grpc::ServerContext;
using grpc::Status;

class AdminService : public vipuadmin::VipuAdmin::Service {
 public:
  AdminService(controller::Controller& controller, Callers& callers)
      : controller_(controller), callers_(callers) {}

  Status CreateAgent(ServerContext* context, const vipuadmin::CreateAgentRequest* request,
                     vipuadmin::CreateAgentReply*) override {
    return ToGrpc(controller_.CreateAgent(*request, User(*context)));
  }
  Status ListAgents(ServerContext*, const vipuadmin::ListAgentsRequest*,
                    vipuadmin::ListAgentsReply* reply) override {
    for (auto& agent : controller_.ListAgents()) *reply->add_agents() = std::move(agent);
    return Status::OK;
  }
  Status GetAgent(ServerContext*, const vipuadmin::GetAgentRequest* request,
                  vipuadmin::GetAgentReply* reply) override {
    return Answer(controller_.GetAgent(request->id()),
                  [&](vipuadmin::Agent agent) { *reply->mutable_agent() = std::move(agent); });
  }
  Status UpdateAgent(ServerContext* context, const vipuadmin::UpdateAgentRequest* request,
                     vipuadmin::UpdateAgentReply*) override {
    return ToGrpc(controller_.UpdateAgent(*request, User(*context)));
  }
  Status ResetAgent(ServerContext* context, const vipuadmin::ResetAgentRequest* request,
                    vipuadmin::ResetAgentReply*) override {
    return ToGrpc(controller_.ResetAgent(request->id(), User(*context)));
  }
  Status RemoveAgent(ServerContext* context, const vipuadmin::RemoveAgentRequest* request,
                     vipuadmin::RemoveAgentReply*) override {
    return ToGrpc(controller_.RemoveAgent(request->id(), User(*context)));
  }
  Status DiscoverAgents(ServerContext* context, const vipuadmin::DiscoverAgentsRequest* request,
                        vipuadmin::DiscoverAgentsReply* reply) override {
    return Answer(controller_.DiscoverAgents(request->add(), User(*context)),
                  [&](std::vector<vipuadmin::DiscoveredAgent> agents) {
                    for (auto& agent : agents) *reply->add_agents() = std::move(agent);
                  });
  }
  Status CreateCluster(ServerContext* context, const vipuadmin::CreateClusterRequest* request,
                       vipuadmin::CreateClusterReply*) override {
    return ToGrpc(controller_.CreateCluster(request->cluster(), User(*context)));
  }
  Status ListClusters(ServerContext*, const vipuadmin::ListClustersRequest*,
                      vipuadmin::ListClustersReply* reply) override {
    for (auto& cluster : controller_.ListClusters()) *reply->add_clusters() = std::move(cluster);
    return Status::OK;
  }
  Status GetCluster(ServerContext*, const vipuadmin::GetClusterRequest* request,
                    vipuadmin::GetClusterReply* reply) override {
    return Answer(controller_.GetCluster(request->id()),
                  [&](vipuadmin::GetClusterReply found) { *reply = std::move(found); });
  }
  Status UpdateCluster(ServerContext* context, const vipuadmin::UpdateClusterRequest* request,
                       vipuadmin::UpdateClusterReply*) override {
    return ToGrpc(controller_.UpdateCluster(*request, User(*context)));
  }
  Status ResetCluster(ServerContext* context, const vipuadmin::ResetClusterRequest* request,
                      vipuadmin::ResetClusterReply*) override {
    return ToGrpc(controller_.ResetCluster(request->id(), User(*context)));
  }
  Status RemoveCluster(ServerContext* context, const vipuadmin::RemoveClusterRequest* request,
                       vipuadmin::RemoveClusterReply*) override {
    return ToGrpc(controller_.RemoveCluster(request->id(), User(*context)));
  }
  Status CreateAllocation(ServerContext* context, const vipuadmin::CreateAllocationRequest* request,
                          vipuadmin::CreateAllocationReply*) override {
    return ToGrpc(controller_.CreateAllocation(request->allocation(), User(*context)));
  }
  Status ListAllocations(ServerContext*, const vipuadmin::ListAllocationsRequest*,
                         vipuadmin::ListAllocationsReply* reply) override {
    for (auto& allocation : controller_.ListAllocations())
      *reply->add_allocations() = std::move(allocation);
    return Status::OK;
  }
  Status GetAllocation(ServerContext*, const vipuadmin::GetAllocationRequest* request,
                       vipuadmin::GetAllocationReply* reply) override {
    return Answer(controller_.GetAllocation(request->id()), [&](vipuadmin::Allocation allocation) {
      *reply->mutable_allocation() = std::move(allocation);
    });
  }
  Status UpdateAllocation(ServerContext* context, const vipuadmin::UpdateAllocationRequest* request,
                          vipuadmin::UpdateAllocationReply*) override {
    return ToGrpc(controller_.UpdateAllocation(*request, User(*context)));
  }
  Status RemoveAllocation(ServerContext* context, const vipuadmin::RemoveAllocationRequest* request,
                          vipuadmin::RemoveAllocationReply*) override {
    return ToGrpc(controller_.RemoveAllocation(request->id(), User(*context)));
  }
  Status CreateUser(ServerContext* context, const vipuadmin::CreateUserRequest* request,
                    vipuadmin::CreateUserReply* reply) override {
    return Answer(controller_.CreateUser(request->user(), User(*context)),
                  [&](std::string key) { reply->set_access_key(std::move(key)); });
  }
  Status ListUsers(ServerContext*, const vipuadmin::ListUsersRequest*,
                   vipuadmin::ListUsersReply* reply) override {
    for (vipuadmin::User& user : controller_.ListUsers()) *reply->add_users() = std::move(user);
    return Status::OK;
  }
  Status GetUser(ServerContext*, const vipuadmin::GetUserRequest* request,
                 vipuadmin::GetUserReply* reply) override {
    return Answer(controller_.GetUser(request->id()),
                  [&](vipuadmin::User user) { *reply->mutable_user() = std::move(user); });
  }
  Status UpdateUser(ServerContext* context, const vipuadmin::UpdateUserRequest* request,
                    vipuadmin::UpdateUserReply* reply) override {
    return Answer(controller_.UpdateUser(*request, User(*context)),
                  [&](std::string key) { reply->set_access_key(std::move(key)); });
  }
  Status RemoveUser(ServerContext* context, const vipuadmin::RemoveUserRequest* request,
                    vipuadmin::RemoveUserReply*) override {
    return ToGrpc(controller_.RemoveUser(request->id(), User(*context)));
  }
  Status TestCluster(ServerContext* context, const vipuadmin::TestClusterRequest* request,
                     grpc::ServerWriter<vipuadmin::TestClusterReply>* writer) override {
    return ToGrpc(controller_.TestCluster(
        *request, [&](const vipuadmin::TestClusterReply& row) { return writer->Write(row); },
        [&] { return context->IsCancelled(); }, User(*context)));
  }
  Status Inject(ServerContext* context, const vipuadmin::InjectRequest* request,
                vipuadmin::InjectReply*) override {
    return ToGrpc(controller_.Inject(*request, User(*context)));
  }
  Status ListEvents(ServerContext*, const vipuadmin::ListEventsRequest* request,
                    vipuadmin::ListEventsReply* reply) override {
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
                grpc::ServerWriter<vipuadmin::BackupReply>* writer) override {
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
                                                Callers& callers) {
  return std::make_unique<AdminService>(controller, callers);
}

}  // namespace vpod::rpc
