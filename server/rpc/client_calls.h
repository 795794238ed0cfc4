// Calls of clients, which an agent does not trust: their messages are measured before they are
// parsed, no call holds a thread while it waits for its client, and what waits is bounded.
#pragma once

#include <google/protobuf/message_lite.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "server/rpc/bounded_listener.h"
#include "server/rpc/eviction_queue.h"

namespace vpod::rpc {

// Limits for messages that carry data (a mebibyte at most) and for all others. A parsed message may
// take some forty times as much memory as its bytes.
inline constexpr size_t kDataMessageBytes = (1 << 20) + (64 << 10);
inline constexpr size_t kMessageBytes = 64 << 10;

// The approximate memory of a call besides its messages, in gRPC and in its handler.
inline constexpr uint64_t kCallMemory = 16 << 10;

// The calls of all clients that wait; outlives them.
struct PendingCalls {
  // Calls that wait for their client's first or next message. The limit leaves half of the
  // connections to others.
  EvictionQueue silent{std::min<size_t>(4096, BoundedListener::MostConnections() / 2)};
  // Bytes of answers that wait to be read, and of their calls. An answer without a message waits,
  // too, if its client does not read at all.
  EvictionQueue unread{256ull << 20};
};

inline absl::Status ParseMessage(const grpc::ByteBuffer& bytes, size_t most,
                                 google::protobuf::MessageLite& message) {
  if (bytes.Length() > most) {
    return absl::ResourceExhaustedError(absl::StrCat("the message has ", bytes.Length(),
                                                     " bytes, at most ", most, " are accepted"));
  }
  grpc::ByteBuffer copy(bytes);  // the reader wants one of its own; the bytes are shared
  grpc::ProtoBufferReader reader(&copy);
  if (!reader.status().ok() || !message.ParseFromZeroCopyStream(&reader))
    return absl::InvalidArgumentError("the message cannot be read");
  return absl::OkStatus();
}

inline grpc::ByteBuffer SerializeMessage(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  grpc::SerializationTraits<google::protobuf::Message>::Serialize(message, &bytes, &own);
  return bytes;
}

// Base of all calls: they own themselves until gRPC is done with them, and while they wait they can
// be evicted from a queue.
class ClientCall : public std::enable_shared_from_this<ClientCall> {
 public:
  virtual ~ClientCall() = default;

 protected:
  explicit ClientCall(grpc::CallbackServerContext* context) : context_(context) {}

  // Once, by the creator of the call.
  void OwnItself() { self_ = shared_from_this(); }
  // In the place of what it waited for before. A call that is over waits for nothing.
  void Wait(EvictionQueue& queue, uint64_t weight) {
    const std::weak_ptr<ClientCall> weak = weak_from_this();
    uint64_t entry = queue.Add(weight, [weak] {
      if (const auto call = weak.lock()) call->Cancel();
    });
    EvictionQueue* left = &queue;
    {
      base::MutexLock lock(mutex_);
      if (context_ != nullptr) {
        left = std::exchange(queue_, left);
        entry = std::exchange(entry_, entry);
      }
    }
    if (left != nullptr) left->Remove(entry);
  }
  // Before the call is finished: until the client has read the answer, of which `bytes` are left.
  void AwaitReader(PendingCalls& waiting, uint64_t bytes = 0) {
    Wait(waiting.unread, kCallMemory + bytes);
  }
  void EndWait() {
    EvictionQueue* queue;
    uint64_t entry;
    {
      base::MutexLock lock(mutex_);
      queue = std::exchange(queue_, nullptr);
      entry = entry_;
    }
    if (queue != nullptr) queue->Remove(entry);
  }
  // gRPC is done with it: the last that a call does.
  void End() {
    EndWait();
    {
      base::MutexLock lock(mutex_);
      context_ = nullptr;
    }
    self_.reset();
  }
  void Cancel() {
    base::MutexLock lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  base::Mutex mutex_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);  // null when the call is over
  EvictionQueue* queue_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t entry_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<ClientCall> self_;
};

// One message, answered at once or later by one.
class UnaryCall : public grpc::ServerUnaryReactor, public ClientCall {
 public:
  static std::shared_ptr<UnaryCall> Make(grpc::CallbackServerContext* context,
                                         PendingCalls& waiting, grpc::ByteBuffer* reply) {
    std::shared_ptr<UnaryCall> call(new UnaryCall(context, waiting, reply));
    call->OwnItself();
    return call;
  }
  // Once.
  void Answer(const absl::Status& status) {
    AwaitReader(waiting_);
    Finish(base::ToGrpc(status));
  }
  void Answer(const google::protobuf::Message& message) {
    *reply_ = SerializeMessage(message);
    AwaitReader(waiting_, reply_->Length());
    Finish(grpc::Status::OK);
  }
  void OnDone() override { End(); }

 private:
  UnaryCall(grpc::CallbackServerContext* context, PendingCalls& waiting, grpc::ByteBuffer* reply)
      : ClientCall(context), waiting_(waiting), reply_(reply) {}
  PendingCalls& waiting_;
  grpc::ByteBuffer* const reply_;
};

// Answers at once what `handle` (absl::StatusOr<Reply>(const Request&)) says.
template <class Request, class Handle>
grpc::ServerUnaryReactor* AnswerAtOnce(grpc::CallbackServerContext* context, PendingCalls& waiting,
                                       const grpc::ByteBuffer* bytes, grpc::ByteBuffer* reply,
                                       const Handle& handle) {
  const auto call = UnaryCall::Make(context, waiting, reply);
  Request request;
  if (const absl::Status parsed = ParseMessage(*bytes, kMessageBytes, request); !parsed.ok()) {
    call->Answer(parsed);
  } else if (const auto answer = handle(request); !answer.ok()) {
    call->Answer(answer.status());
  } else {
    call->Answer(*answer);
  }
  return call.get();
}

// A stream of messages that carry data, answered by one.
template <class Request>
class UploadCall : public grpc::ServerReadReactor<grpc::ByteBuffer>, public ClientCall {
 public:
  void OnReadDone(bool ok) override {
    EndWait();
    if (!ok) return Complete();
    absl::Status status;
    {
      Request request;
      status = ParseMessage(bytes_, kDataMessageBytes, request);
      bytes_.Clear();
      if (status.ok()) status = Take(request);
    }
    if (!status.ok()) return Refuse(status);
    ReadNext();
  }
  void OnDone() override { End(); }

 protected:
  UploadCall(grpc::CallbackServerContext* context, PendingCalls& waiting, grpc::ByteBuffer* reply)
      : ClientCall(context), reply_(reply), waiting_(waiting) {}
  void Start() {
    OwnItself();
    ReadNext();
  }
  // A message; an error ends the call.
  virtual absl::Status Take(Request& request) = 0;
  // All messages are there: calls Answer or Refuse, now or later.
  virtual void Complete() = 0;
  // Gives back whatever keeps other calls out, as the client may try again as soon as it is
  // answered.
  virtual void GiveBack() {}
  void Refuse(const absl::Status& status) {
    GiveBack();
    Answer(base::ToGrpc(status));
  }
  void Answer(const grpc::Status& status) {
    AwaitReader(waiting_, reply_->Length());
    Finish(status);
  }

  grpc::ByteBuffer* const reply_;

 private:
  void ReadNext() {
    Wait(waiting_.silent, 1);
    StartRead(&bytes_);
  }
  PendingCalls& waiting_;
  grpc::ByteBuffer bytes_;
};

// Sends what `read` gives from an offset on, portion by portion; one shorter than `portion_bytes`,
// which may be empty, is the last.
template <class Reply>
class DownloadCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public ClientCall {
 public:
  using Read = std::function<absl::StatusOr<std::string>(uint64_t at)>;
  static DownloadCall* Start(grpc::CallbackServerContext* context, PendingCalls& waiting,
                             uint64_t portion_bytes, Read read) {
    std::shared_ptr<DownloadCall> call(
        new DownloadCall(context, waiting, portion_bytes, std::move(read)));
    call->OwnItself();
    call->SendNext();
    return call.get();
  }
  void OnWriteDone(bool ok) override {
    EndWait();
    if (!ok || last_) return Answer(grpc::Status::OK);
    SendNext();
  }
  void OnDone() override { End(); }

 private:
  DownloadCall(grpc::CallbackServerContext* context, PendingCalls& waiting, uint64_t portion_bytes,
               Read read)
      : ClientCall(context),
        waiting_(waiting),
        portion_bytes_(portion_bytes),
        read_(std::move(read)) {}

  void SendNext() {
    absl::StatusOr<std::string> portion = read_(at_);
    if (!portion.ok()) return Answer(base::ToGrpc(portion.status()));
    at_ += portion->size();
    last_ = portion->size() < portion_bytes_;
    Reply reply;
    reply.set_data(*std::move(portion));
    bytes_ = SerializeMessage(reply);
    AwaitReader(waiting_, bytes_.Length());
    StartWrite(&bytes_);
  }
  void Answer(const grpc::Status& status) {
    AwaitReader(waiting_);
    Finish(status);
  }

  PendingCalls& waiting_;
  const uint64_t portion_bytes_;
  const Read read_;
  uint64_t at_ = 0;
  bool last_ = false;
  grpc::ByteBuffer bytes_;
};

}  // namespace vpod::rpc
