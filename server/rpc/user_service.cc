#include "proto/vipu/v1/vipuuser.grpc.pb.h"
#include "server/agent/admission.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using controller::Caller;
using controller::PartitionCheck;
using grpc::ServerContext;
using grpc::Status;

controller::PartitionAccess AccessOf(const vipuuser::Partition& partition) {
  return {partition.requirements().id(), partition.requirements().allocation_id(),
          partition.status().created_by(), partition.requirements().shared()};
}

class UserService : public MeasuredService {
 public:
  UserService(controller::Controller& controller, Callers& callers, std::string metrics_endpoint,
              MessageMemory& memory)
      : MeasuredService(vipuuser::VipuUser::service_full_name(), memory),
        controller_(controller),
        callers_(callers),
        metrics_endpoint_(std::move(metrics_endpoint)) {
    Add("GetServerInfo", kWords, &UserService::GetServerInfo);
    Add("ListAllocations", kWords, &UserService::ListAllocations);
    Add("ListIpuAttributes", kWords, &UserService::ListIpuAttributes);
    Add("ListPartitions", kWords, &UserService::ListPartitions);
    Add("GetPartition", kWords, &UserService::GetPartition);
    Add("GetPartitionStatus", kWords, &UserService::GetPartitionStatus);
    Add("GetPartitionIpuofConfig", kWords, &UserService::GetPartitionIpuofConfig);
    Add("GetAvailableNumPartitions", kWords, &UserService::GetAvailableNumPartitions);
    Add("CreatePartition", kWords, &UserService::CreatePartition);
    Add("ResetPartition", kWords, &UserService::ResetPartition);
    Add("RemovePartition", kWords, &UserService::RemovePartition);
    Add("UpdatePartition", kWords, &UserService::UpdatePartition);
  }

  Status GetServerInfo(ServerContext*, const vipuuser::GetServerInfoRequest*,
                       vipuuser::GetServerInfoReply* reply) {
    reply->set_version(controller::kVersion);
    reply->set_metrics_endpoint(metrics_endpoint_);
    reply->set_secure(callers_.secure());
    return Status::OK;
  }
  Status ListAllocations(ServerContext* context, const vipuuser::ListAllocationsRequest*,
                         vipuuser::ListAllocationsReply* reply) {
    return List(*context, [&](const Caller& caller) {
      for (vipuadmin::Allocation& allocation : controller_.ListAllocations()) {
        if (!caller.MayUse(allocation.id())) continue;
        vipuuser::Allocation* shown = reply->add_allocations();
        shown->set_id(allocation.id());
        shown->mutable_spec()->set_cluster_id(allocation.cluster_id());
        shown->mutable_spec()->mutable_agent_ids()->Swap(allocation.mutable_agent_ids());
      }
    });
  }
  Status ListIpuAttributes(ServerContext* context, const vipuuser::ListIpuAttributesRequest*,
                           vipuuser::ListIpuAttributesReply* reply) {
    return List(*context, [&](const Caller& caller) {
      for (auto& ipu :
           controller_.ListIpuAttributes(caller, [&] { return context->IsCancelled(); }))
        *reply->add_ipus() = std::move(ipu);
    });
  }
  Status ListPartitions(ServerContext* context, const vipuuser::ListPartitionsRequest* request,
                        vipuuser::ListPartitionsReply* reply) {
    return List(*context, [&](const Caller& caller) {
      const std::string method = MethodOf<vipuuser::GetPartitionRequest>();
      for (auto& partition : controller_.ListPartitions(request->with_devices())) {
        if (!callers_.CheckPartition(method, caller, AccessOf(partition)).ok()) continue;
        GiveKeys(caller, partition);
        *reply->add_partitions() = std::move(partition);
      }
    });
  }
  Status GetPartition(ServerContext* context, const vipuuser::GetPartitionRequest* request,
                      vipuuser::GetPartitionReply* reply) {
    return OnPartition(*context, *request, [&](const Caller& caller, const PartitionCheck& check) {
      return Answer(controller_.GetPartition(request->partition_id(), check),
                    [&](vipuuser::Partition partition) {
                      GiveKeys(caller, partition);
                      *reply->mutable_partition() = std::move(partition);
                    });
    });
  }
  Status GetPartitionStatus(ServerContext* context,
                            const vipuuser::GetPartitionStatusRequest* request,
                            vipuuser::GetPartitionStatusReply* reply) {
    return OnPartition(*context, *request, [&](const Caller&, const PartitionCheck& check) {
      return Answer(
          controller_.GetPartitionStatus(request->partition_id(), check),
          [&](vipuuser::PartitionStatus status) { *reply->mutable_status() = std::move(status); });
    });
  }
  Status GetPartitionIpuofConfig(ServerContext* context,
                                 const vipuuser::GetPartitionIpuofConfigRequest* request,
                                 vipuuser::GetPartitionIpuofConfigReply* reply) {
    std::optional<uint32_t> gcd;
    if (request->has_gcd_id()) gcd = request->gcd_id().id();
    return OnPartition(*context, *request, [&](const Caller& caller, const PartitionCheck& check) {
      return Answer(
          controller_.GetPartitionConfig(request->partition_id(), gcd, check),
          [&](vipuuser::PartitionConfig config) {
            config.set_fabric_key(agent::FabricKeyFor(config.fabric_key(), caller.user_id));
            *reply->mutable_ipuof_config() = std::move(config);
          });
    });
  }
  Status GetAvailableNumPartitions(ServerContext* context,
                                   const vipuuser::GetAvailableNumPartitionsRequest* request,
                                   vipuuser::GetAvailableNumPartitionsReply* reply) {
    const auto caller = callers_.Of(*context);
    if (!caller.ok()) return ToGrpc(caller.status());
    return Answer(controller_.AvailablePartitions(request->size(), *caller),
                  [&](uint32_t number) { reply->set_num_partitions(number); });
  }
  Status CreatePartition(ServerContext* context, const vipuuser::CreatePartitionRequest* request,
                         vipuuser::CreatePartitionReply* reply) {
    const auto caller = callers_.Of(*context);
    if (!caller.ok()) return ToGrpc(caller.status());
    return Answer(controller_.CreatePartition(*request, *caller,
                                              [&] { return callers_.CheckCurrent(*caller); }),
                  [&](const std::string& id) { reply->set_partition_id(id); });
  }
  Status ResetPartition(ServerContext* context, const vipuuser::ResetPartitionRequest* request,
                        vipuuser::ResetPartitionReply*) {
    return OnPartition(*context, *request, [&](const Caller& caller, const PartitionCheck& check) {
      return ToGrpc(controller_.ResetPartition(request->partition_id(), caller.user_id, check));
    });
  }
  Status RemovePartition(ServerContext* context, const vipuuser::RemovePartitionRequest* request,
                         vipuuser::RemovePartitionReply*) {
    return OnPartition(*context, *request, [&](const Caller& caller, const PartitionCheck& check) {
      return ToGrpc(controller_.RemovePartition(request->partition_id(), caller.user_id, check));
    });
  }
  Status UpdatePartition(ServerContext* context, const vipuuser::UpdatePartitionRequest* request,
                         vipuuser::UpdatePartitionReply*) {
    return OnPartition(*context, *request, [&](const Caller& caller, const PartitionCheck& check) {
      return ToGrpc(controller_.UpdatePartition(*request, caller, check));
    });
  }

 private:
  // Makes a list of what the caller may see. A caller whose key or rights changed meanwhile is
  // refused, because the list may have what the user may not see any more, and lack what the user
  // may see now.
  template <class Make>
  Status List(const ServerContext& context, const Make& make) {
    const auto caller = callers_.Of(context);
    if (!caller.ok()) return ToGrpc(caller.status());
    make(*caller);
    return ToGrpc(callers_.CheckCurrent(*caller));
  }

  // Makes a call about one partition, which is to ask whether the caller may make it.
  template <class Request, class Call>
  Status OnPartition(const ServerContext& context, const Request&, const Call& call) {
    const auto caller = callers_.Of(context);
    if (!caller.ok()) return ToGrpc(caller.status());
    return call(*caller, [&](const controller::PartitionAccess& partition) {
      return callers_.Check(MethodOf<Request>(), *caller, partition);
    });
  }

  // Puts the caller's own key in the place of the secret from which it is made, or nothing if the
  // devices are not for the caller.
  void GiveKeys(const Caller& caller, vipuuser::Partition& partition) const {
    if (partition.gcds().empty()) return;
    std::string key;
    if (callers_.MayUseDevices(caller, AccessOf(partition)))
      key = agent::FabricKeyFor(partition.gcds(0).fabric_key(), caller.user_id);
    for (vipuuser::PartitionConfig& gcd : *partition.mutable_gcds()) gcd.set_fabric_key(key);
  }

  controller::Controller& controller_;
  Callers& callers_;
  const std::string metrics_endpoint_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeUserService(controller::Controller& controller, Callers& callers,
                                               std::string metrics_endpoint,
                                               MessageMemory& memory) {
  return std::make_unique<UserService>(controller, callers, std::move(metrics_endpoint), memory);
}

}  // namespace vpod::rpc
