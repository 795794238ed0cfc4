// Runs programs and looks at what they print: the way whole-system tests see the POD.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/base/mutex.h"

namespace vpod::testing {

// The words of a command line; they can be joined.
using Words = std::vector<std::string>;
inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// "30 s" of the fault table (tests/system/FAULTS.md): its tests wait no longer for what users see
// of a fault.
inline constexpr std::chrono::seconds kSoon(30);

// Asks ten times a second; false when the limit passed without a yes. For what happens in processes
// that offer no event.
bool Within(std::chrono::seconds limit, const std::function<bool()>& holds);

// Sends a signal to a process, which need not be our child, and waits until it is gone. False: it
// does not run, or does not end within a minute.
bool EndProcess(pid_t pid, int signal);

// Result of a finished command.
struct Outcome {
  int code = 0;  // exit code, or 128 + signal
  std::string out;
  std::string err;
};

// A process in a group of its own, with its output collected. The destructor kills the whole group.
class Command {
 public:
  // `environment` is added to ours; an empty value removes the variable.
  Command(const std::vector<std::string>& words,
          const std::map<std::string, std::string>& environment);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // Waits until stdout or stderr contains `text`; false when the process ended, or the limit
  // passed, without it.
  bool WaitForOutput(const std::string& text,
                     std::chrono::seconds limit = std::chrono::seconds(60));
  // Waits for the end. A process still running after the limit is killed, and the code is -1.
  Outcome Wait(std::chrono::seconds limit = std::chrono::seconds(120));
  // Output so far.
  std::string Out();
  std::string Err();

 private:
  void Collect(int fd, std::string* into);

  pid_t pid_ = 0;
  base::Mutex mutex_;
  std::condition_variable changed_;
  std::string out_ ABSL_GUARDED_BY(mutex_), err_ ABSL_GUARDED_BY(mutex_);
  int open_streams_ ABSL_GUARDED_BY(mutex_) = 2;
  std::vector<std::thread> collectors_;
  bool waited_ = false;
};

}  // namespace vpod::testing
