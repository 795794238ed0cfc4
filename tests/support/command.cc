#include "tests/support/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "device/base/unique_fd.h"

namespace vpod::testing {

bool Within(std::chrono::seconds limit, const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return true;
}

bool EndProcess(pid_t pid, int signal) {
  const base::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) return false;
  kill(pid, signal);
  pollfd poll_fd{pidfd.get(), POLLIN, 0};
  return poll(&poll_fd, 1, 60000) == 1;
}

Command::Command(const std::vector<std::string>& words,
                 const std::map<std::string, std::string>& environment) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) abort();
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const auto& [name, value] : environment) {
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    }
    execvp(argv[0], argv.data());
    dprintf(2, "cannot run %s: %s\n", argv[0], std::strerror(errno));
    _exit(127);
  }
  setpgid(pid_, pid_);
  close(out[1]);
  close(err[1]);
  collectors_.emplace_back([this, fd = out[0]] { Collect(fd, &out_); });
  collectors_.emplace_back([this, fd = err[0]] { Collect(fd, &err_); });
}

Command::~Command() {
  if (!waited_) Wait(std::chrono::seconds(0));
}

void Command::Collect(int fd, std::string* into) {
  char buffer[1 << 16];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0) {
    base::MutexLock lock(mutex_);
    into->append(buffer, static_cast<size_t>(n));
    changed_.notify_all();
  }
  close(fd);
  base::MutexLock lock(mutex_);
  --open_streams_;
  changed_.notify_all();
}

void Command::Signal(int number) const { kill(pid_, number); }

bool Command::WaitForOutput(const std::string& text, std::chrono::seconds limit) {
  base::MutexLock lock(mutex_);
  const auto seen = [&] {
    return out_.find(text) != std::string::npos || err_.find(text) != std::string::npos;
  };
  lock.WaitUntil(changed_, std::chrono::steady_clock::now() + limit,
                 [&] { return seen() || open_streams_ == 0; });
  return seen();
}

Outcome Command::Wait(std::chrono::seconds limit) {
  const base::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  pollfd poll_fd{pidfd.get(), POLLIN, 0};
  const bool ended =
      poll(&poll_fd, 1,
           static_cast<int>(
               std::chrono::duration_cast<std::chrono::milliseconds>(limit).count())) == 1;
  // Children that outlive the command would keep its output open.
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  for (std::thread& collector : collectors_) collector.join();
  waited_ = true;
  base::MutexLock lock(mutex_);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {ended ? code : -1, out_, err_};
}

std::string Command::Out() {
  base::MutexLock lock(mutex_);
  return out_;
}

std::string Command::Err() {
  base::MutexLock lock(mutex_);
  return err_;
}

}  // namespace vpod::testing
