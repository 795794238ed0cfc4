// Partitions.
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/vipu/ipuof_config.h"
#include "client/vipu/ipuof_json.h"
#include "device/base/counted.h"
#include "device/base/interruption.h"
#include "device/base/status.h"
#include "tools/vipu/show.h"
#include "tools/vipu/tables.h"

namespace vpod::tools {
namespace {

// Number of replicas by either name; `absent` when neither is given.
absl::StatusOr<uint32_t> Replicas(const Arguments& arguments, uint32_t absent) {
  if (arguments.Has(kGcdSyncReplicas) && arguments.Has(kTotalNumReplicas) &&
      arguments.Text(kGcdSyncReplicas) != arguments.Text(kTotalNumReplicas)) {
    return UsageError(
        "Flags --gcd-sync-replicas and --total-num-replicas are two names of one value.");
  }
  return arguments.Number(arguments.Has(kGcdSyncReplicas) ? kGcdSyncReplicas : kTotalNumReplicas,
                          absent);
}

// Changes what the flags say.
absl::Status Apply(const Arguments& arguments, vipuuser::PartitionRequirements& r) {
  VPOD_ASSIGN_OR_RETURN(const uint32_t size, arguments.Number(kSize, r.size()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t gcds, arguments.Number(kNumGcds, r.num_gcds()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t replicas, Replicas(arguments, r.num_replicas()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t ilds, arguments.Number(kNumIlds, r.num_ilds()));
  VPOD_ASSIGN_OR_RETURN(const uint32_t index, arguments.Number(kIndex, 0));
  r.set_size(size);
  r.set_num_gcds(gcds);
  r.set_num_replicas(replicas);
  r.set_num_ilds(ilds);
  if (arguments.Has(kIndex)) r.mutable_index()->set_index(index);
  if (arguments.Has(kAllocation)) r.set_allocation_id(arguments.Text(kAllocation));
  if (arguments.Has(kCluster)) r.set_cluster_id(arguments.Text(kCluster));
  if (arguments.Has(kSyncType)) r.set_sync_type(arguments.Text(kSyncType));
  if (arguments.Has(kRouting)) r.set_ipu_link_routing(arguments.Text(kRouting));
  if (arguments.Has(kGwRouting)) r.set_gw_link_routing(arguments.Text(kGwRouting));
  r.set_reconfigurable(arguments.Switch(kReconfigurable, r.reconfigurable()));
  r.set_shared(arguments.Switch(kShared, r.shared()));
  return absl::OkStatus();
}

// Forgets those defaults of an existing partition that follow from what the flags change.
void ForgetDefaults(const Arguments& arguments, vipuuser::PartitionRequirements& r) {
  const bool moved = arguments.Has(kCluster) || arguments.Has(kAllocation);
  if (moved) {
    r.clear_cluster_id();
    r.clear_allocation_id();
  }
  if (moved || arguments.Has(kSize)) {
    r.clear_ipu_link_routing();
    r.clear_num_ilds();
    r.clear_index();
  }
  if (arguments.Has(kNumGcds) && r.num_replicas() == r.num_gcds()) r.clear_num_replicas();
  if (arguments.Has(kReconfigurable)) r.clear_sync_type();
}

// UsageError if no flag says what is to change: an update ends the partition's jobs, which is too
// much for nothing.
absl::Status ChangesSomething(const Call& call) {
  std::vector<std::string> names;
  for (const Flag* flag : call.command.optional) {
    if (flag == &kNoWait) continue;
    if (call.arguments.Has(*flag)) return absl::OkStatus();
    names.push_back(absl::StrCat("--", flag->name));
  }
  const std::string last = names.back();
  names.pop_back();
  return UsageError(absl::StrCat("update partition needs at least one of ",
                                 absl::StrJoin(names, ", "), " and ", last, "."));
}

// The caller's IPUoF files, as the partition is now.
absl::Status WriteFiles(const Call& call, const vipuuser::Partition& partition) {
  const absl::Status written = vipu::WriteIpuofFiles(partition, call.client.config().address());
  if (written.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("The partition was made, but ", written.message(), "."));
}

// Waits for ACTIVE, and writes the files of the caller's own partition again: places may have
// changed meanwhile, and files may be lost.
absl::Status AwaitPartition(const Call& call) {
  if (call.arguments.Switch(kNoWait)) return Done(call, absl::OkStatus());
  VPOD_RETURN_IF_ERROR(call.client.WaitUntilActive(call.id));
  VPOD_ASSIGN_OR_RETURN(const auto partition, call.client.GetPartition(call.id));
  if (partition.status().created_by() == call.client.config().user_id ||
      vipu::HasIpuofFiles(call.id))
    VPOD_RETURN_IF_ERROR(WriteFiles(call, partition));
  return Done(call, absl::OkStatus());
}

absl::Status GetAndWriteFiles(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, call.client.GetPartition(call.id));
  return WriteFiles(call, partition);
}

// Makes a partition and its files. A user who interrupts the command finds both, or neither.
absl::Status CreateWithFiles(const Call& call, const vipuuser::CreatePartitionRequest& request) {
  const absl::Status writable = vipu::CheckIpuofDirectory();
  if (!writable.ok()) return absl::UnavailableError(absl::StrCat(writable.message(), "."));
  base::BlockEndSignals();
  absl::Status status;
  {
    const base::Interruption interruption(ToolName(call.admin));
    status = call.client.CreatePartition(request);
    if (status.ok()) status = GetAndWriteFiles(call);
  }
  base::UnblockEndSignals();
  return status;
}

// A GCD of the partition, if one is named.
absl::StatusOr<std::optional<uint32_t>> NamedGcd(const Call& call,
                                                 const vipuuser::Partition& partition) {
  if (!call.arguments.Has(kGcd)) return std::optional<uint32_t>();
  VPOD_ASSIGN_OR_RETURN(const uint32_t gcd, call.arguments.Number(kGcd, 0));
  const uint32_t gcds = partition.requirements().num_gcds();
  if (gcd >= gcds) {
    return absl::InvalidArgumentError(absl::StrCat("Partition has ", base::Counted(gcds, "GCD"),
                                                   "; GCD ", gcd, " does not exist."));
  }
  return std::optional<uint32_t>(gcd);
}

}  // namespace

absl::Status CreatePartition(const Call& call) {
  vipuuser::CreatePartitionRequest request;
  request.mutable_requirements()->set_id(call.id);
  VPOD_RETURN_IF_ERROR(Apply(call.arguments, *request.mutable_requirements()));
  request.set_disable_auto_reset(call.arguments.Switch(kNoAutoReset));
  request.set_relocatable(call.arguments.Switch(kRelocatable));
  VPOD_RETURN_IF_ERROR(call.arguments.Switch(kNoWait) ? call.client.CreatePartition(request)
                                                      : CreateWithFiles(call, request));
  return AwaitPartition(call);
}

absl::Status UpdatePartition(const Call& call) {
  VPOD_RETURN_IF_ERROR(ChangesSomething(call));
  VPOD_ASSIGN_OR_RETURN(const auto partition, call.client.GetPartition(call.id));
  vipuuser::UpdatePartitionRequest request;
  vipuuser::PartitionRequirements& r = *request.mutable_requirements();
  r = partition.requirements();
  ForgetDefaults(call.arguments, r);
  VPOD_RETURN_IF_ERROR(Apply(call.arguments, r));
  // The controller keeps these when they are unset.
  if (call.arguments.Has(kNoAutoReset))
    request.set_disable_auto_reset(call.arguments.Switch(kNoAutoReset));
  if (call.arguments.Has(kRelocatable))
    request.set_relocatable(call.arguments.Switch(kRelocatable));
  VPOD_RETURN_IF_ERROR(call.client.UpdatePartition(request));
  return AwaitPartition(call);
}

absl::Status ResetPartition(const Call& call) {
  VPOD_RETURN_IF_ERROR(call.client.ResetPartition(call.id));
  return AwaitPartition(call);
}

absl::Status RemovePartition(const Call& call) {
  VPOD_RETURN_IF_ERROR(call.client.RemovePartition(call.id));
  vipu::RemoveIpuofFiles(call.id);
  return Done(call, absl::OkStatus());
}

absl::Status WaitPartition(const Call& call) {
  const std::string name = absl::StrCat("PS_", absl::AsciiStrToUpper(call.arguments.Text(kFor)));
  vipuuser::PartitionState state;
  if (!vipuuser::PartitionState_Parse(name, &state)) {
    return UsageError(absl::StrCat("Flag --for is one of ", kFor.value, ", not '",
                                   call.arguments.Text(kFor), "'."));
  }
  return Done(call, call.client.WaitForState(call.id, state));
}

absl::Status ListPartitions(const Call& call) {
  const bool without_user = vipu::Environment("VIPU_CLI_LIST_COMPAT") == "2021";
  // JSON names the devices.
  return ShowList(
      call,
      [&](const ListOptions& options) { return call.client.ListPartitions(options.is_json()); },
      [&](const auto& listed) { return PartitionsListing(listed, call.admin, without_user); });
}

absl::Status GetPartition(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto partition, call.client.GetPartition(call.id));
  VPOD_ASSIGN_OR_RETURN(const auto only, NamedGcd(call, partition));
  if (!call.arguments.Switch(kIpuofConfigs)) {
    return Show(call, absl::StatusOr<vipuuser::Partition>(partition),
                [&](const auto& shown) { return PartitionText(shown, only); });
  }
  const bool as_list = call.arguments.Switch(kShowJson) && !only.has_value();
  Json list = Json::array();
  for (uint32_t gcd = 0; gcd < partition.requirements().num_gcds(); ++gcd) {
    if (only.value_or(gcd) != gcd) continue;
    VPOD_ASSIGN_OR_RETURN(const auto config, call.client.GetPartitionConfig(call.id, gcd));
    const std::string text = vipu::IpuofJson(config);
    if (as_list) {
      list.push_back(Json::parse(text));
      continue;
    }
    // Scripts take the text of one GCD as it is, and cut the heading line of several.
    if (!only.has_value()) call.out << "IPUoF configuration for GCD " << gcd << ":\n";
    call.out << text;
  }
  if (as_list) call.out << list.dump(2) << "\n";
  return absl::OkStatus();
}

}  // namespace vpod::tools
