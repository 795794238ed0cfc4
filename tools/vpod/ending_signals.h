// Lets a command clean up when SIGINT, SIGTERM or SIGHUP ends it.
#pragma once

#include <csignal>
#include <functional>
#include <thread>

namespace vpod::tools {

// While it exists, one of these signals makes `clean_up` run, on a thread of its own, and then ends
// the process as it would have done. Programs that the process starts meanwhile are to unblock the
// signals (run_program.h does). One at a time.
class EndingSignals {
 public:
  explicit EndingSignals(std::function<void()> clean_up);
  ~EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

 private:
  sigset_t before_;
  std::thread thread_;
};

}  // namespace vpod::tools
