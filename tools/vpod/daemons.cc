#include "tools/vpod/daemons.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/vipu/config.h"
#include "device/base/file.h"

extern char** environ;

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

// Names its pid file in a daemon's environment, where it stays when the file is lost.
constexpr char kPidFileVariable[] = "VPOD_PID_FILE=";

bool WaitForExit(int pidfd, int milliseconds) {
  pollfd poll_fd{pidfd, POLLIN, 0};
  return poll(&poll_fd, 1, milliseconds) == 1;
}

// One spelling for every way to a file.
std::string Canonical(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  return error ? path : canonical.string();
}

// Whether a process runs a program of this name.
bool RunsProgram(int pid, const std::string& program) {
  std::error_code error;
  const std::string exe =
      fs::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error).filename().string();
  // A program that was rebuilt meanwhile shows as "name (deleted)".
  return exe == program || exe == program + " (deleted)";
}

// The set of signals in a line of /proc/<pid>/status, such as "SigIgn:\t0000000000001000": signal n
// has bit n - 1 (proc(5)).
uint64_t SignalsIn(absl::string_view status, absl::string_view label) {
  uint64_t signals = 0;
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (absl::ConsumePrefix(&line, label) &&
        absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), &signals))
      return signals;
  }
  return 0;
}

// Whether paths mean the same to a process as to this one.
bool SeesOurFiles(int pid) {
  std::error_code error;
  return fs::read_symlink(absl::StrCat("/proc/", pid, "/ns/mnt"), error) ==
         fs::read_symlink("/proc/self/ns/mnt", error);
}

}  // namespace

bool PortIsFree(uint32_t port) {
  const base::UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

base::UniqueFd KeepPort(uint32_t port) {
  // An abstract name exists once in a network namespace, as the port does, and goes with its
  // socket.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = absl::StrCat("vpod-port-", port);
  std::copy(text.begin(), text.end(), name.sun_path + 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  base::UniqueFd kept(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(kept.get(), reinterpret_cast<sockaddr*>(&name), length) != 0 || !PortIsFree(port))
    return base::UniqueFd();
  return kept;
}

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> directories = {self.parent_path().string()};
  for (absl::string_view part : absl::StrSplit(vipu::Environment("PATH"), ':'))
    directories.emplace_back(part);
  for (const std::string& directory : directories) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (access(path.c_str(), X_OK) == 0 && !fs::is_directory(path, error)) return path;
  }
  return absl::NotFoundError(
      absl::StrCat("cannot find ", name, " beside vpod or in PATH; source deploy/enable.sh"));
}

absl::StatusOr<int> StartDaemon(const std::vector<std::string>& command, const std::string& log,
                                const std::string& pid_file) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Whatever signals this process keeps from itself (ending_signals.h).
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::string pid_file_variable = kPidFileVariable + Canonical(pid_file);
  std::vector<char*> environment = {pid_file_variable.data()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!absl::StartsWith(*variable, kPidFileVariable)) environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, command[0].c_str(), &actions, &attributes, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return absl::UnavailableError(
        absl::StrCat("cannot start ", command[0], ": ", std::strerror(error)));
  std::ofstream file(pid_file);
  file << pid << "\n";
  file.close();
  if (!file) {
    kill(pid, SIGKILL);
    return absl::UnavailableError(absl::StrCat("cannot write ", pid_file));
  }
  return pid;
}

std::vector<int> ProcessesOf(const std::string& program) {
  std::vector<int> pids;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    int pid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &pid) && RunsProgram(pid, program))
      pids.push_back(pid);
  }
  return pids;
}

std::string PidFileOf(int pid) {
  const std::string environment = base::ReadFile(absl::StrCat("/proc/", pid, "/environ"));
  for (absl::string_view variable : absl::StrSplit(environment, '\0')) {
    if (absl::ConsumePrefix(&variable, kPidFileVariable) && SeesOurFiles(pid))
      return std::string(variable);
  }
  return "";
}

int RunningDaemon(const std::string& pid_file, const std::string& program) {
  int pid = 0;
  std::ifstream(pid_file) >> pid;
  if (pid > 0) {
    waitpid(pid, nullptr, WNOHANG);  // ours when it failed right after its start
    // If a POD was moved, the file that was given is gone.
    const std::string given = PidFileOf(pid);
    std::error_code error;
    const bool of_another = fs::exists(given, error) && !fs::equivalent(given, pid_file, error);
    if (RunsProgram(pid, program) && !of_another) return pid;
  }
  const std::string canonical = Canonical(pid_file);
  for (const int other : ProcessesOf(program)) {
    if (PidFileOf(other) == canonical) return other;
  }
  return 0;
}

bool IsStopped(int pid) {
  // "pid (name) T …"; a name may have parentheses.
  const std::string stat = base::ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end, 3) == ") T";
}

bool IsEnding(int pid) {
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  const std::string status = base::ReadFile(absl::StrCat("/proc/", pid, "/status"));
  return (SignalsIn(status, "SigIgn:") & bit(SIGTERM)) != 0 ||
         (SignalsIn(status, "ShdPnd:") & (bit(SIGTERM) | bit(SIGINT) | bit(SIGKILL))) != 0;
}

std::set<std::string> PidFiles(const std::string& directory, const std::string& program) {
  std::set<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(program, 0) == 0 && entry.path().extension() == ".pid")
      files.insert(Canonical(entry.path()));
  }
  for (const int pid : ProcessesOf(program)) {
    const fs::path given = PidFileOf(pid);
    if (given.parent_path() == Canonical(directory)) files.insert(given);
  }
  return files;
}

bool StopDaemon(const std::string& pid_file, const std::string& program) {
  const int pid = RunningDaemon(pid_file, program);
  if (pid > 0) {
    const base::UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    kill(pid, SIGTERM);
    if (pidfd.valid() && !WaitForExit(pidfd.get(), 10000)) {
      kill(pid, SIGKILL);
      WaitForExit(pidfd.get(), 10000);
    }
  }
  std::error_code error;
  fs::remove(pid_file, error);
  return pid > 0;
}

}  // namespace vpod::tools
