#include "client/launch/interruption.h"

#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "client/launch/mpirun.h"
#include "client/launch/words.h"

namespace vpod::launch {
namespace {

constexpr std::chrono::milliseconds kPatience(3000);

}  // namespace

Interruption::Interruption() : ended_(eventfd(0, EFD_CLOEXEC)) {
  if (ended_.valid()) thread_ = std::thread([this] { Watch(); });
}

void Interruption::End() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(ended_.get(), &one, sizeof(one));
  thread_.join();
}

void Interruption::SetLast(std::vector<std::string> command) {
  base::MutexLock lock(mutex_);
  last_ = std::move(command);
}

void Interruption::Watch() {
  const base::UniqueFd signals = EndSignalDescriptor();
  pollfd events[2] = {{ended_.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
  while (poll(events, 2, -1) < 0) {
  }
  if (events[0].revents != 0) return;
  if (poll(events, 1, static_cast<int>(kPatience.count())) == 0) Exit(PendingSignal());
}

void Interruption::Exit(int signal) {
  base::MutexLock lock(mutex_);
  std::fprintf(stderr, "poprun: error: interrupted by signal %d while it waited for an answer\n",
               signal);
  if (!last_.empty()) {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t pid = 0;
    posix_spawnp(&pid, last_[0].c_str(), nullptr, &attributes, ExecWords(last_).data(), environ);
  }
  std::_Exit(128 + signal);
}

}  // namespace vpod::launch
