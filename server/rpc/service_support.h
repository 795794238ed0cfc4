// Helpers that the controller's services share.
#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "device/base/grpc_status.h"
#include "server/controller/controller.h"
#include "server/rpc/callers.h"
#include "server/rpc/measured_service.h"

namespace vpod::rpc {

// The services, each in a file of its name.
std::unique_ptr<grpc::Service> MakeUserService(controller::Controller& controller, Callers& callers,
                                               std::string metrics_endpoint, MessageMemory& memory);
std::unique_ptr<grpc::Service> MakeAdminService(controller::Controller& controller,
                                                Callers& callers, MessageMemory& memory);
std::unique_ptr<grpc::Service> MakeRegistryService(controller::Controller& controller,
                                                   MessageMemory& memory);

// Full name of the call that takes the request: both are declared in one file with one service,
// vipuuser.proto or vipuadmin.proto.
template <class Request>
std::string MethodOf() {
  const google::protobuf::Descriptor& request = *Request::descriptor();
  return absl::StrCat(request.file()->service(0)->full_name(), ".",
                      absl::StripSuffix(request.name(), "Request"));
}

// Hands a good result to `assign`; the status for the wire.
template <class T, class Assign>
grpc::Status Answer(absl::StatusOr<T> result, const Assign& assign) {
  if (!result.ok()) return base::ToGrpc(result.status());
  assign(*std::move(result));
  return grpc::Status::OK;
}

}  // namespace vpod::rpc
