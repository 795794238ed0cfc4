#include "server/rpc/unread_answers.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <string>
#include <utility>

#include "device/base/connection_failure.h"
#include "server/rpc/call_watch.h"

namespace vpod::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr uint64_t kBytes = 256ull << 20;  // of all answers

// gRPC's own words for a call for which it has no thread.
constexpr char kNoThread[] = "Server Threadpool Exhausted";

}  // namespace

// Lives as long as its call.
class UnreadAnswers::Interceptor : public grpc::experimental::Interceptor {
 public:
  Interceptor(UnreadAnswers& unread, const std::shared_ptr<BoundedListener>& listener,
              const grpc::ServerContextBase& context, bool raw)
      : unread_(unread),
        listener_(listener),
        watch_(listener.get(), context, raw ? CallWatch::Raw::kAll : CallWatch::Raw::kNone) {}
  ~Interceptor() override { IsRead(); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    const auto is = [&](InterceptionHookPoints point) {
      return methods->QueryInterceptionHookPoint(point);
    };
    watch_.See(*methods);
    if (is(InterceptionHookPoints::PRE_SEND_STATUS)) {
      ReplaceWords(*methods);
      if (!entry_.has_value()) Waits(0);
    }
    if (is(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      IsRead();
      const void* message = methods->GetSendMessage();
      Waits(message == nullptr ? 0 : watch_.SizeOfAnswer(message));
    }
    if (is(InterceptionHookPoints::POST_SEND_MESSAGE)) IsRead();
    methods->Proceed();
  }

 private:
  void Waits(uint64_t bytes) {
    const auto evict = [listener = listener_, peer = watch_.peer()] {
      if (listener->EndConnection(peer))
        spdlog::info("{} does not read its answers: its connection ends", peer);
    };
    entry_ = unread_.answers_.Add(unread_.weight_ + bytes, evict);
    watch_.AwaitClient();
  }
  void IsRead() {
    if (!entry_.has_value()) return;
    unread_.answers_.Remove(*std::exchange(entry_, std::nullopt));
    watch_.GoOn();
  }
  static void ReplaceWords(grpc::experimental::InterceptorBatchMethods& methods) {
    if (methods.GetSendStatus().error_message() != kNoThread) return;
    methods.ModifySendStatus(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, base::kBusy));
  }

  UnreadAnswers& unread_;
  const std::shared_ptr<BoundedListener> listener_;
  CallWatch watch_;
  std::optional<uint64_t> entry_;
};

class UnreadAnswers::Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Factory(UnreadAnswers& unread, std::shared_ptr<BoundedListener> listener, IsRaw is_raw)
      : unread_(unread), listener_(std::move(listener)), is_raw_(is_raw) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new Interceptor(unread_, listener_, *info->server_context(),
                           is_raw_ != nullptr && is_raw_(info->method()));
  }

 private:
  UnreadAnswers& unread_;
  const std::shared_ptr<BoundedListener> listener_;
  const IsRaw is_raw_;
};

UnreadAnswers::UnreadAnswers(uint64_t threads)
    : weight_(kBytes / (threads / 2)), answers_(kBytes) {}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> UnreadAnswers::Watch(
    std::shared_ptr<BoundedListener> listener, IsRaw is_raw) {
  return std::make_unique<Factory>(*this, std::move(listener), is_raw);
}

void UnreadAnswers::EndThoseOlderThan(std::chrono::seconds patience) {
  answers_.EvictThoseUntil(EvictionQueue::Clock::now() - patience);
}

}  // namespace vpod::rpc
