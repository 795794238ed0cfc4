#include "server/rpc/controller_services.h"

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <map>
#include <set>
#include <utility>

#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "proto/vipu/v1/vipuagent.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using grpc::ServerContext;
using grpc::Status;

// Who asks; without security the client's own word.
std::string UserOf(const ServerContext& context) {
  const auto it = context.client_metadata().find("vipu-user-id");
  return it == context.client_metadata().end() ? ""
                                               : std::string(it->second.data(), it->second.size());
}

template <class T, class Assign>
Status Answer(absl::StatusOr<T> result, const Assign& assign) {
  if (!result.ok()) return ToGrpc(result.status());
  assign(*std::move(result));
  return Status::OK;
}

class UserService : public vipuuser::VipuUser::Service {
 public:
  explicit UserService(controller::Controller& controller) : controller_(controller) {}

  Status GetServerInfo(ServerContext*, const vipuuser::GetServerInfoRequest*,
                       vipuuser::GetServerInfoReply* reply) override {
    reply->set_version(controller::kVersion);
    return Status::OK;
  }
  Status ListAllocations(ServerContext*, const vipuuser::ListAllocationsRequest*,
                         vipuuser::ListAllocationsReply* reply) override {
    for (auto& allocation : controller_.ListAllocations())
      *reply->add_allocations() = std::move(allocation);
    return Status::OK;
  }
  Status ListPartitions(ServerContext*, const vipuuser::ListPartitionsRequest*,
                        vipuuser::ListPartitionsReply* reply) override {
    for (auto& partition : controller_.ListPartitions())
      *reply->add_partitions() = std::move(partition);
    return Status::OK;
  }
  Status GetPartition(ServerContext*, const vipuuser::GetPartitionRequest* request,
                      vipuuser::GetPartitionReply* reply) override {
    return Answer(
        controller_.GetPartition(request->partition_id()),
        [&](vipuuser::Partition partition) { *reply->mutable_partition() = std::move(partition); });
  }
  Status GetPartitionStatus(ServerContext*, const vipuuser::GetPartitionStatusRequest* request,
                            vipuuser::GetPartitionStatusReply* reply) override {
    return Answer(
        controller_.GetPartitionStatus(request->partition_id()),
        [&](vipuuser::PartitionStatus status) { *reply->mutable_status() = std::move(status); });
  }
  Status GetPartitionIpuofConfig(ServerContext*,
                                 const vipuuser::GetPartitionIpuofConfigRequest* request,
                                 vipuuser::GetPartitionIpuofConfigReply* reply) override {
    const absl::StatusOr<uint32_t> gcd = request->has_gcd_id()
                                             ? absl::StatusOr<uint32_t>(request->gcd_id().id())
                                             : absl::NotFoundError("unset");
    return Answer(controller_.GetPartitionConfig(request->partition_id(), gcd),
                  [&](vipuuser::PartitionConfig config) {
                    *reply->mutable_ipuof_config() = std::move(config);
                  });
  }
  Status GetAvailableNumPartitions(ServerContext*,
                                   const vipuuser::GetAvailableNumPartitionsRequest* request,
                                   vipuuser::GetAvailableNumPartitionsReply* reply) override {
    return Answer(controller_.AvailablePartitions(request->size()),
                  [&](uint32_t number) { reply->set_num_partitions(number); });
  }
  Status CreatePartition(ServerContext* context, const vipuuser::CreatePartitionRequest* request,
                         vipuuser::CreatePartitionReply* reply) override {
    return Answer(controller_.CreatePartition(*request, UserOf(*context)),
                  [&](const std::string& id) { reply->set_partition_id(id); });
  }
  Status ResetPartition(ServerContext*, const vipuuser::ResetPartitionRequest* request,
                        vipuuser::ResetPartitionReply*) override {
    return ToGrpc(controller_.ResetPartition(request->partition_id()));
  }
  Status RemovePartition(ServerContext*, const vipuuser::RemovePartitionRequest* request,
                         vipuuser::RemovePartitionReply*) override {
    return ToGrpc(controller_.RemovePartition(request->partition_id()));
  }
  Status UpdatePartition(ServerContext*, const vipuuser::UpdatePartitionRequest* request,
                         vipuuser::UpdatePartitionReply*) override {
    return ToGrpc(controller_.UpdatePartition(request->requirements()));
  }

 private:
  controller::Controller& controller_;
};

class AdminService : public vipuadmin::VipuAdmin::Service {
 public:
  explicit AdminService(controller::Controller& controller) : controller_(controller) {}

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

 private:
  controller::Controller& controller_;
};

class RegistryService : public vipuagent::VipuRegistry::Service {
 public:
  explicit RegistryService(controller::Controller& controller) : controller_(controller) {}
  Status Register(ServerContext*, const vipuagent::RegisterRequest* request,
                  vipuagent::RegisterReply*) override {
    controller_.Register(*request);
    return Status::OK;
  }
  Status Heartbeat(ServerContext*, const vipuagent::HeartbeatRequest* request,
                   vipuagent::HeartbeatReply* reply) override {
    reply->set_register_(controller_.Heartbeat(*request));
    return Status::OK;
  }

 private:
  controller::Controller& controller_;
};

}  // namespace

struct GrpcAgentGateway::Impl {
  struct Call {
    grpc::ClientContext context;
    vipuagent::ConfigureRequest request;
    vipuagent::ConfigureReply reply;
  };
  base::Mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  std::map<std::string, std::shared_ptr<vipuagent::VipuAgent::Stub>> stubs;
  std::set<std::shared_ptr<Call>> calls;

  std::shared_ptr<vipuagent::VipuAgent::Stub> StubOf(const std::string& endpoint)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    auto& entry = stubs[endpoint];
    if (entry == nullptr) {
      entry = vipuagent::VipuAgent::NewStub(
          grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()));
    }
    return entry;
  }
};

GrpcAgentGateway::GrpcAgentGateway() : impl_(std::make_unique<Impl>()) {}
GrpcAgentGateway::~GrpcAgentGateway() { Stop(); }

void GrpcAgentGateway::Stop() {
  base::MutexLock lock(impl_->mutex);
  impl_->stopping = true;
  for (const auto& call : impl_->calls) call->context.TryCancel();
  lock.Wait(impl_->changed, [this] { return impl_->calls.empty(); });
}

void GrpcAgentGateway::Configure(const std::string& endpoint,
                                 const vipuagent::ConfigureRequest& request,
                                 std::function<void(absl::Status)> done) {
  auto call = std::make_shared<Impl::Call>();
  call->request = request;
  call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  std::shared_ptr<vipuagent::VipuAgent::Stub> stub;
  {
    base::MutexLock lock(impl_->mutex);
    if (impl_->stopping) return;
    stub = impl_->StubOf(endpoint);
    impl_->calls.insert(call);
  }
  stub->async()->Configure(&call->context, &call->request, &call->reply,
                           [this, call, done = std::move(done)](const grpc::Status& status) {
                             bool stopping;
                             {
                               base::MutexLock lock(impl_->mutex);
                               stopping = impl_->stopping;
                             }
                             if (!stopping) done(base::FromGrpc(status));
                             base::MutexLock lock(impl_->mutex);
                             impl_->calls.erase(call);
                             impl_->changed.notify_all();
                           });
}

absl::StatusOr<vipuagent::DescribeMachineReply> GrpcAgentGateway::DescribeMachine(
    const std::string& endpoint, const std::string& host) {
  std::shared_ptr<vipuagent::VipuAgent::Stub> stub;
  {
    base::MutexLock lock(impl_->mutex);
    stub = impl_->StubOf(endpoint);
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(3));
  vipuagent::DescribeMachineRequest request;
  request.set_host(host);
  vipuagent::DescribeMachineReply reply;
  const grpc::Status status = stub->DescribeMachine(&context, request, &reply);
  if (!status.ok()) return base::FromGrpc(status);
  return reply;
}

struct ControllerServices::Impl {
  explicit Impl(controller::Controller& controller)
      : user(controller), admin(controller), registry(controller) {}
  UserService user;
  AdminService admin;
  RegistryService registry;
};

ControllerServices::ControllerServices(controller::Controller& controller)
    : impl_(std::make_unique<Impl>(controller)) {}
ControllerServices::~ControllerServices() = default;

void ControllerServices::RegisterUser(grpc::ServerBuilder& builder) {
  builder.RegisterService(&impl_->user);
}

void ControllerServices::RegisterAdmin(grpc::ServerBuilder& builder) {
  builder.RegisterService(&impl_->admin);
  builder.RegisterService(&impl_->registry);
}

}  // namespace vpod::rpc
