#include "tools/vpod/logs.h"

#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/base/file.h"

namespace vpod::tools {

absl::Status PrintLogs(const Pod& pod, const std::string& daemon, size_t lines) {
  std::vector<std::pair<std::string, std::string>> files = {{"server", pod.ServerLog()}};
  const auto shape = pod.Shape();
  for (uint32_t agent = 0; agent < (shape.ok() ? shape->agents() : 1); ++agent)
    files.emplace_back(agent == 0 ? "agent" : absl::StrCat("agent.", agent), pod.AgentLog(agent));
  for (const auto& [name, path] : files) {
    if (!daemon.empty() && name.rfind(daemon, 0) != 0) continue;
    if (!std::ifstream(path)) return absl::NotFoundError(absl::StrCat("cannot read ", path));
    std::vector<std::string> all = absl::StrSplit(base::ReadFile(path), '\n', absl::SkipEmpty());
    if (all.size() > lines) all.erase(all.begin(), all.end() - static_cast<int64_t>(lines));
    for (const std::string& line : all) std::printf("%s: %s\n", name.c_str(), line.c_str());
  }
  return absl::OkStatus();
}

}  // namespace vpod::tools
