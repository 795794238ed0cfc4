// Allocations and users.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/vipu/config.h"
#include "device/base/status.h"
#include "tools/vipu/show.h"
#include "tools/vipu/tables.h"

namespace vpod::tools {
namespace {

vipuadmin::Names Names(const Arguments& arguments, const Flag& flag) {
  vipuadmin::Names names;
  for (std::string& name : arguments.List(flag)) names.add_names(std::move(name));
  return names;
}

// What the flags say about jobs of users who lose a right.
absl::StatusOr<vipuadmin::JobsOfUser> Jobs(const Call& call) {
  const bool end = call.arguments.Switch(kEndJobs), keep = call.arguments.Switch(kKeepJobs);
  if (end && keep) return UsageError("Flags --end-jobs and --keep-jobs exclude each other.");
  return end ? vipuadmin::JOBS_END : keep ? vipuadmin::JOBS_GO_ON : vipuadmin::JOBS_UNDECIDED;
}

std::string FileOf(const Call& call) { return absl::StrCat(call.id, ".vipu-cli.hcl"); }

// Asked before there is a key that the file is for.
absl::Status CanWriteFile(const Call& call) {
  if (access(".", W_OK) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", FileOf(call), " here: ", std::strerror(errno)));
}

// Reports a new access key and writes the file that lets the user in. The key is printed first: it
// cannot be asked for again.
absl::Status HandOver(const Call& call, const std::string& access_key) {
  VPOD_RETURN_IF_ERROR(Done(call, absl::OkStatus(), access_key));
  const std::string path = FileOf(call);
  vipu::ClientConfig config = call.client.config();
  config.user_id = call.id;
  config.access_key = access_key;
  const absl::Status written = vipu::WriteSecretHcl(path, config);
  if (!written.ok()) {
    return AfterJson(absl::Status(
        written.code(), absl::StrCat("The access key is valid, but ", written.message())));
  }
  if (call.arguments.Switch(kShowJson)) return absl::OkStatus();
  call.out << "vipu configuration file for the user '" << call.id << "' written: " << path
           << "\nUse 'vipu --config " << path << "' to switch to the user context.\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status CreateAllocation(const Call& call) {
  vipuadmin::Allocation allocation;
  allocation.set_id(call.id);
  allocation.set_cluster_id(call.arguments.Text(kCluster));
  for (std::string& agent : call.arguments.List(kAgents))
    allocation.add_agent_ids(std::move(agent));
  for (std::string& user : call.arguments.List(kUsers)) allocation.add_user_ids(std::move(user));
  return Done(call, call.client.CreateAllocation(allocation));
}

absl::Status ListAllocations(const Call& call) {
  const auto rows = [](const auto& allocations) { return AllocationsListing(allocations); };
  if (call.admin) {
    return ShowList(
        call, [&](const ListOptions&) { return call.client.ListAllAllocations(); }, rows);
  }
  return ShowList(
      call, [&](const ListOptions&) { return call.client.ListAllocations(); }, rows);
}

absl::Status GetAllocation(const Call& call) {
  const auto text = [](const auto& allocation) { return AllocationText(allocation); };
  if (call.admin) return Show(call, call.client.GetAllocation(call.id), text);
  // Users have no call for one.
  VPOD_ASSIGN_OR_RETURN(const auto allocations, call.client.ListAllocations());
  for (const auto& allocation : allocations) {
    if (allocation.id() == call.id)
      return Show(call, absl::StatusOr<vipuuser::Allocation>(allocation), text);
  }
  return absl::NotFoundError(absl::StrCat("Allocation ", call.id, " does not exist."));
}

absl::Status UpdateAllocation(const Call& call) {
  if (!call.arguments.Has(kAgents) && !call.arguments.Has(kUsers))
    return UsageError("update allocation needs --agents or --users.");
  vipuadmin::UpdateAllocationRequest request;
  request.set_id(call.id);
  VPOD_ASSIGN_OR_RETURN(const auto jobs, Jobs(call));
  request.set_jobs(jobs);
  if (call.arguments.Has(kAgents)) *request.mutable_agent_ids() = Names(call.arguments, kAgents);
  if (call.arguments.Has(kUsers)) *request.mutable_user_ids() = Names(call.arguments, kUsers);
  return Done(call, call.client.UpdateAllocation(request));
}

absl::Status RemoveAllocation(const Call& call) {
  return Done(call, call.client.RemoveAllocation(call.id));
}

absl::Status CreateUser(const Call& call) {
  vipuadmin::User user;
  user.set_id(call.id);
  user.set_admin(call.arguments.Switch(kAdmin));
  if (call.arguments.Has(kAllocations))
    *user.mutable_allocation_ids() = Names(call.arguments, kAllocations);
  VPOD_RETURN_IF_ERROR(CanWriteFile(call));
  VPOD_ASSIGN_OR_RETURN(const std::string access_key, call.client.CreateUser(user));
  return HandOver(call, access_key);
}

absl::Status ListUsers(const Call& call) {
  return ShowList(
      call, [&](const ListOptions&) { return call.client.ListUsers(); }, UsersListing);
}

absl::Status GetUser(const Call& call) {
  return Show(call, call.client.GetUser(call.id), UserText);
}

absl::Status UpdateUser(const Call& call) {
  const bool all = call.arguments.Switch(kAllAllocations);
  const bool new_key = call.arguments.Switch(kNewAccessKey);
  if (!call.arguments.Has(kAllocations) && !all && !new_key)
    return UsageError("update user needs --allocations, --all-allocations or --new-access-key.");
  if (call.arguments.Has(kAllocations) && all)
    return UsageError("Flags --allocations and --all-allocations exclude each other.");
  vipuadmin::UpdateUserRequest request;
  request.set_id(call.id);
  VPOD_ASSIGN_OR_RETURN(const auto jobs, Jobs(call));
  request.set_jobs(jobs);
  if (call.arguments.Has(kAllocations))
    *request.mutable_allocation_ids() = Names(call.arguments, kAllocations);
  request.set_all_allocations(all);
  request.set_new_access_key(new_key);
  if (new_key) VPOD_RETURN_IF_ERROR(CanWriteFile(call));
  VPOD_ASSIGN_OR_RETURN(const std::string access_key, call.client.UpdateUser(request));
  return new_key ? HandOver(call, access_key) : Done(call, absl::OkStatus());
}

absl::Status RemoveUser(const Call& call) {
  VPOD_ASSIGN_OR_RETURN(const auto jobs, Jobs(call));
  return Done(call, call.client.RemoveUser(call.id, jobs));
}

}  // namespace vpod::tools
