// SIGINT, SIGTERM and SIGHUP held back while something must not be left half done. Those that are
// ignored stay so.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "device/base/mutex.h"
#include "device/base/unique_fd.h"

namespace vpod::base {

inline constexpr int kEndSignals[] = {1, 2, 15};  // SIGHUP, SIGINT, SIGTERM

// Holds them back. Call before other threads are started, which inherit that.
void BlockEndSignals();
// Lets them through again: one that has come meanwhile ends the process here.
void UnblockEndSignals();
// One of them that has come meanwhile; 0 when none has.
int PendingEndSignal();
// Readable while one is pending.
UniqueFd EndSignalDescriptor();

// While it lives, and BlockEndSignals was called: when one of the signals has come, what is under
// way has three seconds to see that for itself. Then it waits for somebody who does not answer, and
// the process exits with 128 + signal and a line on stderr.
class Interruption {
 public:
  explicit Interruption(std::string tool);
  ~Interruption() { End(); }
  void End();
  // A command to start before that exit; it takes back what the process can take back no more.
  void SetLast(std::vector<std::string> command);

 private:
  void Watch();
  void Exit(int signal);

  const std::string tool_;
  Mutex mutex_;
  std::vector<std::string> last_ ABSL_GUARDED_BY(mutex_);
  UniqueFd ended_;  // an eventfd
  std::thread thread_;
};

}  // namespace vpod::base
