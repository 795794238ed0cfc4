#include "tests/support/raw_call.h"

#include <grpcpp/generic/generic_stub.h>

namespace vpod::testing {

grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                     const std::string& bytes, const std::map<std::string, std::string>& metadata,
                     std::chrono::seconds patience) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + patience);
  for (const auto& [name, value] : metadata) context.AddMetadata(name, value);
  const grpc::Slice slice(bytes);
  grpc::ByteBuffer request(&slice, 1), reply;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, path, &queue);
  const auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  if (done()) {
    call->WriteLast(request, {}, nullptr);
    done();
    // All of a stream: what nobody reads holds back the status.
    do call->Read(&reply, nullptr);
    while (done());
  }
  grpc::Status status;
  call->Finish(&status, nullptr);
  done();
  return status;
}

std::string Repeat(const std::string& unit, size_t bytes) {
  std::string text;
  text.reserve(bytes);
  while (text.size() + unit.size() <= bytes) text += unit;
  return text;
}

}  // namespace vpod::testing
