#include "server/rpc/refusal_log.h"

#include <grpcpp/server_context.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "device/base/text.h"
#include "server/controller/permissions.h"
#include "server/rpc/metadata.h"

namespace vpod::rpc {
namespace {

using Clock = std::chrono::steady_clock;
using grpc::experimental::InterceptionHookPoints;

// Lines written within the last minute.
class Recent {
 public:
  bool Repeats(const std::string& line) {
    constexpr std::chrono::minutes kPeriod{1};
    constexpr size_t kMost = 1000;  // clients make up the lines
    const Clock::time_point now = Clock::now();
    base::MutexLock lock(mutex_);
    const auto it = written_.find(line);
    if (it != written_.end() && now - it->second < kPeriod) return true;
    if (it == written_.end() && written_.size() >= kMost) written_.clear();
    written_[line] = now;
    return false;
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, Clock::time_point> written_ ABSL_GUARDED_BY(mutex_);
};

class Interceptor : public grpc::experimental::Interceptor {
 public:
  Interceptor(grpc::experimental::ServerRpcInfo* info, bool secure)
      : method_(info->method()), context_(*info->server_context()), secure_(secure) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA))
      user_ = OnlyValue(*methods->GetRecvInitialMetadata(), kUserIdHeader).value_or("");
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const absl::Status status = base::FromGrpc(methods->GetSendStatus());
      if (!status.ok() && !absl::IsCancelled(status)) {
        // The context knows its peer only once the call has begun.
        LogRefusal(
            WordsOf(method_),
            absl::StrCat(CallerField(user_, IsAccepted()), " peer=\"", context_.peer(), "\""),
            status);
      }
    }
    methods->Proceed();
  }

 private:
  bool IsAccepted() const {
    const auto permission = controller::PermissionOfPath(method_);
    return !secure_ || (permission.ok() && controller::NeedsKey(permission->rule));
  }

  const std::string method_;
  const grpc::ServerContextBase& context_;
  const bool secure_;
  std::string user_;
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(bool secure) : secure_(secure) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new Interceptor(info, secure_);
  }

 private:
  const bool secure_;
};

}  // namespace

std::string WordsOf(absl::string_view path) {
  const auto permission = controller::PermissionOfPath(path);
  // A client makes up the path of a call that does not exist, and with it fields of the line.
  return permission.ok() ? std::string(permission->words)
                         : absl::StrReplaceAll(path, {{"\"", "'"}});
}

std::string CallerField(absl::string_view user, bool is_accepted) {
  return absl::StrCat(is_accepted ? "user=" : "claimed_user=", base::QuotedField(user));
}

void LogRefusal(absl::string_view call, absl::string_view caller, const absl::Status& status) {
  static Recent& recent = *new Recent;  // calls may end while the process does
  const std::string reason =
      absl::StrCat("code=", absl::StatusCodeToString(status.code()),
                   " reason=", base::QuotedField(status.message(), std::string::npos));
  // A port differs from call to call.
  const std::string who(caller.substr(0, caller.find(" peer=")));
  if (recent.Repeats(absl::StrCat(call, " ", who, " ", reason))) return;
  spdlog::info("refused call=\"{}\" {} {}", std::string(call), std::string(caller), reason);
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> LogRefusedCalls(
    bool secure) {
  return std::make_unique<Factory>(secure);
}

}  // namespace vpod::rpc
