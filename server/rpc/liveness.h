// Checks whether a daemon answers its clients. The daemon asks itself as a client would, through
// its own port and on a new connection each time, so that it notices a listener that accepts
// nobody. While it answers, the service manager is told so (systemd, WatchdogSec), and so is who
// reads /healthz.
#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "device/base/mutex.h"
#include "device/base/tls.h"

namespace vpod::rpc {

// Thread-safe.
class Liveness {
 public:
  // A call that costs nothing and changes nothing: any answer will do, a refusal as well.
  struct Question {
    std::string endpoint;  // host:port
    std::string method;    // "/vipuuser.VipuUser/GetServerInfo"
  };
  struct Options {
    std::vector<Question> questions;
    std::optional<base::Tls> tls;  // the daemon's own
    // While it says yes, no answer is expected: a hang was injected. Empty: one always is.
    std::function<bool()> is_excused;
    std::chrono::milliseconds interval{10000};  // between rounds of questions
    std::chrono::milliseconds patience{10000};  // with each question
  };

  Liveness() = default;
  ~Liveness() { Stop(); }
  // Asks from now on, until Stop.
  void Start(Options options);
  void Stop();

  // The daemon's own work goes on: without a beat between two rounds the service manager is told
  // nothing. Call from where a stuck daemon would be stuck.
  void Beat() { ++beats_; }
  // Unavailable, and says what does not answer, if the last round failed, or if the present one
  // should have ended: gRPC may do anybody's work in the thread that asks, and keep it.
  absl::Status Status() const;

 private:
  void Run();
  // Asks everything once.
  absl::Status Round();
  absl::Status Ask(const Question& question);
  // A call on a connection of its own.
  grpc::Status Call(const Question& question, std::chrono::system_clock::time_point deadline);
  // Returns false if it is to stop.
  bool Pause(std::chrono::milliseconds time);

  Options options_;
  std::thread thread_;
  std::atomic<uint64_t> beats_ = 0;
  mutable base::Mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  // When the present round should have ended.
  std::optional<std::chrono::steady_clock::time_point> due_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vpod::rpc
