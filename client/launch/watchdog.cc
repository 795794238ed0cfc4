#include "client/launch/watchdog.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace vpod::launch {
namespace {

constexpr int kReport = 3;

template <class T>
void Report(const T& message) {
  (void)!write(kReport, &message, sizeof(message));  // maybe nobody listens any more
}

// Keeps nothing of poprun's but its standard streams: a connection that stays open here would hide
// poprun's end from agents on other hosts.
void TakeStreams(const WatchdogJob& job) {
  dup2(job.out, STDOUT_FILENO);
  dup2(job.error, STDERR_FILENO);
  dup2(job.report, kReport);
  closefrom(kReport + 1);
  fcntl(kReport, F_SETFD, FD_CLOEXEC);
}

MpirunStarted Start(const WatchdogJob& job) {
  int failure_pipe[2];
  if (pipe2(failure_pipe, O_CLOEXEC) != 0) return {.error = errno};
  const pid_t watchdog = getpid();
  const pid_t pid = fork();
  if (pid < 0) return {.error = errno};
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != watchdog) _exit(1);
    setpgid(0, 0);
    sigprocmask(SIG_UNBLOCK, &job.signals, nullptr);
    std::signal(SIGPIPE, SIG_DFL);
    execve(job.path, job.argv.data(), job.environment.data());
    const int error = errno;
    (void)!write(failure_pipe[1], &error, sizeof(error));
    _exit(127);
  }
  setpgid(pid, pid);
  close(failure_pipe[1]);
  MpirunStarted started{.pid = pid};
  if (read(failure_pipe[0], &started.error, sizeof(started.error)) <= 0) started.error = 0;
  close(failure_pipe[0]);
  return started;
}

// Starts `if_killed` in place of a poprun that is gone. Nobody waits for its end.
void StartLast(const WatchdogJob& job) {
  if (job.if_killed[0] == nullptr || fork() != 0) return;
  sigprocmask(SIG_UNBLOCK, &job.signals, nullptr);
  execvp(job.if_killed[0], job.if_killed.data());
  _exit(127);
}

// Kills and reaps children until there is none; theirs become ours.
void EndChildren() {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
  do {
    char text[4096];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length < 0) return;  // a kernel that does not say
    text[length] = '\0';
    for (char *at = text, *end;; at = end) {
      const auto pid = static_cast<pid_t>(std::strtol(at, &end, 10));
      if (pid <= 0 || *end != ' ') break;  // the last, or half a number
      kill(pid, SIGKILL);
    }
  } while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR);
}

// Reaps what has ended; true when mpirun has.
bool HasEnded(pid_t mpirun, int& status) {
  int ended = 0;
  for (pid_t pid; (pid = waitpid(-1, &ended, WNOHANG)) > 0;) {
    if (pid != mpirun) continue;
    status = ended;
    return true;
  }
  return false;
}

MpirunResult Watch(const WatchdogJob& job, pid_t mpirun) {
  MpirunResult result;
  timespec kill_after{10, 0};
  int status = 0;
  bool device_lost = false;
  while (!HasEnded(mpirun, status)) {
    const bool ending = result.signal != 0 || device_lost;
    const int number = ending ? sigtimedwait(&job.signals, nullptr, &kill_after)
                              : sigwaitinfo(&job.signals, nullptr);
    if (number == SIGCHLD || (number < 0 && errno == EINTR)) continue;
    if (number == kDeviceLostSignal) {
      device_lost = true;
    } else if (number < 0) {
      result.given_up = result.signal == 0;
      kill(-mpirun, SIGKILL);  // ten seconds after the first signal
    } else if (result.signal == 0 || getppid() == job.poprun) {
      // A second one from the user is in earnest; poprun's death comes once for each of its
      // threads.
      if (result.signal == 0) result.signal = number;
      kill(-mpirun, number);
    }
  }
  if (result.signal == 0 && !result.given_up && WIFSIGNALED(status))
    result.killed_by = WTERMSIG(status);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace

void WatchMpirun(const WatchdogJob& job) {
  prctl(PR_SET_NAME, "poprun_watchdog");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != job.poprun) _exit(1);
  std::signal(SIGPIPE, SIG_IGN);  // of a report that a dead poprun does not read
  setpgid(0, 0);
  TakeStreams(job);
  const bool own_directory = *job.session_directory != '\0';
  if (own_directory && mkdir(job.session_directory, 0700) != 0) {
    Report(MpirunStarted{.error = errno});
    _exit(1);
  }
  const bool own_memory =
      *job.shared_memory_directory != '\0' && mkdir(job.shared_memory_directory, 0700) == 0;
  const MpirunStarted started = Start(job);
  Report(started);
  if (started.error == 0) {
    const MpirunResult result = Watch(job, started.pid);
    if (result.exit_code != 0) EndChildren();
    Report(result);
    if (getppid() != job.poprun) StartLast(job);
  }
  // An mpirun that was killed has left files there.
  const char* words[] = {"rm", "-rf", nullptr, nullptr, nullptr};
  const char** end = words + 2;
  if (own_directory) *end++ = job.session_directory;
  if (own_memory) *end++ = job.shared_memory_directory;
  if (end != words + 2) execv("/bin/rm", const_cast<char**>(words));
  _exit(0);
}

}  // namespace vpod::launch
