#include "tools/vpod/ending_signals.h"

#include <pthread.h>

#include <cstdlib>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/vpod/fail.h"

namespace vpod::tools {
namespace {

// Signals that are ignored, as by nohup, stay ignored. SIGUSR1 ends the thread.
sigset_t Set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&set, signal);
  }
  return set;
}

// Takes a signal of the set that is pending already; -1 if none is.
int TakePending(const sigset_t& set) {
  const timespec at_once{};
  return sigtimedwait(&set, nullptr, &at_once);
}

}  // namespace

EndingSignals::EndingSignals(std::string command, LastAct last_act)
    : command_(std::move(command)), last_act_(std::move(last_act)) {
  const sigset_t set = Set();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  thread_ = std::thread([this, set] { AwaitSignal(set); });
}

EndingSignals::~EndingSignals() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void EndingSignals::AddCleanUp(std::function<void()> clean_up) {
  base::MutexLock lock(mutex_);
  clean_up_ = [before = std::move(clean_up_), added = std::move(clean_up)] {
    if (before) before();
    added();
  };
}

void EndingSignals::SetLastAct(LastAct last_act) {
  base::MutexLock lock(mutex_);
  last_act_ = std::move(last_act);
}

absl::Status EndingSignals::Undisturbed(const std::function<absl::Status()>& work,
                                        LastAct last_act) {
  base::MutexLock lock(mutex_);
  absl::Status status = work();
  if (status.ok()) last_act_ = std::move(last_act);
  return status;
}

void EndingSignals::AwaitSignal(const sigset_t& set) {
  int signal = 0;
  sigwait(&set, &signal);
  // A signal that has ended a program of ours may have come before the destructor's.
  if (signal == SIGUSR1) signal = TakePending(set);
  if (signal > 0) End(signal);
}

// The mutex stays locked, so that no other thread goes on where it would need it.
void EndingSignals::End(int signal) {
  mutex_.Lock();
  if (clean_up_) clean_up_();
  Fail(absl::StrCat("'", command_, "' was interrupted; ", last_act_()));
  std::signal(signal, SIG_DFL);
  // SIGUSR1, which the destructor may have sent meanwhile, stays blocked: it would end the process
  // by the wrong signal.
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
  std::_Exit(128 + signal);  // not reached: the default action of all of them ends the process
}

}  // namespace vpod::tools
