#include <atomic>

#include "absl/cleanup/cleanup.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "server/rpc/cancellable_call.h"
#include "server/rpc/eviction_queue.h"
#include "server/rpc/service_support.h"

namespace vpod::rpc {
namespace {

using base::ToGrpc;
using controller::CallerCheck;
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
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.CreateAgent(*request, user));
    });
  }
  Status ListAgents(ServerContext* context, const vipuadmin::ListAgentsRequest* request,
                    vipuadmin::ListAgentsReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      for (auto& agent : controller_.ListAgents()) *reply->add_agents() = std::move(agent);
      return Status::OK;
    });
  }
  Status GetAgent(ServerContext* context, const vipuadmin::GetAgentRequest* request,
                  vipuadmin::GetAgentReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      return Answer(controller_.GetAgent(request->id()),
                    [&](vipuadmin::Agent agent) { *reply->mutable_agent() = std::move(agent); });
    });
  }
  Status UpdateAgent(ServerContext* context, const vipuadmin::UpdateAgentRequest* request,
                     vipuadmin::UpdateAgentReply*) {
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.UpdateAgent(*request, user));
    });
  }
  Status ResetAgent(ServerContext* context, const vipuadmin::ResetAgentRequest* request,
                    vipuadmin::ResetAgentReply*) {
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.ResetAgent(request->id(), user));
    });
  }
  Status RemoveAgent(ServerContext* context, const vipuadmin::RemoveAgentRequest* request,
                     vipuadmin::RemoveAgentReply*) {
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.RemoveAgent(request->id(), user));
    });
  }
  Status DiscoverAgents(ServerContext* context, const vipuadmin::DiscoverAgentsRequest* request,
                        vipuadmin::DiscoverAgentsReply* reply) {
    return As(*context, *request, [&](const std::string& user) {
      return Answer(controller_.DiscoverAgents(request->add(), user),
                    [&](std::vector<vipuadmin::DiscoveredAgent> agents) {
                      for (auto& agent : agents) *reply->add_agents() = std::move(agent);
                    });
    });
  }
  Status CreateCluster(ServerContext* context, const vipuadmin::CreateClusterRequest* request,
                       vipuadmin::CreateClusterReply*) {
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.CreateCluster(request->cluster(), user));
    });
  }
  Status ListClusters(ServerContext* context, const vipuadmin::ListClustersRequest* request,
                      vipuadmin::ListClustersReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      for (auto& cluster : controller_.ListClusters()) *reply->add_clusters() = std::move(cluster);
      return Status::OK;
    });
  }
  Status GetCluster(ServerContext* context, const vipuadmin::GetClusterRequest* request,
                    vipuadmin::GetClusterReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      return Answer(controller_.GetCluster(request->id()),
                    [&](vipuadmin::GetClusterReply found) { *reply = std::move(found); });
    });
  }
  Status UpdateCluster(ServerContext* context, const vipuadmin::UpdateClusterRequest* request,
                       vipuadmin::UpdateClusterReply*) {
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.UpdateCluster(*request, user));
    });
  }
  Status ResetCluster(ServerContext* context, const vipuadmin::ResetClusterRequest* request,
                      vipuadmin::ResetClusterReply*) {
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.ResetCluster(request->id(), user));
    });
  }
  Status RemoveCluster(ServerContext* context, const vipuadmin::RemoveClusterRequest* request,
                       vipuadmin::RemoveClusterReply*) {
    return As(*context, *request, [&](const std::string& user) {
      return ToGrpc(controller_.RemoveCluster(request->id(), user));
    });
  }
  Status CreateAllocation(ServerContext* context, const vipuadmin::CreateAllocationRequest* request,
                          vipuadmin::CreateAllocationReply*) {
    return AsCurrent(*context, *request, [&](const std::string& user, const CallerCheck& check) {
      return ToGrpc(controller_.CreateAllocation(request->allocation(), user, check));
    });
  }
  Status ListAllocations(ServerContext* context, const vipuadmin::ListAllocationsRequest* request,
                         vipuadmin::ListAllocationsReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      for (auto& allocation : controller_.ListAllocations())
        *reply->add_allocations() = std::move(allocation);
      return Status::OK;
    });
  }
  Status GetAllocation(ServerContext* context, const vipuadmin::GetAllocationRequest* request,
                       vipuadmin::GetAllocationReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      return Answer(controller_.GetAllocation(request->id()),
                    [&](vipuadmin::Allocation allocation) {
                      *reply->mutable_allocation() = std::move(allocation);
                    });
    });
  }
  Status UpdateAllocation(ServerContext* context, const vipuadmin::UpdateAllocationRequest* request,
                          vipuadmin::UpdateAllocationReply*) {
    return AsCurrent(*context, *request, [&](const std::string& user, const CallerCheck& check) {
      return ToGrpc(controller_.UpdateAllocation(*request, user, check));
    });
  }
  Status RemoveAllocation(ServerContext* context, const vipuadmin::RemoveAllocationRequest* request,
                          vipuadmin::RemoveAllocationReply*) {
    return AsCurrent(*context, *request, [&](const std::string& user, const CallerCheck& check) {
      return ToGrpc(controller_.RemoveAllocation(request->id(), user, check));
    });
  }
  Status CreateUser(ServerContext* context, const vipuadmin::CreateUserRequest* request,
                    vipuadmin::CreateUserReply* reply) {
    return AsCurrent(*context, *request, [&](const std::string& user, const CallerCheck& check) {
      return Answer(controller_.CreateUser(request->user(), user, check),
                    [&](std::string key) { reply->set_access_key(std::move(key)); });
    });
  }
  Status ListUsers(ServerContext* context, const vipuadmin::ListUsersRequest* request,
                   vipuadmin::ListUsersReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      for (vipuadmin::User& user : controller_.ListUsers()) *reply->add_users() = std::move(user);
      return Status::OK;
    });
  }
  Status GetUser(ServerContext* context, const vipuadmin::GetUserRequest* request,
                 vipuadmin::GetUserReply* reply) {
    return As(*context, *request, [&](const std::string&) {
      return Answer(controller_.GetUser(request->id()),
                    [&](vipuadmin::User user) { *reply->mutable_user() = std::move(user); });
    });
  }
  Status UpdateUser(ServerContext* context, const vipuadmin::UpdateUserRequest* request,
                    vipuadmin::UpdateUserReply* reply) {
    return AsCurrent(*context, *request, [&](const std::string& user, const CallerCheck& check) {
      return Answer(controller_.UpdateUser(*request, user, check),
                    [&](std::string key) { reply->set_access_key(std::move(key)); });
    });
  }
  Status RemoveUser(ServerContext* context, const vipuadmin::RemoveUserRequest* request,
                    vipuadmin::RemoveUserReply*) {
    return AsCurrent(*context, *request, [&](const std::string& user, const CallerCheck& check) {
      return ToGrpc(controller_.RemoveUser(request->id(), user, request->jobs(), check));
    });
  }
  Status TestCluster(ServerContext* context, const vipuadmin::TestClusterRequest* request,
                     grpc::ServerWriter<vipuadmin::TestClusterReply>* writer) {
    return As(*context, *request, [&](const std::string& user) -> Status {
      return ToGrpc(controller_.TestCluster(
          *request, [&](const vipuadmin::TestClusterReply& row) { return writer->Write(row); },
          [&] { return context->IsCancelled(); }, user));
    });
  }
  Status Inject(ServerContext* context, const vipuadmin::InjectRequest* request,
                vipuadmin::InjectReply*) {
    return As(*context, *request,
              [&](const std::string& user) { return ToGrpc(controller_.Inject(*request, user)); });
  }
  Status ListEvents(ServerContext* context, const vipuadmin::ListEventsRequest* request,
                    vipuadmin::ListEventsReply* reply) {
    return As(*context, *request, [&](const std::string&) {
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
    });
  }
  Status Backup(ServerContext* context, const vipuadmin::BackupRequest* request,
                grpc::ServerWriter<vipuadmin::BackupReply>* writer) {
    return AsCurrent(*context, *request, [&](const std::string& user, const CallerCheck& check) {
      const auto backup = MakeBackup(user, check);
      if (!backup.ok()) return ToGrpc(backup.status());
      return Send(backup->first, backup->second, *context, *writer) ? Status::OK
                                                                    : Status::CANCELLED;
    });
  }

 private:
  // Makes a call for an administrator, whose id `call` is given for the log of events.
  template <class Request, class Call>
  Status As(const ServerContext& context, const Request& request, const Call& call) {
    return AsCurrent(context, request,
                     [&](const std::string& user, const CallerCheck&) { return call(user); });
  }
  // The same for a call that decides who may do what, or gives all secrets away. It may wait for
  // its turn, so `call` is also given what the controller is to ask when nothing can change any
  // more: whether the caller is still an administrator, by the same key.
  template <class Request, class Call>
  Status AsCurrent(const ServerContext& context, const Request&, const Call& call) {
    const auto caller = callers_.Administrator(context, MethodOf<Request>());
    if (!caller.ok()) return ToGrpc(caller.status());
    return call(caller->user_id, [&] { return callers_.CheckCurrent(*caller); });
  }

  // Makes one backup at a time, because each takes as much memory as the store has bytes. Making it
  // waits for no client.
  absl::StatusOr<std::pair<std::string, vipuadmin::BackupSummary>> MakeBackup(
      const std::string& user, const CallerCheck& check) {
    if (backing_up_.exchange(true))
      return absl::ResourceExhaustedError("Another backup is under way; try again.");
    const absl::Cleanup done = [this] { backing_up_ = false; };
    return controller_.Backup(user, check);
  }

  // Sends a backup to the client. Returns false if the call ends before all of it is sent, because
  // the client has gone or reads too slowly.
  bool Send(const std::string& bytes, const vipuadmin::BackupSummary& summary,
            ServerContext& context, grpc::ServerWriter<vipuadmin::BackupReply>& writer) {
    constexpr size_t kPiece = 256 << 10;
    const auto call = std::make_shared<CancellableCall>(context);
    const absl::Cleanup over = [&] { call->End(); };
    const auto write = [&](const vipuadmin::BackupReply& reply) {
      const uint64_t entry = unread_backups_.Add(bytes.size(), [call] { call->Cancel(); });
      const bool written = writer.Write(reply);
      unread_backups_.Remove(entry);
      return written;
    };
    vipuadmin::BackupReply reply;
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      reply.set_data(bytes.substr(at, kPiece));
      if (!write(reply)) return false;
    }
    reply.clear_data();
    *reply.mutable_summary() = summary;
    return write(reply);
  }

  controller::Controller& controller_;
  Callers& callers_;
  std::atomic<bool> backing_up_ = false;
  EvictionQueue unread_backups_{256ull << 20};  // bytes of backups whose clients do not read on
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(controller::Controller& controller,
                                                Callers& callers, MessageMemory& memory) {
  return std::make_unique<AdminService>(controller, callers, memory);
}

}  // namespace vpod::rpc
