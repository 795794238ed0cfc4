#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "server/rpc/service_support.h"
#include "server/rpc/user_administration.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using grpc::ServerContext;
using grpc::Status;

Status DoesNotExist(const char* noun, const std::string& id) {
  return ToGrpc(absl::NotFoundError(absl::StrCat(noun, " ", id, " does not exist.")));
}

vipuadmin::Allocation ForAdministrators(const vipuuser::Allocation& allocation) {
  vipuadmin::Allocation result;
  result.set_id(allocation.id());
  result.set_cluster_id(allocation.spec().cluster_id());
  *result.mutable_agent_ids() = allocation.spec().agent_ids();
  return result;
}

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
  Status GetCluster(ServerContext*, const vipuadmin::GetClusterRequest* request,
                    vipuadmin::GetClusterReply* reply) override {
    for (auto& cluster : controller_.ListClusters()) {
      if (cluster.id() == request->id()) *reply->mutable_cluster() = std::move(cluster);
    }
    if (!reply->has_cluster()) return DoesNotExist("Cluster", request->id());
    std::map<std::string, vipuadmin::Agent> agents;
    for (auto& agent : controller_.ListAgents()) agents[agent.id()] = std::move(agent);
    for (const std::string& id : reply->cluster().agent_ids()) *reply->add_agents() = agents[id];
    return Status::OK;
  }
  Status ListAllocations(ServerContext*, const vipuadmin::ListAllocationsRequest*,
                         vipuadmin::ListAllocationsReply* reply) override {
    for (const auto& allocation : controller_.ListAllocations())
      *reply->add_allocations() = ForAdministrators(allocation);
    return Status::OK;
  }
  Status GetAllocation(ServerContext*, const vipuadmin::GetAllocationRequest* request,
                       vipuadmin::GetAllocationReply* reply) override {
    for (const auto& allocation : controller_.ListAllocations()) {
      if (allocation.id() == request->id())
        *reply->mutable_allocation() = ForAdministrators(allocation);
    }
    return reply->has_allocation() ? Status::OK : DoesNotExist("Allocation", request->id());
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
