#include "client/profile/unfinished.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace vpod::profile {
namespace {

std::string OfThisHost(const std::string& path) {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  return absl::StrCat(path, ".", host, ".");
}

}  // namespace

std::string UnfinishedName(const std::string& path, absl::string_view session) {
  return absl::StrCat(OfThisHost(path), getpid(), ".", session);
}

void RemoveLeftovers(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path prefix = OfThisHost(path);
  std::error_code error;
  for (fs::directory_iterator entry(prefix.parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    absl::string_view process = name;
    pid_t number = 0;
    if (!absl::ConsumePrefix(&process, prefix.filename().string()) ||
        !absl::SimpleAtoi(process.substr(0, process.find('.')), &number) || number <= 0)
      continue;
    std::error_code ignored;
    if (kill(number, 0) != 0 && errno == ESRCH) fs::remove(entry->path(), ignored);
  }
}

}  // namespace vpod::profile
