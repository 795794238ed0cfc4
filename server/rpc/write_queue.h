// Messages on their way into a gRPC stream, which takes one at a time, and the stream's end behind
// them.
#pragma once

#include <grpcpp/support/status.h>

#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "device/base/mutex.h"

namespace vpod::rpc {

// Bytes that a message takes, more or less.
template <class Message>
size_t SizeOf(const Message& message) {
  if constexpr (requires { message.ByteSizeLong(); }) {
    return message.ByteSizeLong();
  } else if constexpr (requires { message.Length(); }) {
    return message.Length();
  } else {
    return message.size();
  }
}

// Thread-safe. Belongs to a reactor, which calls Written from its OnWriteDone.
template <class Message>
class WriteQueue {
 public:
  // A client with this much to read does not read.
  static constexpr size_t kMostBytes = 4 << 20;

  // `write` begins to write a message, which stays where it is until that is done; `finish` ends
  // the stream. Both are called under the queue's lock and must not call back; `finish` comes once
  // and last.
  WriteQueue(std::function<void(const Message*)> write,
             std::function<void(const grpc::Status&)> finish)
      : write_(std::move(write)), finish_(std::move(finish)) {}

  // Does nothing after End. False: it is full, and takes no more. The reactor is to end its call,
  // as a write that nobody reads keeps it from ending by itself.
  bool Send(const Message& message) {
    base::MutexLock lock(mutex_);
    if (end_.has_value()) return true;
    const size_t bytes = SizeOf(message);
    if (!waiting_.empty() && bytes_ + bytes > kMostBytes) return false;
    bytes_ += bytes;
    waiting_.push_back(message);
    WriteNext();
    return true;
  }
  // Ends the stream once what was sent has been written; the first status counts.
  void End(const grpc::Status& status) {
    base::MutexLock lock(mutex_);
    if (!end_.has_value()) end_ = status;
    WriteNext();
  }
  // A write has ended; when it failed, nobody reads what waits.
  void Written(bool ok) {
    base::MutexLock lock(mutex_);
    writing_ = false;
    bytes_ -= SizeOf(waiting_.front());
    waiting_.pop_front();
    if (!ok) waiting_.clear(), bytes_ = 0;
    WriteNext();
  }

 private:
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!waiting_.empty()) {
      writing_ = true;
      write_(&waiting_.front());
    } else if (end_.has_value()) {
      finished_ = true;
      finish_(*end_);
    }
  }

  const std::function<void(const Message*)> write_;
  const std::function<void(const grpc::Status&)> finish_;
  base::Mutex mutex_;
  std::deque<Message> waiting_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;             // of those that wait
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::rpc
