// What a command does and says when SIGINT, SIGTERM or SIGHUP ends it.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "device/base/mutex.h"

namespace vpod::tools {

// While the object exists, one of these signals makes the last act run on a thread of its own. Then
// the text that the act returns is printed, and the process ends as the signal would have ended it.
// Programs that the process starts meanwhile are to unblock the signals (run_program.h and
// daemons.h do so). There is one object at a time.
class EndingSignals {
 public:
  // Cleans up, and returns what remains, as the end of a sentence: "nothing has changed".
  using LastAct = std::function<std::string()>;

  // `command` is what was interrupted: "vpod up".
  EndingSignals(std::string command, LastAct last_act);
  ~EndingSignals();
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

  // Adds what is done before the last act, whatever that is.
  void AddCleanUp(std::function<void()> clean_up);
  // Replaces the last act. Like all that follow it does not return once a signal has come: nothing
  // is done after the words that describe it.
  void SetLastAct(LastAct last_act);
  // Does a short piece of work, for whose end a signal waits. If it succeeds, `last_act` is the
  // last act from then on.
  absl::Status Undisturbed(const std::function<absl::Status()>& work, LastAct last_act);

 private:
  void AwaitSignal(const sigset_t& set);
  [[noreturn]] void End(int signal);

  const std::string command_;
  base::Mutex mutex_;
  LastAct last_act_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> clean_up_ ABSL_GUARDED_BY(mutex_);
  sigset_t before_;
  std::thread thread_;
};

}  // namespace vpod::tools
