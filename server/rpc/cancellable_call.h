// A call of a synchronous service that another thread may cancel while it lasts, and perhaps tries
// to cancel a moment later.
#pragma once

#include <grpcpp/server_context.h>

#include "device/base/mutex.h"

namespace vpod::rpc {

// Thread-safe.
class CancellableCall {
 public:
  explicit CancellableCall(const grpc::ServerContextBase& context) : context_(&context) {}
  // Does nothing after End.
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  // The context is not used afterwards.
  void End() ABSL_LOCKS_EXCLUDED(mutex_) {
    base::MutexLock lock(mutex_);
    context_ = nullptr;
  }

 private:
  base::Mutex mutex_;
  const grpc::ServerContextBase* context_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::rpc
