#include "server/rpc/grpc_transport.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_connect.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"

namespace vpod::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

constexpr char kMethod[] = "/vpod.fabric.v1.Fabric/Carry";
constexpr size_t kMostData = 1 << 20;  // of a payload in one piece
constexpr int kKeepaliveMs = 1000;

// Tags of Cargo's fields.
constexpr uint32_t kHeaderTag =
    WireFormatLite::MakeTag(1, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kBytesTag = WireFormatLite::MakeTag(2, WireFormatLite::WIRETYPE_VARINT);
constexpr uint32_t kDataTag = WireFormatLite::MakeTag(3, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);

// A Cargo as it travels. Written by hand: the message's own code would copy a payload twice more.
grpc::ByteBuffer Serialize(absl::string_view header, uint64_t payload_bytes,
                           absl::Span<const std::byte> data) {
  constexpr size_t kMostOfTags = 64;
  std::string front(header.size() + kMostOfTags, '\0');
  auto* to = reinterpret_cast<uint8_t*>(front.data());
  if (!header.empty()) {
    to = CodedOutputStream::WriteVarint32ToArray(kHeaderTag, to);
    to = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(header.size()), to);
    to = CodedOutputStream::WriteRawToArray(header.data(), static_cast<int>(header.size()), to);
    to = CodedOutputStream::WriteVarint32ToArray(kBytesTag, to);
    to = CodedOutputStream::WriteVarint64ToArray(payload_bytes, to);
  }
  if (!data.empty()) {
    to = CodedOutputStream::WriteVarint32ToArray(kDataTag, to);
    to = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(data.size()), to);
  }
  const size_t used = static_cast<size_t>(to - reinterpret_cast<uint8_t*>(front.data()));
  const grpc::Slice slices[] = {grpc::Slice(front.data(), used),
                                grpc::Slice(data.data(), data.size())};
  return grpc::ByteBuffer(slices, data.empty() ? 1 : 2);
}

class CargoReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit CargoReactor(fabric::Receiver receiver) : receiver_(std::move(receiver)) {
    StartRead(&piece_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    if (!Take()) return Finish({grpc::StatusCode::INVALID_ARGUMENT, "not a sequence of messages"});
    piece_.Clear();
    StartRead(&piece_);
  }
  void OnDone() override {
    Landed(absl::UnavailableError("the peer's process is lost"));
    delete this;
  }

 private:
  bool Take() {
    if (piece_.Length() > kMostData + 2 * fabric::Transport::kMaxHeaderBytes) return false;
    grpc::ProtoBufferReader reader(&piece_);
    CodedInputStream input(&reader);
    std::string header;
    uint64_t payload_bytes = 0;
    while (const uint32_t tag = input.ReadTag()) {
      uint32_t size = 0;
      if (tag == kHeaderTag) {
        if (!input.ReadVarint32(&size) || size > fabric::Transport::kMaxHeaderBytes ||
            !input.ReadString(&header, static_cast<int>(size)))
          return false;
      } else if (tag == kBytesTag) {
        if (!input.ReadVarint64(&payload_bytes)) return false;
      } else if (tag == kDataTag) {
        if (!header.empty() && !Begin(std::exchange(header, ""), payload_bytes)) return false;
        if (!input.ReadVarint32(&size) || !TakeData(input, size)) return false;
      } else {
        return false;
      }
    }
    return input.ConsumedEntireMessage() && (header.empty() || Begin(header, payload_bytes));
  }
  bool Begin(const std::string& header, uint64_t payload_bytes) {
    if (missing_ > 0) return false;
    landing_ = receiver_(header, payload_bytes);
    to_ = landing_.buffer;
    missing_ = payload_bytes;
    if (missing_ == 0) Landed(absl::OkStatus());
    return true;
  }
  bool TakeData(CodedInputStream& input, uint32_t size) {
    if (size > missing_) return false;
    const int bytes = static_cast<int>(size);
    if (!(to_ == nullptr ? input.Skip(bytes) : input.ReadRaw(to_, bytes))) return false;
    if (to_ != nullptr) to_ += size;
    missing_ -= size;
    if (missing_ == 0) Landed(absl::OkStatus());
    return true;
  }
  void Landed(const absl::Status& status) {
    const fabric::Landing done = std::exchange(landing_, {});
    if (done.landed) done.landed(status);
  }

  const fabric::Receiver receiver_;
  grpc::ByteBuffer piece_;
  fabric::Landing landing_;  // of the payload under way
  std::byte* to_ = nullptr;
  uint64_t missing_ = 0;  // of it
};

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* TakeCargo(fabric::Receiver receiver) {
  return new CargoReactor(std::move(receiver));
}

struct GrpcTransport::Impl {
  struct Message {
    std::string header;
    absl::Span<const std::byte> payload;
    std::function<void(absl::Status)> sent;
    size_t copied = 0;
  };

  class Stream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                 public std::enable_shared_from_this<Stream> {
   public:
    Stream(Impl& impl, std::string to) : impl_(impl), to_(std::move(to)) {}

    void Start(grpc::GenericStub& stub) {
      stub.PrepareBidiStreamingCall(&context, kMethod, {}, this);
      AddHold();  // for the writes that come from outside
      StartRead(&nothing_);
      StartCall();
    }
    // False when it has ended.
    bool Send(Message& message) {
      base::MutexLock lock(mutex_);
      if (ended_) return false;
      waiting_.push_back(std::move(message));
      WriteNext();
      return true;
    }
    void OnReadDone(bool ok) override {
      if (ok) return context.TryCancel();  // peers have nothing to say
      End();
    }
    void OnWriteDone(bool ok) override {
      std::deque<Message> done;
      {
        base::MutexLock lock(mutex_);
        writing_ = false;
        if (ok && waiting_.front().copied == waiting_.front().payload.size()) {
          done.push_back(std::move(waiting_.front()));
          waiting_.pop_front();
        }
        if (ok) WriteNext();
      }
      for (const Message& each : done) each.sent(absl::OkStatus());
      if (!ok) End();
    }
    void OnDone(const grpc::Status& status) override {
      std::deque<Message> failed;
      {
        base::MutexLock lock(mutex_);
        failed.swap(waiting_);
      }
      const absl::Status cause = status.ok() ? absl::UnavailableError("the peer's process is lost")
                                             : base::FromGrpc(status);
      for (const Message& each : failed) each.sent(cause);
      impl_.Ended(shared_from_this(), to_);
    }

    grpc::ClientContext context;

   private:
    void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      if (writing_ || ended_ || waiting_.empty()) return;
      Message& message = waiting_.front();
      const auto data = message.payload.subspan(message.copied, kMostData);
      piece_ = Serialize(message.copied == 0 ? message.header : "", message.payload.size(), data);
      message.copied += data.size();
      writing_ = true;
      StartWrite(&piece_);
    }
    void End() {
      {
        base::MutexLock lock(mutex_);
        if (std::exchange(ended_, true)) return;
      }
      context.TryCancel();
      RemoveHold();
    }

    Impl& impl_;
    const std::string to_;
    grpc::ByteBuffer nothing_, piece_;
    base::Mutex mutex_;
    std::deque<Message> waiting_ ABSL_GUARDED_BY(mutex_);  // the first is being written
    bool writing_ ABSL_GUARDED_BY(mutex_) = false;
    bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  };

  // Null when this process ends.
  std::shared_ptr<Stream> StreamTo(const std::string& to) {
    base::MutexLock lock(mutex);
    if (stopping) return nullptr;
    auto& stream = streams[to];
    if (stream != nullptr) return stream;
    auto& stub = stubs[to];
    if (stub == nullptr) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3 * kKeepaliveMs);
      arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
      stub = std::make_unique<grpc::GenericStub>(
          base::Connect(to, base::Peer::kAgent, tls, arguments));
    }
    stream = std::make_shared<Stream>(*this, to);
    running.insert(stream);
    stream->Start(*stub);
    return stream;
  }

  void Ended(const std::shared_ptr<Stream>& stream, const std::string& to) {
    base::MutexLock lock(mutex);
    const auto it = streams.find(to);
    if (it != streams.end() && it->second == stream) streams.erase(it);
    running.erase(stream);
    changed.notify_all();
  }

  std::optional<base::Tls> tls;
  base::Mutex mutex;
  std::condition_variable changed;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::map<std::string, std::unique_ptr<grpc::GenericStub>> stubs ABSL_GUARDED_BY(mutex);
  std::map<std::string, std::shared_ptr<Stream>> streams ABSL_GUARDED_BY(mutex);
  std::set<std::shared_ptr<Stream>> running ABSL_GUARDED_BY(mutex);
};

GrpcTransport::GrpcTransport(std::optional<base::Tls> tls) : impl_(std::make_unique<Impl>()) {
  base::KeepCallbackThreads();
  impl_->tls = std::move(tls);
}
GrpcTransport::~GrpcTransport() { Stop(); }

void GrpcTransport::Send(const std::string& to, std::string header,
                         absl::Span<const std::byte> payload,
                         std::function<void(absl::Status)> sent) {
  Impl::Message message{std::move(header), payload, std::move(sent)};
  const std::shared_ptr<Impl::Stream> stream = impl_->StreamTo(to);
  if (stream != nullptr && stream->Send(message)) return;
  message.sent(absl::UnavailableError("the peer's process is lost"));
}

void GrpcTransport::Stop() {
  base::MutexLock lock(impl_->mutex);
  impl_->stopping = true;
  for (const auto& stream : impl_->running) stream->context.TryCancel();
  lock.Wait(impl_->changed, [this] { return impl_->running.empty(); });
}

}  // namespace vpod::rpc
