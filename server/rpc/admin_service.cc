#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "server/rpc/service_support.h"
#include "server/rpc/user_administration.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using grpc::ServerContext;
using grpc::Status;

class AdminService : public UserAdministration {
 public:
  using UserAdministration::UserAdministration;

  Status CreateAgent(ServerContext*, const vipuadmin::CreateAgentRequest* request,
                     vipuadmin::CreateAgentReply*) override {
    return ToGrpc(controller_.CreateAgent(*request));
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
  Status RemoveAgent(ServerContext*, const vipuadmin::RemoveAgentRequest* request,
                     vipuadmin::RemoveAgentReply*) override {
    return ToGrpc(controller_.RemoveAgent(request->id()));
  }
  Status DiscoverAgents(ServerContext*, const vipuadmin::DiscoverAgentsRequest*,
                        vipuadmin::DiscoverAgentsReply* reply) override {
    for (auto& agent : controller_.DiscoverAgents()) *reply->add_agents() = std::move(agent);
    return Status::OK;
  }
  Status CreateCluster(ServerContext*, const vipuadmin::CreateClusterRequest* request,
                       vipuadmin::CreateClusterReply*) override {
    return ToGrpc(controller_.CreateCluster(request->cluster()));
  }
  Status ListClusters(ServerContext*, const vipuadmin::ListClustersRequest*,
                      vipuadmin::ListClustersReply* reply) override {
    for (auto& cluster : controller_.ListClusters()) *reply->add_clusters() = std::move(cluster);
    return Status::OK;
  }
  Status RemoveCluster(ServerContext*, const vipuadmin::RemoveClusterRequest* request,
                       vipuadmin::RemoveClusterReply*) override {
    return ToGrpc(controller_.RemoveCluster(request->id()));
  }
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(controller::Controller& controller,
                                                Callers& callers) {
  return std::make_unique<AdminService>(controller, callers);
}

}  // namespace vpod::rpc
