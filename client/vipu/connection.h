// The way to a controller: channel, credentials, deadline, and what the end of a call means. Client
// names the calls.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/vipu/config.h"
#include "device/base/grpc_connect.h"
#include "device/base/message_text.h"
#include "device/base/mutex.h"
#include "device/base/status.h"
#include "proto/vipu/v1/vipuadmin.grpc.pb.h"
#include "proto/vipu/v1/vipuuser.grpc.pb.h"

namespace vpod::vipu {

// A channel for calls of a management tool or program.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address, base::Peer peer,
                                           const std::optional<base::Tls>& tls);

// A request about one object.
template <class Request>
Request Named(const std::string& id) {
  Request request;
  if constexpr (requires { request.set_partition_id(id); }) {
    request.set_partition_id(id);
  } else {
    request.set_id(id);
  }
  return request;
}

// Thread-safe.
struct Connection {
  Connection(ClientConfig config, std::chrono::milliseconds timeout)
      : config(std::move(config)), timeout(timeout) {}

  struct Stubs {
    explicit Stubs(const ClientConfig& config);
    vipuuser::VipuUser::Stub& Get(vipuuser::VipuUser::Stub*) { return *user; }
    vipuadmin::VipuAdmin::Stub& Get(vipuadmin::VipuAdmin::Stub*) { return *admin; }

    const std::shared_ptr<grpc::Channel> channel;
    const std::unique_ptr<vipuuser::VipuUser::Stub> user;
    const std::unique_ptr<vipuadmin::VipuAdmin::Stub> admin;
  };

  std::shared_ptr<Stubs> Current();
  // A channel that failed reconnects in its own time (seconds, as nothing polls it between calls):
  // the next call makes a new one.
  void Drop(const std::shared_ptr<Stubs>& failed);
  // A call that has ended, and by which stubs it was made.
  struct Outcome {
    std::shared_ptr<Stubs> used;
    grpc::Status status;
  };
  // Makes a call with deadline and credentials, and makes it again after a pause while the
  // controller has no thread for it, as when a job's instances start at once. All attempts together
  // last no longer than one call may.
  Outcome Make(const std::function<grpc::Status(grpc::ClientContext&, Stubs&)>& call);
  // Returns the status of a finished call for the caller.
  absl::Status Ended(const Outcome& outcome);
  // "30 s"
  std::string Patience() const;

  template <class Stub, class Request, class Reply>
  absl::StatusOr<Reply> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Reply*),
                             const Request& request) {
    VPOD_RETURN_IF_ERROR(base::CheckMayConnect());
    VPOD_RETURN_IF_ERROR(base::CheckUtf8(request));
    Reply reply;
    VPOD_RETURN_IF_ERROR(Ended(Make([&](grpc::ClientContext& context, Stubs& stubs) {
      return (stubs.Get(static_cast<Stub*>(nullptr)).*method)(&context, request, &reply);
    })));
    return reply;
  }

  template <class Stub, class Request, class Reply>
  absl::Status Stream(std::unique_ptr<grpc::ClientReader<Reply>> (Stub::*method)(
                          grpc::ClientContext*, const Request&),
                      const Request& request, const std::function<void(const Reply&)>& each) {
    VPOD_RETURN_IF_ERROR(base::CheckMayConnect());
    VPOD_RETURN_IF_ERROR(base::CheckUtf8(request));
    return Ended(Make([&](grpc::ClientContext& context, Stubs& stubs) {
      const auto reader = (stubs.Get(static_cast<Stub*>(nullptr)).*method)(&context, request);
      for (Reply reply; reader->Read(&reply);) each(reply);
      return reader->Finish();
    }));
  }

  const ClientConfig config;
  const std::chrono::milliseconds timeout;  // of a call
  base::Mutex mutex;
  // Made by the first call. Null also after one that failed.
  std::shared_ptr<Stubs> stubs ABSL_GUARDED_BY(mutex);
};

// Whether the status is a refusal of the controller's store, which is an answer, by its words.
bool IsOfTheStore(const grpc::Status& status);

}  // namespace vpod::vipu
