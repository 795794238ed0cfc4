#include "client/launch/mpirun.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "client/launch/output_filter.h"
#include "client/launch/watchdog.h"
#include "client/launch/words.h"
#include "device/base/interruption.h"
#include "device/base/status.h"
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
  for (const int number : base::kEndSignals) sigaddset(&signals, number);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, kDeviceLostSignal);
  return signals;
}

struct Pipe {
  base::UniqueFd from, to;
};

absl::StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::UnavailableError(std::strerror(errno));
  return Pipe{base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

// The environment of this process without some variables, for exec.
std::vector<char*> EnvironmentWithout(const std::vector<std::string>& names) {
  std::vector<char*> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (std::find(names.begin(), names.end(), name) == names.end()) entries.push_back(*entry);
  }
  entries.push_back(nullptr);
  return entries;
}

// False when the watchdog is gone.
template <class T>
bool Receive(const base::UniqueFd& from, T& message) {
  ssize_t n;
  do {
    n = read(from.get(), &message, sizeof(message));
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(sizeof(message));
}

// Hands signals on until the watchdog has ended; returns its wait status.
int AwaitWatchdog(pid_t watchdog) {
  const sigset_t signals = HandledSignals();
  int status = 0;
  while (waitpid(watchdog, &status, WNOHANG) == 0) {
    const int number = sigwaitinfo(&signals, nullptr);
    if (number > 0 && number != SIGCHLD) kill(watchdog, number);
  }
  return status;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A parent that ignores it leaves that to its children, and ends would go unnoticed.
  std::signal(SIGCHLD, SIG_DFL);
}

void AwaitSignal(std::chrono::milliseconds limit) {
  const base::UniqueFd descriptor = base::EndSignalDescriptor();
  pollfd readable = {descriptor.get(), POLLIN, 0};
  poll(&readable, 1, static_cast<int>(limit.count()));
}

// Not Boost.Process: the watchdog runs between fork and exec.
absl::StatusOr<MpirunResult> RunMpirun(const MpirunCommand& command,
                                       const std::function<void(int pid)>& started) {
  // Forwarded by name: mpirun warns about those that do not exist. Empty means the same to their
  // readers.
  for (const char* name : {"LD_LIBRARY_PATH", "PYTHONPATH"}) setenv(name, "", 0);
  if (!command.session_directory.empty())
    setenv(kSessionDirectory, command.session_directory.c_str(), 1);
  const std::string& name = command.name.empty() ? command.path : command.name;
  WatchdogJob job{.poprun = getpid(),
                  .path = command.path.c_str(),
                  .session_directory = command.session_directory.c_str(),
                  .shared_memory_directory = command.shared_memory_directory.c_str(),
                  .signals = HandledSignals()};
  job.argv = ExecWords(command.arguments);
  job.argv.insert(job.argv.begin(), const_cast<char*>(name.c_str()));
  job.environment = EnvironmentWithout(command.hidden_variables);
  job.if_killed = ExecWords(command.if_killed);
  VPOD_ASSIGN_OR_RETURN(Pipe report, MakePipe());
  std::optional<Pipe> out, error;
  if (command.only_output_from.has_value()) {
    VPOD_ASSIGN_OR_RETURN(out, MakePipe());
    VPOD_ASSIGN_OR_RETURN(error, MakePipe());
    job.out = out->to.get();
    job.error = error->to.get();
  }
  job.report = report.to.get();
  const pid_t watchdog = fork();
  if (watchdog < 0) return absl::UnavailableError(std::strerror(errno));
  if (watchdog == 0) WatchMpirun(job);
  report.to.Reset();
  std::vector<std::thread> forwarders;
  if (command.only_output_from.has_value()) {
    out->to.Reset();
    error->to.Reset();
    forwarders.emplace_back(Forward, std::move(out->from), STDOUT_FILENO,
                            *command.only_output_from);
    forwarders.emplace_back(Forward, std::move(error->from), STDERR_FILENO,
                            *command.only_output_from);
  }
  MpirunStarted start;
  const bool running = Receive(report.from, start) && start.error == 0;
  if (running) started(start.pid);
  const int status = AwaitWatchdog(watchdog);
  for (std::thread& forwarder : forwarders) forwarder.join();
  if (start.error != 0) return absl::UnavailableError(std::strerror(start.error));
  MpirunResult result;
  if (running && Receive(report.from, result)) return result;
  // The watchdog was killed, and mpirun ends with it. Its directories have names of this job alone.
  for (const std::string& directory :
       {command.session_directory, command.shared_memory_directory}) {
    std::error_code ignored;
    if (!directory.empty()) std::filesystem::remove_all(directory, ignored);
  }
  result.killed_by = WIFSIGNALED(status) ? WTERMSIG(status) : SIGKILL;
  result.exit_code = 128 + result.killed_by;
  return result;
}

}  // namespace vpod::launch
