#include "client/launch/mpirun.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "client/launch/output_filter.h"
#include "device/base/unique_fd.h"

namespace vpod::launch {
namespace {

void Forward(base::UniqueFd from, int to, uint32_t rank) {
  OutputFilter filter(rank);
  char buffer[1 << 16];
  const auto print = [to](const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = write(to, text.data() + at, text.size() - at);
      if (written <= 0) return;
      at += static_cast<size_t>(written);
    }
  };
  while (true) {
    const ssize_t n = read(from.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    print(filter.Pass(std::string(buffer, static_cast<size_t>(n))));
  }
  print(filter.Finish());
}

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, kDeviceLostSignal})
    sigaddset(&signals, number);
  return signals;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int PendingSignal() {
  sigset_t pending;
  sigpending(&pending);
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (sigismember(&pending, number) == 1) return number;
  }
  return 0;
}

// Not Boost.Process: the child needs a parent-death signal, a process group and its signal mask
// restored between fork and exec, which is all there is to this function.
absl::StatusOr<MpirunResult> RunMpirun(const std::string& path,
                                       const std::vector<std::string>& arguments,
                                       std::optional<uint32_t> only_output_from,
                                       const std::function<void(int pid)>& started) {
  // Forwarded by name: mpirun warns about those that do not exist. Empty means the same to their
  // readers.
  for (const char* name : {"LD_LIBRARY_PATH", "PYTHONPATH"}) setenv(name, "", 0);
  std::vector<char*> argv = {const_cast<char*>(path.c_str())};
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int failure_pipe[2], out_pipe[2] = {-1, -1}, error_pipe[2] = {-1, -1};
  if (pipe2(failure_pipe, O_CLOEXEC) != 0 ||
      (only_output_from.has_value() &&
       (pipe2(out_pipe, O_CLOEXEC) != 0 || pipe2(error_pipe, O_CLOEXEC) != 0))) {
    return absl::UnavailableError(std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError(std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    setpgid(0, 0);
    const sigset_t signals = HandledSignals();
    sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    if (only_output_from.has_value()) {
      dup2(out_pipe[1], STDOUT_FILENO);
      dup2(error_pipe[1], STDERR_FILENO);
    }
    execvp(argv[0], argv.data());
    const int error = errno;
    (void)!write(failure_pipe[1], &error, sizeof(error));
    _exit(127);
  }
  setpgid(pid, pid);
  close(failure_pipe[1]);
  int error = 0;
  const bool failed = read(failure_pipe[0], &error, sizeof(error)) == sizeof(error);
  close(failure_pipe[0]);
  std::vector<std::thread> forwarders;
  if (only_output_from.has_value()) {
    close(out_pipe[1]);
    close(error_pipe[1]);
    forwarders.emplace_back(Forward, base::UniqueFd(out_pipe[0]), STDOUT_FILENO, *only_output_from);
    forwarders.emplace_back(Forward, base::UniqueFd(error_pipe[0]), STDERR_FILENO,
                            *only_output_from);
  }
  if (!failed) started(pid);

  MpirunResult result;
  const sigset_t signals = HandledSignals();
  timespec kill_after{10, 0};
  int status = 0;
  bool device_lost = false;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    const bool ending = result.signal != 0 || device_lost;
    const int number =
        ending ? sigtimedwait(&signals, nullptr, &kill_after) : sigwaitinfo(&signals, nullptr);
    if (number == SIGCHLD || (number < 0 && errno == EINTR)) continue;
    if (number == kDeviceLostSignal) {
      device_lost = true;
    } else if (number < 0) {
      result.given_up = result.signal == 0;
      kill(-pid, SIGKILL);  // ten seconds after the first signal
    } else {
      if (result.signal == 0) result.signal = number;
      kill(-pid, number);
    }
  }
  for (std::thread& forwarder : forwarders) forwarder.join();
  if (failed) return absl::UnavailableError(std::strerror(error));
  if (result.signal == 0 && !result.given_up && WIFSIGNALED(status))
    result.killed_by = WTERMSIG(status);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace vpod::launch
