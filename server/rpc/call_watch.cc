#include "server/rpc/call_watch.h"

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

#include "server/rpc/measured_service.h"

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
  const bool received =
      methods.QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE);
  const uint64_t measured = received ? TakeReceivedBytes() : 0;
  if (listener_ == nullptr) return;
  // The context knows its peer only once the call has begun.
  if (peer_.empty() &&
      methods.QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
    peer_ = context_.peer();
    GoOn();
  }
  // A message that was measured may have been refused, or have lost fields that nobody knows.
  if (measured > 0) {
    listener_->MessageDelivered(peer_, measured);
  } else if (received && methods.GetRecvMessage() != nullptr) {
    listener_->MessageDelivered(peer_, SizeOf(methods.GetRecvMessage()));
  }
}

size_t CallWatch::SizeOf(const void* message) const {
  return raw_ ? static_cast<const grpc::ByteBuffer*>(message)->Length()
              : static_cast<const google::protobuf::MessageLite*>(message)->ByteSizeLong();
}

}  // namespace vpod::rpc
