// For tests: processes of a job as objects of one process, which exchange messages through queues.
// Messages overtake each other at random, as real ones may.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/base/mutex.h"
#include "device/fabric/transport.h"

namespace vpod::fabric {

class MemoryTransport : public Transport {
 public:
  // A message on its way; a test may change it.
  struct Message {
    std::string to;
    std::string header;
    absl::Span<const std::byte> payload;
    absl::Status fate;  // an error: it is lost, and its sender told so
  };
  using Tamper = std::function<void(Message&)>;

  explicit MemoryTransport(uint32_t seed) : random_(seed), thread_([this] { Deliver(); }) {}
  ~MemoryTransport() override { Stop(); }

  // Messages come to `receiver` from now on. Peers are found by the names given here.
  void Connect(std::map<std::string, MemoryTransport*> peers, Receiver receiver) {
    base::MutexLock lock(mutex_);
    peers_ = std::move(peers);
    receiver_ = std::move(receiver);
  }
  // Changes messages sent from here; set before the first one.
  void set_tamper(Tamper tamper) { tamper_ = std::move(tamper); }
  // Ends the thread; what has not been delivered never will.
  void Stop() {
    {
      base::MutexLock lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void Send(const std::string& to, std::string header, absl::Span<const std::byte> payload,
            std::function<void(absl::Status)> sent) override {
    Message message{to, std::move(header), payload, absl::OkStatus()};
    if (tamper_) tamper_(message);
    MemoryTransport& peer = *peers_.at(to);
    {
      base::MutexLock lock(peer.mutex_);
      peer.queue_.push_back({std::move(message), std::move(sent)});
    }
    peer.changed_.notify_all();
  }

 private:
  struct Queued {
    Message message;
    std::function<void(absl::Status)> sent;
  };

  void Deliver() {
    for (;;) {
      Queued next;
      {
        base::MutexLock lock(mutex_);
        lock.Wait(changed_, [this] { return stopped_ || !queue_.empty(); });
        if (stopped_) return;
        std::swap(queue_[random_() % queue_.size()], queue_.back());
        next = std::move(queue_.back());
        queue_.pop_back();
      }
      const Message& message = next.message;
      if (message.fate.ok()) {
        const Landing landing = receiver_(message.header, message.payload.size());
        if (landing.buffer != nullptr && !message.payload.empty())
          std::memcpy(landing.buffer, message.payload.data(), message.payload.size());
        if (landing.landed) landing.landed(absl::OkStatus());
      }
      next.sent(message.fate);
    }
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::vector<Queued> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::mt19937 random_;  // of the thread
  std::map<std::string, MemoryTransport*> peers_;
  Receiver receiver_;
  Tamper tamper_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace vpod::fabric
