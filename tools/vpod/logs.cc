#include "tools/vpod/logs.h"

#include <limits.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/fail.h"

namespace vpod::tools {
namespace {

// Names and paths of the logs of a daemon, or of all.
std::vector<std::pair<std::string, std::string>> LogsOf(const Pod& pod, const std::string& daemon) {
  std::vector<std::pair<std::string, std::string>> logs = {{"server", pod.ServerLog()}};
  const auto shape = pod.Shape();
  for (uint32_t agent = 0; agent < (shape.ok() ? shape->agents() : 1); ++agent)
    logs.emplace_back(agent == 0 ? "agent" : absl::StrCat("agent.", agent), pod.AgentLog(agent));
  std::erase_if(logs, [&](const auto& log) { return log.first.rfind(daemon, 0) != 0; });
  return logs;
}

// How far a log has been printed.
struct Place {
  ino_t file = 0;  // 0: it is not there
  uint64_t offset = 0;
};

// A line as stdout takes it. A log may repeat what somebody else sent, and a terminal would obey
// its control characters; files and pipes get the line as it is.
std::string ForStdout(const std::string& line) {
  static const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  return is_terminal ? Shown(line) : line;
}

// Prints the whole lines among the bytes, of these the last ones; the number of bytes in whole
// lines.
size_t PrintLines(const std::string& name, const std::string& bytes, size_t last) {
  const size_t whole = bytes.rfind('\n') + 1;  // npos + 1 is 0
  std::vector<std::string> lines = absl::StrSplit(bytes.substr(0, whole), '\n', absl::SkipEmpty());
  if (lines.size() > last) lines.erase(lines.begin(), lines.end() - static_cast<int64_t>(last));
  for (const std::string& line : lines) {
    const std::string text = absl::StrCat(name, ": ", ForStdout(line), "\n");
    std::fwrite(text.data(), 1, text.size(), stdout);  // also what follows a byte of 0
  }
  return whole;
}

// Prints what a log has beyond its place, which moves on: all of it, or only the last lines. A log
// that was replaced or emptied begins again.
void PrintNew(const std::string& name, const std::string& path, size_t last, Place& place) {
  std::ifstream file(path, std::ios::binary);
  struct stat status {};
  if (!file || stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) {
    place = {};
    return;
  }
  if (status.st_ino != place.file || static_cast<uint64_t>(status.st_size) < place.offset)
    place = {status.st_ino, 0};
  file.seekg(static_cast<std::streamoff>(place.offset));
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  place.offset += PrintLines(name, bytes, last);
}

// Waits until something changes in the directory. False: it was removed.
absl::StatusOr<bool> AwaitChange(int inotify) {
  alignas(inotify_event) char events[64 * (sizeof(inotify_event) + NAME_MAX + 1)];
  const ssize_t size = read(inotify, events, sizeof(events));
  if (size < 0)
    return absl::UnavailableError(absl::StrCat("cannot follow the logs: ", std::strerror(errno)));
  for (ssize_t at = 0; at < size;) {
    const auto* event = reinterpret_cast<const inotify_event*>(events + at);
    if ((event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) != 0) return false;
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  return true;
}

}  // namespace

absl::Status PrintLogs(const Pod& pod, const std::string& daemon, size_t lines) {
  for (const auto& [name, path] : LogsOf(pod, daemon)) {
    Place place;
    PrintNew(name, path, lines, place);
    if (place.file != 0) continue;
    VPOD_RETURN_IF_ERROR(base::CheckIsFileOrNothing(path));
    if (access(path.c_str(), R_OK) != 0 && errno != ENOENT && errno != ENOTDIR) {
      return absl::FailedPreconditionError(
          absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
    }
    return absl::NotFoundError(
        absl::StrCat("there is no log ", path, "; a POD that 'vpod up' starts writes it"));
  }
  return absl::OkStatus();
}

absl::Status FollowLogs(const Pod& pod, const std::string& daemon, size_t lines) {
  const base::UniqueFd inotify(inotify_init1(IN_CLOEXEC));
  // Watched before the first look, so that nothing is missed in between.
  if (inotify_add_watch(inotify.get(), pod.home().c_str(),
                        IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF) < 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot follow the logs in ", pod.home(), ": ", std::strerror(errno)));
  }
  std::map<std::string, Place> places;
  for (const auto& [name, path] : LogsOf(pod, daemon)) PrintNew(name, path, lines, places[path]);
  while (true) {
    // Somebody else reads them one by one; a reader that has gone ends this.
    if (std::fflush(stdout) != 0) return absl::OkStatus();
    VPOD_ASSIGN_OR_RETURN(const bool there, AwaitChange(inotify.get()));
    if (!there) return absl::OkStatus();
    for (const auto& [name, path] : LogsOf(pod, daemon))
      PrintNew(name, path, SIZE_MAX, places[path]);
  }
}

}  // namespace vpod::tools
