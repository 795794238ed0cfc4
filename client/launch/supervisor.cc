#include "client/launch/supervisor.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "client/launch/instance_report.h"
#include "device/base/unique_fd.h"

namespace vpod::launch {
namespace {

constexpr int kConnectMilliseconds = 1000;

[[noreturn]] void Exec(char** program) {
  execvp(program[0], program);
  std::fprintf(stderr, "poprun_supervisor: error: cannot start '%s': %s\n", program[0],
               std::strerror(errno));
  _exit(127);
}

// A connection that is under way, or an invalid descriptor.
base::UniqueFd BeginToConnect(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  addrinfo hints{}, *list = nullptr;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(address.substr(0, colon).c_str(), &address[colon + 1], &hints, &list) != 0)
    return {};
  base::UniqueFd fd(socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool begun = fd.valid() && (connect(fd.get(), list->ai_addr, list->ai_addrlen) == 0 ||
                                    errno == EINPROGRESS);
  freeaddrinfo(list);
  return begun ? std::move(fd) : base::UniqueFd();
}

// The first that answers: poprun's host has several addresses, of which some lead here.
base::UniqueFd Connect(const std::vector<std::string>& addresses) {
  std::vector<base::UniqueFd> tries;
  for (const std::string& address : addresses) tries.push_back(BeginToConnect(address));
  std::vector<pollfd> waits;
  for (const base::UniqueFd& each : tries) waits.push_back({each.get(), POLLOUT, 0});
  // Negative descriptors are passed over.
  while (std::any_of(waits.begin(), waits.end(), [](const pollfd& w) { return w.fd >= 0; }) &&
         poll(waits.data(), waits.size(), kConnectMilliseconds) > 0) {
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      int error = 0;
      socklen_t length = sizeof(error);
      getsockopt(waits[i].fd, SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0) return std::move(tries[i]);
      waits[i].fd = -1;
    }
  }
  return {};
}

class Reporter {
 public:
  // From the environment, which it cleans: programs that start mpirun themselves are not ours.
  Reporter() {
    const char* where = std::getenv(kSupervisorVariable);
    index_ = InstanceOfEnvironment();
    if (where != nullptr && index_ >= 0) {
      std::vector<std::string> addresses;
      Split(where, token_, addresses);
      connection_ = Connect(addresses);
    }
    unsetenv(kSupervisorVariable);
    unsetenv(kForkAgentVariable);
  }
  bool works() const { return connection_.valid(); }
  void Say(ReportKind kind, pid_t pid, int status) {
    if (!works()) return;
    const std::string line = FormatReport(token_, index_, kind, pid, status);
    (void)!send(connection_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  int index_ = -1;
  std::string token_;
  base::UniqueFd connection_;
};

void UseOwnSharedMemory() {
  const char* directory = std::getenv(kSharedMemoryVariable);
  if (directory == nullptr || access(directory, W_OK | X_OK) != 0) return;
  for (const char* user : {"btl_vader", "osc_sm", "osc_rdma"})
    setenv((std::string("OMPI_MCA_") + user + "_backing_directory").c_str(), directory, 0);
}

// As the program did, so that mpirun sees what it would see without us.
[[noreturn]] void EndLike(int status) {
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  const rlimit none{0, 0};  // the program has left its core
  setrlimit(RLIMIT_CORE, &none);
  const int number = WTERMSIG(status);
  std::signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
  _exit(128 + number);
}

}  // namespace

void Supervise(char** program) {
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  UseOwnSharedMemory();
  Reporter reporter;
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t supervisor = getpid();
  const pid_t pid = fork();
  if (pid < 0) Exec(program);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(1);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    Exec(program);
  }
  reporter.Say(ReportKind::kStarted, pid, 0);
  while (true) {
    // The lower number comes first: SIGTERM before the SIGCHLD that it leads to.
    const int number = sigwaitinfo(&all, nullptr);
    if (number == SIGTERM) reporter.Say(ReportKind::kToldToEnd, pid, 0);
    if (number != SIGCHLD) continue;
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) != pid) continue;
    reporter.Say(ReportKind::kEnded, pid, status);
    EndLike(status);
  }
}

}  // namespace vpod::launch
