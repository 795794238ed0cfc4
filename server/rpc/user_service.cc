#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using grpc::ServerContext;
using grpc::Status;

class UserService : public vipuuser::VipuUser::Service {
 public:
  UserService(controller::Controller& controller, std::string metrics_endpoint)
      : controller_(controller), metrics_endpoint_(std::move(metrics_endpoint)) {}

  Status GetServerInfo(ServerContext*, const vipuuser::GetServerInfoRequest*,
                       vipuuser::GetServerInfoReply* reply) override {
    reply->set_version(controller::kVersion);
    reply->set_metrics_endpoint(metrics_endpoint_);
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
  const std::string metrics_endpoint_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeUserService(controller::Controller& controller,
                                               std::string metrics_endpoint) {
  return std::make_unique<UserService>(controller, std::move(metrics_endpoint));
}

}  // namespace vpod::rpc
