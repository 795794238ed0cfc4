#include "device/base/interruption.h"

#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace vpod::base {
namespace {

constexpr std::chrono::milliseconds kPatience(3000);

static_assert(kEndSignals[0] == SIGHUP && kEndSignals[1] == SIGINT && kEndSignals[2] == SIGTERM);

// But for those that are ignored, as nohup has it: what is held back would come all the same.
sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : kEndSignals) {
    struct sigaction action = {};
    const bool is_ignored =
        sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!is_ignored) sigaddset(&signals, number);
  }
  return signals;
}

}  // namespace

void BlockEndSignals() {
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void UnblockEndSignals() {
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

int PendingEndSignal() {
  sigset_t pending;
  sigpending(&pending);
  for (const int number : kEndSignals) {
    if (sigismember(&pending, number) == 1) return number;
  }
  return 0;
}

UniqueFd EndSignalDescriptor() {
  const sigset_t signals = EndSignals();
  return UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC));
}

Interruption::Interruption(std::string tool)
    : tool_(std::move(tool)), ended_(eventfd(0, EFD_CLOEXEC)) {
  if (ended_.valid()) thread_ = std::thread([this] { Watch(); });
}

void Interruption::End() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(ended_.get(), &one, sizeof(one));
  thread_.join();
}

void Interruption::SetLast(std::vector<std::string> command) {
  MutexLock lock(mutex_);
  last_ = std::move(command);
}

void Interruption::Watch() {
  const UniqueFd signals = EndSignalDescriptor();
  pollfd events[2] = {{ended_.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
  while (poll(events, 2, -1) < 0) {
  }
  if (events[0].revents != 0) return;
  if (poll(events, 1, static_cast<int>(kPatience.count())) == 0) Exit(PendingEndSignal());
}

void Interruption::Exit(int signal) {
  MutexLock lock(mutex_);
  std::fprintf(stderr, "%s: error: interrupted by signal %d while it waited for an answer\n",
               tool_.c_str(), signal);
  if (!last_.empty()) {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    std::vector<char*> words;
    for (std::string& word : last_) words.push_back(word.data());
    words.push_back(nullptr);
    pid_t pid = 0;
    posix_spawnp(&pid, words[0], nullptr, &attributes, words.data(), environ);
  }
  std::_Exit(128 + signal);
}

}  // namespace vpod::base
