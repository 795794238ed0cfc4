#include "server/controller/permissions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace vpod::controller {
namespace {

absl::Status Refuse(const Caller& caller, absl::string_view words, absl::string_view id = "") {
  return absl::PermissionDeniedError(
      absl::StrCat("User ", caller.user_id, " may not ", words, id.empty() ? "" : " ", id, "."));
}

}  // namespace

const std::vector<Permission>& Permissions() {
  static const std::vector<Permission> permissions = {
      {"vipuuser.VipuUser.GetServerInfo", Rule::kAnyone, "ask for the server's version"},
      {"vipuuser.VipuUser.ListAllocations", Rule::kUser, "list allocations"},
      {"vipuuser.VipuUser.ListIpuAttributes", Rule::kUser, "list ipu-attrs"},
      {"vipuuser.VipuUser.ListPartitions", Rule::kUser, "list partitions"},
      {"vipuuser.VipuUser.GetPartition", Rule::kAllocation, "get partition"},
      {"vipuuser.VipuUser.GetPartitionStatus", Rule::kAllocation, "get partition"},
      {"vipuuser.VipuUser.GetPartitionIpuofConfig", Rule::kDevices, "use the devices of partition"},
      {"vipuuser.VipuUser.GetAvailableNumPartitions", Rule::kUser, "count partitions"},
      {"vipuuser.VipuUser.CreatePartition", Rule::kUser, "create partition"},
      {"vipuuser.VipuUser.ResetPartition", Rule::kAllocation, "reset partition"},
      {"vipuuser.VipuUser.RemovePartition", Rule::kAllocation, "remove partition"},
      // An update may change whether the devices are shared.
      {"vipuuser.VipuUser.UpdatePartition", Rule::kOwner, "update partition"},

      {"vipuadmin.VipuAdmin.CreateAgent", Rule::kAdmin, "create agent"},
      {"vipuadmin.VipuAdmin.ListAgents", Rule::kAdmin, "list agents"},
      {"vipuadmin.VipuAdmin.GetAgent", Rule::kAdmin, "get agent"},
      {"vipuadmin.VipuAdmin.UpdateAgent", Rule::kAdmin, "update agent"},
      {"vipuadmin.VipuAdmin.ResetAgent", Rule::kAdmin, "reset agent"},
      {"vipuadmin.VipuAdmin.RemoveAgent", Rule::kAdmin, "remove agent"},
      {"vipuadmin.VipuAdmin.DiscoverAgents", Rule::kAdmin, "discover agents"},
      {"vipuadmin.VipuAdmin.CreateCluster", Rule::kAdmin, "create cluster"},
      {"vipuadmin.VipuAdmin.ListClusters", Rule::kAdmin, "list clusters"},
      {"vipuadmin.VipuAdmin.GetCluster", Rule::kAdmin, "get cluster"},
      {"vipuadmin.VipuAdmin.UpdateCluster", Rule::kAdmin, "update cluster"},
      {"vipuadmin.VipuAdmin.ResetCluster", Rule::kAdmin, "reset cluster"},
      {"vipuadmin.VipuAdmin.RemoveCluster", Rule::kAdmin, "remove cluster"},
      {"vipuadmin.VipuAdmin.TestCluster", Rule::kAdmin, "test cluster"},
      {"vipuadmin.VipuAdmin.CreateAllocation", Rule::kAdmin, "create allocation"},
      {"vipuadmin.VipuAdmin.ListAllocations", Rule::kAdmin, "list allocations"},
      {"vipuadmin.VipuAdmin.GetAllocation", Rule::kAdmin, "get allocation"},
      {"vipuadmin.VipuAdmin.UpdateAllocation", Rule::kAdmin, "update allocation"},
      {"vipuadmin.VipuAdmin.RemoveAllocation", Rule::kAdmin, "remove allocation"},
      {"vipuadmin.VipuAdmin.CreateUser", Rule::kAdmin, "create user"},
      {"vipuadmin.VipuAdmin.ListUsers", Rule::kAdmin, "list users"},
      {"vipuadmin.VipuAdmin.GetUser", Rule::kAdmin, "get user"},
      {"vipuadmin.VipuAdmin.UpdateUser", Rule::kAdmin, "update user"},
      {"vipuadmin.VipuAdmin.RemoveUser", Rule::kAdmin, "remove user"},
      {"vipuadmin.VipuAdmin.ListEvents", Rule::kAdmin, "list events"},
      {"vipuadmin.VipuAdmin.Inject", Rule::kAdmin, "inject a fault"},
      {"vipuadmin.VipuAdmin.Backup", Rule::kAdmin, "back the storage up"},

      {"vipuagent.VipuRegistry.Register", Rule::kMember, "register machines"},
      {"vipuagent.VipuRegistry.Heartbeat", Rule::kMember, "send an agent's heartbeat"},

      {"vipuagent.VipuAgent.Configure", Rule::kMember, "configure an agent"},
      {"vipuagent.VipuAgent.DescribeMachine", Rule::kMember, "ask an agent for a machine"},
      {"vipuagent.VipuAgent.ResetMachine", Rule::kMember, "reset a machine"},
      {"vipuagent.VipuAgent.Inject", Rule::kMember, "inject a fault"},
      {"vipuagent.VipuAgent.TestLink", Rule::kMember, "test a link"},
      {"vipuagent.VipuAgent.AnswerLink", Rule::kMember, "answer the test of a link"},
      {"vpod.fabric.v1.Fabric.JoinJob", Rule::kMember, "join a job's record"},
      {"vpod.fabric.v1.Fabric.Carry", Rule::kMember, "send what jobs exchange"},

      // Agents know no users. The partition's fabric key opens a device, and then the lease's id.
      // Telemetry needs no key.
      {"vpod.ipuof.v1.Ipuof.Attach", Rule::kAnyone, "attach"},
      {"vpod.ipuof.v1.Ipuof.Pulse", Rule::kAnyone, "hold a lease"},
      {"vpod.ipuof.v1.Ipuof.Load", Rule::kAnyone, "load"},
      {"vpod.ipuof.v1.Ipuof.Run", Rule::kAnyone, "run"},
      {"vpod.ipuof.v1.Ipuof.WriteStream", Rule::kAnyone, "write a stream"},
      {"vpod.ipuof.v1.Ipuof.ReadStream", Rule::kAnyone, "read a stream"},
      {"vpod.ipuof.v1.Ipuof.WriteTensor", Rule::kAnyone, "write a tensor"},
      {"vpod.ipuof.v1.Ipuof.ReadTensor", Rule::kAnyone, "read a tensor"},
      {"vpod.ipuof.v1.Ipuof.GetCounters", Rule::kAnyone, "read counters"},
      {"vpod.ipuof.v1.Ipuof.ResetDevice", Rule::kAnyone, "reset a device"},
      {"vpod.telemetry.v1.Telemetry.GetPartitionTelemetry", Rule::kAnyone, "read telemetry"},
      {"vpod.telemetry.v1.Telemetry.GetPartitionLinks", Rule::kAnyone, "read links"},
  };
  return permissions;
}

absl::StatusOr<Permission> PermissionOf(absl::string_view method) {
  const auto& all = Permissions();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Permission& permission) {
    return permission.method == method;
  });
  if (it == all.end()) {
    return absl::PermissionDeniedError(absl::StrCat("nobody may call ", method));
  }
  return *it;
}

absl::StatusOr<Permission> PermissionOfPath(absl::string_view path) {
  return PermissionOf(absl::StrReplaceAll(absl::StripPrefix(path, "/"), {{"/", "."}}));
}

absl::Status CheckCaller(const Permission& permission, const Caller& caller) {
  switch (permission.rule) {
    case Rule::kAnyone:
    case Rule::kUser:
    case Rule::kAllocation:
    case Rule::kDevices:
    case Rule::kOwner:
      return absl::OkStatus();
    case Rule::kAdmin:
      if (caller.admin) return absl::OkStatus();
      break;
    case Rule::kMember:
      break;  // no user is one
  }
  return Refuse(caller, permission.words);
}

bool MayUseDevices(const Caller& caller, const PartitionAccess& partition) {
  return caller.MayUse(partition.allocation_id) &&
         (partition.shared || caller.user_id == partition.created_by);
}

absl::Status CheckPartition(const Permission& permission, const Caller& caller,
                            const PartitionAccess& partition) {
  // A creator who has lost the allocation has lost its partitions.
  const bool member = caller.MayUse(partition.allocation_id);
  bool allowed = true;
  if (permission.rule == Rule::kAllocation) {
    allowed = member;
  } else if (permission.rule == Rule::kOwner) {
    allowed = caller.admin || (member && caller.user_id == partition.created_by);
  } else if (permission.rule == Rule::kDevices) {
    allowed = MayUseDevices(caller, partition);
  }
  return allowed ? absl::OkStatus() : Refuse(caller, permission.words, partition.id);
}

}  // namespace vpod::controller
