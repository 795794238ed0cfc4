#include "tools/vpod/planned_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/compiler/executable_file.h"
#include "client/compiler/planned_program.h"
#include "device/base/interruption.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/plan_executable.h"

namespace vpod::tools {
namespace {

using Clock = std::chrono::steady_clock;

// From a signal until the program is killed.
constexpr std::chrono::milliseconds kPatience(3000);
// From the time when its executable is there until it is told to end: a thread of it may wait for
// what does not come.
constexpr std::chrono::seconds kPatienceWithEnd(5);

// A directory that goes with it.
class TemporaryDirectory {
 public:
  static absl::StatusOr<TemporaryDirectory> Make() {
    const char* parent = std::getenv("TMPDIR");
    std::string path =
        absl::StrCat(parent == nullptr || *parent == '\0' ? "/tmp" : parent, "/vpod-plan.XXXXXX");
    if (mkdtemp(path.data()) != nullptr) return TemporaryDirectory(std::move(path));
    return absl::UnavailableError(
        absl::StrCat("cannot make the directory '", path, "' (TMPDIR): ", strerror(errno)));
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  ~TemporaryDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(const std::string& directory,
                                         std::optional<uint32_t> replicas, bool explain) {
  const std::string set = absl::StrCat(compiler::kPlanDirectoryVariable, "="),
                    of_replicas = absl::StrCat(compiler::kPlanReplicasVariable, "="),
                    of_explain = absl::StrCat(compiler::kPlanExplainVariable, "=");
  std::vector<std::string> variables = {set + directory};
  if (replicas) variables.push_back(absl::StrCat(of_replicas, *replicas));
  if (explain) variables.push_back(of_explain + "1");
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool is_ours = absl::StartsWith(*variable, set) ||
                         absl::StartsWith(*variable, of_replicas) ||
                         absl::StartsWith(*variable, of_explain);
    if (!is_ours) variables.emplace_back(*variable);
  }
  return variables;
}

// In the child: becomes the program, or tells why it cannot. The program goes with this process,
// whatever ends that: one that is killed could not end it.
[[noreturn]] void BecomeProgram(pid_t parent, const std::vector<char*>& command,
                                const std::vector<char*>& environment, int errors) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  execvpe(command[0], command.data(), environment.data());
  const int why = errno;
  (void)!write(errors, &why, sizeof(why));
  _exit(127);
}

// Its stdout is our stderr: our stdout is for the plan. Processes that outlive their parents become
// our children.
absl::StatusOr<pid_t> Start(std::vector<std::string> command,
                            std::vector<std::string> environment) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::UnavailableError(absl::StrCat("cannot make a pipe: ", strerror(errno)));
  const base::UniqueFd errors(ends[0]);
  base::UniqueFd to_tell(ends[1]);
  const std::vector<char*> words = Pointers(command), variables = Pointers(environment);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return absl::UnavailableError(absl::StrCat("cannot fork: ", strerror(errno)));
  if (child == 0) BecomeProgram(parent, words, variables, to_tell.get());
  to_tell.Reset();
  int error = 0;
  if (TEMP_FAILURE_RETRY(read(errors.get(), &error, sizeof(error))) == 0) return child;
  waitpid(child, nullptr, 0);
  const bool is_python = absl::EndsWith(command[0], ".py");
  return absl::NotFoundError(absl::StrCat("cannot run '", command[0], "': ", strerror(error),
                                          is_python ? ", try -- python3 " : "",
                                          is_python ? command[0] : ""));
}

// The first by name, if there are several, as of a program that forks.
std::string ExecutableIn(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == compiler::kExecutableFileEnd) files.push_back(entry.path());
  }
  return files.empty() ? "" : *std::min_element(files.begin(), files.end());
}

int MillisecondsUntil(Clock::time_point time) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

base::UniqueFd DescriptorOf(pid_t process) {
  return base::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

// Tells a process to end, and kills it if it has not by then. False: we may not.
bool End(pid_t process, Clock::time_point time) {
  const base::UniqueFd ended = DescriptorOf(process);
  pollfd event = {ended.get(), POLLIN, 0};
  if (kill(process, SIGTERM) != 0) return false;
  if (poll(&event, 1, MillisecondsUntil(time)) == 0 && kill(process, SIGKILL) != 0) return false;
  return waitpid(process, nullptr, 0) == process;
}

// Processes of our session of which this one is the parent.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "children");
    for (pid_t child = 0; file >> child;) {
      if (getsid(child) == getsid(0)) children.push_back(child);
    }
  }
  return children;
}

// Ends what a program has left running, and what that leaves: Start sees to it that all become our
// children. Daemons, which have a session of their own, go on.
void EndWhatIsLeft() {
  std::set<pid_t> beyond_reach;
  for (bool ended = true; ended;) {
    ended = false;
    const Clock::time_point time = Clock::now() + kPatience;
    for (pid_t process : Children()) {
      if (beyond_reach.contains(process)) continue;
      ended = true;
      if (!End(process, time)) beyond_reach.insert(process);
    }
  }
}

// Readable when a file is put into a directory.
base::UniqueFd WatchFiles(const std::string& directory) {
  base::UniqueFd files(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  inotify_add_watch(files.get(), directory.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO);
  return files;
}

// Its wait status. A signal that comes meanwhile is passed on.
int WaitFor(pid_t child, const std::string& directory, const base::UniqueFd& files) {
  const base::UniqueFd ended = DescriptorOf(child), signals = base::EndSignalDescriptor();
  pollfd events[3] = {
      {ended.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}, {files.get(), POLLIN, 0}};
  std::optional<Clock::time_point> time;  // to end it
  // Where the system gives no descriptor of a process, signals wait for its end.
  while (ended.valid() && (!time || MillisecondsUntil(*time) > 0)) {
    if (poll(events, 3, time ? MillisecondsUntil(*time) : -1) < 0 && errno != EINTR) break;
    if (events[0].revents != 0 || events[1].revents != 0) break;
    char seen[4096];
    while (read(files.get(), seen, sizeof(seen)) > 0) {
    }
    if (!time && !ExecutableIn(directory).empty()) time = Clock::now() + kPatienceWithEnd;
  }
  if (ended.valid() && events[0].revents == 0) {
    kill(child, events[1].revents == 0 ? SIGTERM : base::PendingEndSignal());
    if (poll(events, 1, static_cast<int>(kPatience.count())) == 0) kill(child, SIGKILL);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  EndWhatIsLeft();
  return status;
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status))
    return absl::StrCat("was ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                        ")");
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

absl::StatusOr<std::shared_ptr<const program::Executable>> Compile(
    const std::vector<std::string>& command, std::optional<uint32_t> replicas, bool explain) {
  VPOD_ASSIGN_OR_RETURN(const TemporaryDirectory directory, TemporaryDirectory::Make());
  const base::UniqueFd files = WatchFiles(directory.path());
  VPOD_ASSIGN_OR_RETURN(const pid_t child,
                        Start(command, EnvironmentWith(directory.path(), replicas, explain)));
  const int status = WaitFor(child, directory.path(), files);
  const std::string file = ExecutableIn(directory.path());
  if (!file.empty()) return ReadExecutable(file);
  return absl::FailedPreconditionError(
      absl::StrCat("program '", command[0], "' ", HowItEnded(status), " before it had a session"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const program::Executable>> CompileByProgram(
    const std::vector<std::string>& command, std::optional<uint32_t> replicas, bool explain) {
  base::BlockEndSignals();
  auto executable = Compile(command, replicas, explain);
  base::UnblockEndSignals();
  return executable;
}

}  // namespace vpod::tools
