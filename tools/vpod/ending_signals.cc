#include "tools/vpod/ending_signals.h"

#include <pthread.h>

#include <utility>

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

}  // namespace

EndingSignals::EndingSignals(std::function<void()> clean_up) {
  const sigset_t set = Set();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  thread_ = std::thread([set, clean_up = std::move(clean_up)] {
    int signal = 0;
    sigwait(&set, &signal);
    if (signal == SIGUSR1) return;
    clean_up();
    std::signal(signal, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    raise(signal);
  });
}

EndingSignals::~EndingSignals() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace vpod::tools
