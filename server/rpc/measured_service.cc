#include "server/rpc/measured_service.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>

#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "device/base/grpc_status.h"
#include "device/base/mutex.h"
#include "device/base/parsed_size.h"
#include "device/base/status.h"

namespace vpod::rpc {
namespace {

using grpc::internal::MethodHandler;

thread_local uint64_t received_bytes = 0;

// The bytes of a message in one piece.
class Contents {
 public:
  explicit Contents(grpc_byte_buffer* bytes) {
    grpc_byte_buffer_reader reader;
    if (grpc_byte_buffer_reader_init(&reader, bytes) == 0) return;
    slice_ = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
  }
  ~Contents() { grpc_slice_unref(slice_); }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;
  absl::string_view text() const {
    return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice_)), GRPC_SLICE_LENGTH(slice_)};
  }

 private:
  grpc_slice slice_ = grpc_empty_slice();
};

// Measures a call's message, and hands on what may be parsed.
class MeasuredHandler final : public MethodHandler {
 public:
  MeasuredHandler(std::unique_ptr<MethodHandler> handler,
                  const google::protobuf::Descriptor& request, uint64_t most, MessageMemory& memory)
      : handler_(std::move(handler)), request_(request), most_(most), memory_(memory) {}

  void* Deserialize(grpc_call* call, grpc_byte_buffer* bytes, grpc::Status* status,
                    void** data) override {
    received_bytes = bytes == nullptr ? 0 : grpc_byte_buffer_length(bytes);
    auto share = std::make_unique<MessageMemory::Share>(memory_);
    if (const absl::Status measured = Measure(bytes, *share); !measured.ok()) {
      grpc_byte_buffer_destroy(bytes);
      *status = base::ToGrpc(measured);
      return nullptr;
    }
    void* const request = handler_->Deserialize(call, bytes, status, data);
    if (request == nullptr) {
      *status = base::ToGrpc(absl::InvalidArgumentError("The message cannot be read."));
      return nullptr;
    }
    // The handler of gRPC gives it as such.
    static_cast<google::protobuf::Message*>(static_cast<google::protobuf::MessageLite*>(request))
        ->DiscardUnknownFields();
    base::MutexLock lock(mutex_);
    shares_[request] = std::move(share);
    return request;
  }

  void RunHandler(const HandlerParameter& parameter) override {
    handler_->RunHandler(parameter);  // which destroys the message
    base::MutexLock lock(mutex_);
    shares_.erase(parameter.request);
  }

 private:
  // Measures the message, and takes `share` for its memory.
  absl::Status Measure(grpc_byte_buffer* bytes, MessageMemory::Share& share) const {
    const uint64_t length = bytes == nullptr ? 0 : grpc_byte_buffer_length(bytes);
    if (length > most_) return TooLarge();
    VPOD_RETURN_IF_ERROR(share.Resize(2 * length));  // as it came, and in one piece
    if (length == 0) return absl::OkStatus();
    const absl::StatusOr<uint64_t> size = base::ParsedSize(request_, Contents(bytes).text(), most_);
    if (absl::IsResourceExhausted(size.status())) return TooLarge();
    if (!size.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("The message cannot be read: it is ", size.status().message(), "."));
    }
    return share.Resize(length + *size);
  }
  absl::Status TooLarge() const {
    return absl::ResourceExhaustedError(absl::StrCat("The message is too large: a ",
                                                     request_.name(), " may take at most ", most_,
                                                     " bytes of memory."));
  }

  const std::unique_ptr<MethodHandler> handler_;
  const google::protobuf::Descriptor& request_;
  const uint64_t most_;
  MessageMemory& memory_;
  base::Mutex mutex_;
  // By message, until its handler has answered.
  std::map<const void*, std::unique_ptr<MessageMemory::Share>> shares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

uint64_t TakeReceivedBytes() { return std::exchange(received_bytes, 0); }

absl::Status MessageMemory::Share::Resize(uint64_t bytes) {
  if (bytes <= kSmallBytes) bytes = 0;
  const uint64_t before = std::exchange(bytes_, bytes);
  const uint64_t taken = memory_.taken_.fetch_add(bytes - before) + bytes - before;
  if (taken <= memory_.capacity_ || bytes <= before) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("Other large messages leave too little of the ", memory_.capacity_,
                   " bytes that they share for this one; try again."));
}

void MeasuredService::AddMeasured(const char* call, grpc::internal::RpcMethod::RpcType kind,
                                  std::unique_ptr<MethodHandler> handler,
                                  const google::protobuf::Descriptor& request, uint64_t most) {
  paths_.push_back(absl::StrCat("/", name_, "/", call));
  AddMethod(new grpc::internal::RpcServiceMethod(
      paths_.back().c_str(), kind,
      new MeasuredHandler(std::move(handler), request, most, memory_)));  // gRPC deletes both
}

}  // namespace vpod::rpc
