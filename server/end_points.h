// The gRPC end-points of a controller, with what bounds their clients: connections, calls of a
// connection, threads, answers that nobody reads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "device/engine/executors.h"
#include "server/http/request_counter.h"
#include "server/rpc/bounded_listener.h"
#include "server/rpc/controller_services.h"
#include "server/rpc/liveness.h"
#include "server/rpc/unread_answers.h"
#include "server/server_options.h"

namespace vpod {

class EndPoints {
 public:
  // All outlive it.
  EndPoints(const ServerOptions& options, rpc::ControllerServices& services,
            http::RequestCounter& requests, engine::Executors& executors);
  // Ends all calls.
  ~EndPoints();

  // Serves from now on. Unavailable if it cannot listen.
  absl::Status Open(const std::shared_ptr<grpc::ServerCredentials>& credentials);
  // What every end-point answers at once.
  std::vector<rpc::Liveness::Question> Questions() const;

 private:
  struct EndPoint {
    std::shared_ptr<rpc::BoundedListener> listener;
    std::unique_ptr<grpc::Server> server;
  };
  absl::Status Listen(const std::string& address,
                      const std::shared_ptr<grpc::ServerCredentials>& credentials,
                      const std::function<void(grpc::ServerBuilder&)>& add_services);

  const ServerOptions& options_;
  rpc::ControllerServices& services_;
  http::RequestCounter& requests_;
  rpc::UnreadAnswers unread_;
  grpc::ResourceQuota quota_;
  std::vector<EndPoint> end_points_;  // the users', and the administrators' if that is another
  std::shared_ptr<void> ticker_;
};

}  // namespace vpod
