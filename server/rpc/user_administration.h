// The calls of the administration service that are about users.
#pragma once

#include <map>
#include <string>

#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "server/controller/controller.h"
#include "server/rpc/callers.h"

namespace vpod::rpc {

class UserAdministration : public vipuadmin::VipuAdmin::Service {
 public:
  UserAdministration(controller::Controller& controller, Callers& callers)
      : controller_(controller), callers_(callers) {}

  grpc::Status CreateUser(grpc::ServerContext*, const vipuadmin::CreateUserRequest* request,
                          vipuadmin::CreateUserReply* reply) override;
  grpc::Status ListUsers(grpc::ServerContext*, const vipuadmin::ListUsersRequest*,
                         vipuadmin::ListUsersReply* reply) override;
  grpc::Status GetUser(grpc::ServerContext*, const vipuadmin::GetUserRequest* request,
                       vipuadmin::GetUserReply* reply) override;
  grpc::Status UpdateUser(grpc::ServerContext*, const vipuadmin::UpdateUserRequest* request,
                          vipuadmin::UpdateUserReply* reply) override;
  // Refused while the user has partitions: nobody else could use their devices.
  grpc::Status RemoveUser(grpc::ServerContext*, const vipuadmin::RemoveUserRequest* request,
                          vipuadmin::RemoveUserReply*) override;

 protected:
  controller::Controller& controller_;
  Callers& callers_;

 private:
  absl::Status CheckAllocations(const vipuadmin::Names& ids);
  // Ids of partitions by who created them.
  std::multimap<std::string, std::string> PartitionsByUser();
};

}  // namespace vpod::rpc
