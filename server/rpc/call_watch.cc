#include "server/rpc/call_watch.h"

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>

#include <utility>

#include "server/rpc/measured_service.h"

namespace vpod::rpc {

using grpc::experimental::InterceptionHookPoints;

namespace {

size_t SizeOf(const void* message, bool is_raw) {
  return is_raw ? static_cast<const grpc::ByteBuffer*>(message)->Length()
                : static_cast<const google::protobuf::MessageLite*>(message)->ByteSizeLong();
}

}  // namespace

CallWatch::~CallWatch() {
  AwaitClient();
  if (!peer_.empty()) listener_->CallIsKnown(peer_, false);
}

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
    listener_->CallIsKnown(peer_, true);
    listener_->MessageDelivered(peer_, 0);  // the headers
  }
  // A message that was measured may have been refused, or have lost fields that nobody knows.
  if (measured > 0) {
    listener_->MessageDelivered(peer_, measured);
  } else if (received && methods.GetRecvMessage() != nullptr) {
    listener_->MessageDelivered(peer_, SizeOf(methods.GetRecvMessage(), raw_ != Raw::kNone));
  }
  if (methods.QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE) &&
      methods.GetSendMessage() != nullptr)
    listener_->MessageSent(peer_, SizeOfAnswer(methods.GetSendMessage()));
}

size_t CallWatch::SizeOfAnswer(const void* message) const {
  return SizeOf(message, raw_ == Raw::kAll);
}

}  // namespace vpod::rpc
