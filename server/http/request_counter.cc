#include "server/http/request_counter.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"

namespace vpod::http {

// Lives as long as its call.
class RequestCounter::Interceptor : public grpc::experimental::Interceptor {
 public:
  Interceptor(RequestCounter& counter, std::string path)
      : counter_(counter), path_(std::move(path)) {}
  // A call that ends without a status: its client went, or the server stops.
  ~Interceptor() override { Finish(grpc::StatusCode::CANCELLED); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      Finish(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  void Finish(grpc::StatusCode code) {
    if (std::exchange(finished_, true)) return;
    counter_.Count(path_, code, std::chrono::duration<double>(Clock::now() - begin_).count());
  }

  using Clock = std::chrono::steady_clock;
  RequestCounter& counter_;
  const std::string path_;  // "/vipuuser.VipuUser/CreatePartition"
  const Clock::time_point begin_ = Clock::now();
  bool finished_ = false;
};

class RequestCounter::Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(RequestCounter& counter) : counter_(counter) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new Interceptor(counter_, info->method());
  }

 private:
  RequestCounter& counter_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> RequestCounter::Watch() {
  return std::make_unique<Factory>(*this);
}

void RequestCounter::Count(const std::string& path, grpc::StatusCode code, double seconds) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  if (parts.size() != 3) return;  // gRPC's name for methods that do not exist
  base::MutexLock lock(mutex_);
  calls_[{parts[1], parts[2], code}].Observe(seconds);
}

std::map<RequestCounter::Call, Histogram> RequestCounter::Calls() const {
  base::MutexLock lock(mutex_);
  return calls_;
}

}  // namespace vpod::http
