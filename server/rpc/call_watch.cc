#include "server/rpc/call_watch.h"

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

namespace vpod::rpc {

using grpc::experimental::InterceptionHookPoints;

CallWatch::~CallWatch() { AwaitClient(); }

void CallWatch::AwaitClient() {
  if (std::exchange(busy_, false)) listener_->CallEnds(peer_);
}

void CallWatch::GoOn() {
  if (peer_.empty() || std::exchange(busy_, true)) return;
  listener_->CallBegins(peer_);
}

void CallWatch::See(grpc::experimental::InterceptorBatchMethods& methods) {
  if (listener_ == nullptr) return;
  // The context knows its peer only once the call has begun.
  if (peer_.empty() &&
      methods.QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
    peer_ = context_.peer();
    GoOn();
  }
  if (methods.QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE) &&
      methods.GetRecvMessage() != nullptr)
    listener_->MessageDelivered(peer_, SizeOf(methods.GetRecvMessage()));
}

size_t CallWatch::SizeOf(const void* message) const {
  return raw_ ? static_cast<const grpc::ByteBuffer*>(message)->Length()
              : static_cast<const google::protobuf::MessageLite*>(message)->ByteSizeLong();
}

}  // namespace vpod::rpc
