#include "server/rpc/silent_streams.h"

#include <memory>

#include "device/base/mutex.h"

namespace vpod::rpc {
namespace {

// A call as long as it waits; the queue may evict it a moment later.
class WaitingCall {
 public:
  explicit WaitingCall(const grpc::ServerContextBase& context) : context_(&context) {}
  void Cancel() {
    base::MutexLock lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  void End() {
    base::MutexLock lock(mutex_);
    context_ = nullptr;
  }

 private:
  base::Mutex mutex_;
  const grpc::ServerContextBase* context_ ABSL_GUARDED_BY(mutex_);  // null: it waits no longer
};

}  // namespace

bool SilentStreams::Wait(const grpc::ServerContextBase& context,
                         const std::function<bool()>& read) {
  const auto call = std::make_shared<WaitingCall>(context);
  const uint64_t entry = waiting_.Add(1, [call] { call->Cancel(); });
  const bool is_read = read();
  waiting_.Remove(entry);
  call->End();
  return is_read;
}

void SilentStreams::EndThoseOlderThan(std::chrono::seconds patience) {
  waiting_.EvictThoseUntil(EvictionQueue::Clock::now() - patience);
}

}  // namespace vpod::rpc
