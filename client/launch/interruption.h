// Ends a poprun that is interrupted before mpirun is there to be signalled.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "device/base/mutex.h"
#include "device/base/unique_fd.h"

namespace vpod::launch {

// While it lives: when SIGINT, SIGTERM or SIGHUP has come (BlockSignals), what is under way has
// three seconds to see that for itself. Then it waits for somebody who does not answer, and the
// process exits with 128 + signal.
class Interruption {
 public:
  Interruption();
  ~Interruption() { End(); }
  void End();
  // A command to start before that exit; it takes back what the process can take back no more.
  void SetLast(std::vector<std::string> command);

 private:
  void Watch();
  void Exit(int signal);

  base::Mutex mutex_;
  std::vector<std::string> last_ ABSL_GUARDED_BY(mutex_);
  base::UniqueFd ended_;  // an eventfd
  std::thread thread_;
};

}  // namespace vpod::launch
