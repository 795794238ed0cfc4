// Services of the controller. gRPC by itself parses whatever comes, up to 4 MiB on the wire, and
// protobuf makes an object of every two bytes: such a message would take a hundred mebibytes, and a
// daemon that many send to would end. Here each call says what its message may take; the message is
// measured first (device/base/parsed_size.h), and what exceeds the limit is refused unparsed.
// Fields that nobody knows are dropped: handlers keep and repeat parts of messages.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/method_handler.h>
#include <grpcpp/support/sync_stream.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace vpod::rpc {

// Bounds what the large messages of all services take while they are worked on. Thread-safe.
class MessageMemory {
 public:
  // A message that takes no more is not counted: whatever the large ones take, calls with ids and
  // names go on.
  static constexpr uint64_t kSmallBytes = 256 << 10;

  explicit MessageMemory(uint64_t capacity) : capacity_(capacity) {}

  // What one message takes, until it is destroyed.
  class Share {
   public:
    explicit Share(MessageMemory& memory) : memory_(memory) {}
    ~Share() { memory_.taken_ -= bytes_; }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    // Makes the share `bytes` large. ResourceExhausted if the other messages leave less.
    absl::Status Resize(uint64_t bytes);

   private:
    MessageMemory& memory_;
    uint64_t bytes_ = 0;
  };

 private:
  const uint64_t capacity_;
  std::atomic<uint64_t> taken_ = 0;
};

// Bytes of the message that a measured call has just received on this thread, also if it was
// refused, once; 0: there is none. gRPC asks a call's interceptors next.
uint64_t TakeReceivedBytes();

class MeasuredService : public grpc::Service {
 protected:
  // `name` is the service's full name.
  MeasuredService(std::string name, MessageMemory& memory)
      : name_(std::move(name)), memory_(memory) {}

  // Limits of messages, in bytes of memory: ids and names; lists of all agents and users; all that
  // a process with the machines of a POD65536 has to tell.
  static constexpr uint64_t kWords = MessageMemory::kSmallBytes;
  static constexpr uint64_t kLists = 8 << 20;
  static constexpr uint64_t kMachines = 48 << 20;

  // Serves a call by a method of the service's own.
  template <class Self, class Request, class Reply>
  void Add(const char* call, uint64_t most,
           grpc::Status (Self::*handle)(grpc::ServerContext*, const Request*, Reply*)) {
    using google::protobuf::MessageLite;
    AddMeasured(
        call, grpc::internal::RpcMethod::NORMAL_RPC,
        std::make_unique<
            grpc::internal::RpcMethodHandler<Self, Request, Reply, MessageLite, MessageLite>>(
            handle, static_cast<Self*>(this)),
        *Request::descriptor(), most);
  }
  // The same for a call that is answered by a stream.
  template <class Self, class Request, class Reply>
  void Add(const char* call, uint64_t most,
           grpc::Status (Self::*handle)(grpc::ServerContext*, const Request*,
                                        grpc::ServerWriter<Reply>*)) {
    AddMeasured(call, grpc::internal::RpcMethod::SERVER_STREAMING,
                std::make_unique<grpc::internal::ServerStreamingHandler<Self, Request, Reply>>(
                    handle, static_cast<Self*>(this)),
                *Request::descriptor(), most);
  }

 private:
  void AddMeasured(const char* call, grpc::internal::RpcMethod::RpcType kind,
                   std::unique_ptr<grpc::internal::MethodHandler> handler,
                   const google::protobuf::Descriptor& request, uint64_t most);

  const std::string name_;
  MessageMemory& memory_;
  std::deque<std::string> paths_;  // gRPC keeps pointers to them
};

}  // namespace vpod::rpc
