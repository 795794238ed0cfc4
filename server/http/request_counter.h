// Counts and times the gRPC calls that a server answers, whatever its services: an interceptor sees
// each call before its handler and its status before the client does.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "device/base/mutex.h"
#include "server/http/metrics.h"

namespace vpod::http {

// Thread-safe. Outlives the servers that it watches.
class RequestCounter {
 public:
  // "vipuuser.VipuUser", "CreatePartition" and the code it was answered with.
  using Call = std::tuple<std::string, std::string, grpc::StatusCode>;

  // Counts the calls of a server that is built with it. Methods that no service has are not
  // counted, so that clients cannot make up labels.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Watch();

  // Durations of the calls so far.
  std::map<Call, Histogram> Calls() const;

 private:
  class Interceptor;
  class Factory;
  void Count(const std::string& path, grpc::StatusCode code, double seconds);

  mutable base::Mutex mutex_;
  std::map<Call, Histogram> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::http
