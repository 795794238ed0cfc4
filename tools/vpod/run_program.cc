#include "tools/vpod/run_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "device/base/file.h"
#include "device/base/unique_fd.h"

extern char** environ;

namespace vpod::tools {
namespace {

// A file in memory, which takes any amount while nobody reads it.
base::UniqueFd MemoryFile() { return base::UniqueFd(memfd_create("vpod-output", MFD_CLOEXEC)); }

std::string ContentsOf(const base::UniqueFd& file) {
  return base::ReadFile(absl::StrCat("/proc/self/fd/", file.get()));
}

// "vipu-server: error: it failed" becomes "it failed".
std::string LastWords(const std::string& program, const base::UniqueFd& errors) {
  const std::string text = ContentsOf(errors);
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n');
  absl::string_view last = lines.back();
  absl::ConsumePrefix(&last, absl::StrCat(program, ": "));
  absl::ConsumePrefix(&last, "error: ");
  return last.empty() ? absl::StrCat(program, " failed") : std::string(last);
}

}  // namespace

absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& command) {
  const base::UniqueFd output = MemoryFile(), errors = MemoryFile();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.get(), STDERR_FILENO);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // Ctrl-C ends it, whatever this process does at that (ending_signals.h).
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0], &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  const std::string program = command[0].substr(command[0].rfind('/') + 1);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("cannot run ", program, ": ", std::strerror(error)));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) return absl::FailedPreconditionError(LastWords(program, errors));
  return ContentsOf(output);
}

}  // namespace vpod::tools
