#include "server/rpc/liveness.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/base/grpc_connect.h"
#include "device/base/status.h"
#include "server/rpc/daemon.h"

namespace vpod::rpc {
namespace {

using std::chrono::system_clock;

grpc::ByteBuffer EmptyMessage() {
  const grpc::Slice empty;
  return grpc::ByteBuffer(&empty, 1);  // without a slice it would not be a message
}

}  // namespace

void Liveness::Start(Options options) {
  options_ = std::move(options);
  thread_ = std::thread([this] { Run(); });
}

void Liveness::Stop() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status Liveness::Status() const {
  base::MutexLock lock(mutex_);
  const bool is_excused = options_.is_excused && options_.is_excused();
  if (status_.ok() && due_.has_value() && *due_ < std::chrono::steady_clock::now() && !is_excused)
    return absl::UnavailableError("the check whether the end-points answer hangs");
  return status_;
}

void Liveness::Run() {
  uint64_t beats = 0;
  do {
    const absl::Status status = Round();
    {
      base::MutexLock lock(mutex_);
      if (stopping_) return;
      if (!status.ok() && status_.ok())
        spdlog::error("not alive: {}", std::string(status.message()));
      if (status.ok() && !status_.ok()) spdlog::info("alive again");
      status_ = status;
    }
    const uint64_t now = beats_;
    if (status.ok() && std::exchange(beats, now) != now) NotifyAlive();
  } while (Pause(options_.interval));
}

absl::Status Liveness::Round() {
  // A question may end after its deadline, on a busy machine.
  const auto longest = 2 * options_.patience * options_.questions.size();
  {
    base::MutexLock lock(mutex_);
    due_ = std::chrono::steady_clock::now() + longest;
  }
  absl::Status status;
  for (const Question& question : options_.questions) {
    status = Ask(question);
    if (!status.ok()) break;
  }
  base::MutexLock lock(mutex_);
  due_.reset();
  return status;
}

absl::Status Liveness::Ask(const Question& question) {
  const auto is_excused = [this] { return options_.is_excused && options_.is_excused(); };
  const auto deadline = system_clock::now() + options_.patience;
  do {
    if (is_excused()) return absl::OkStatus();
    const grpc::Status status = Call(question, deadline);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
        status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED)
      return absl::OkStatus();
    // A connection may have made room for a newer one before its call began.
  } while (system_clock::now() < deadline && Pause(std::chrono::milliseconds(100)));
  if (is_excused()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no answer at ", question.endpoint, " within ",
                                             options_.patience.count(), " ms"));
}

grpc::Status Liveness::Call(const Question& question, system_clock::time_point deadline) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::GenericStub stub(
      base::Connect(question.endpoint, base::Peer::kSelf, options_.tls, std::move(arguments)));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(deadline);
  {
    base::MutexLock lock(mutex_);
    if (stopping_) return grpc::Status::CANCELLED;
    call_ = &context;
  }
  grpc::CompletionQueue queue;
  const auto reader = stub.PrepareUnaryCall(&context, question.method, EmptyMessage(), &queue);
  reader->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  reader->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  base::MutexLock lock(mutex_);
  call_ = nullptr;
  return status;
}

bool Liveness::Pause(std::chrono::milliseconds time) {
  base::MutexLock lock(mutex_);
  return !lock.WaitUntil(changed_, std::chrono::steady_clock::now() + time,
                         [this] { return stopping_; });
}

}  // namespace vpod::rpc
