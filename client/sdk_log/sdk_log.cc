#include "client/sdk_log/sdk_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "device/base/status.h"

namespace vpod {
namespace {

struct ModuleNames {
  LogModule module;
  const char* shown;
  const char* own_level;  // goes before that of the library; or nullptr
  const char* level;
  const char* destination;
};
constexpr ModuleNames kModules[] = {
    {LogModule::kEngine, "PO:ENGINE", "POPLAR_ENGINE_LOG_LEVEL", "POPLAR_LOG_LEVEL",
     "POPLAR_LOG_DEST"},
    {LogModule::kTarget, "PO:TARGET", "POPLAR_TARGET_LOG_LEVEL", "POPLAR_LOG_LEVEL",
     "POPLAR_LOG_DEST"},
    {LogModule::kGcl, "GCL", nullptr, "GCL_LOG_LEVEL", "GCL_LOG_DEST"},
    {LogModule::kIpuof, "IPUOF", nullptr, "IPUOF_LOG_LEVEL", "IPUOF_LOG_DEST"},
};

constexpr const char* kLevels[] = {"TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF"};

absl::string_view Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// The level that a variable has, if it is set.
absl::StatusOr<std::optional<LogLevel>> LevelOf(const std::string& variable) {
  const absl::string_view value = Variable(variable);
  if (value.empty()) return std::nullopt;
  for (size_t level = 0; level < std::size(kLevels); ++level) {
    if (value == kLevels[level]) return static_cast<LogLevel>(level);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Unknown ", variable, " '", value,
                   "'. Valid values are TRACE, DEBUG, INFO, WARN, ERR and OFF."));
}

absl::StatusOr<int> Destination(const std::string& variable) {
  const std::string path(Variable(variable));
  if (path.empty() || path == "stderr") return STDERR_FILENO;
  if (path == "stdout") return STDOUT_FILENO;
  // Instances may share the file.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) return fd;
  return absl::UnavailableError(
      absl::StrCat("cannot write to ", path, ", the ", variable, ": ", std::strerror(errno)));
}

const absl::StatusOr<SdkLogSettings>& Settings() {
  static const auto* const settings =
      new absl::StatusOr<SdkLogSettings>(SdkLogSettings::FromEnvironment());
  return *settings;
}

}  // namespace

absl::StatusOr<SdkLogSettings> SdkLogSettings::FromEnvironment() {
  SdkLogSettings settings;
  for (const ModuleNames& names : kModules) {
    Output& output = settings.outputs_[names.module];
    VPOD_ASSIGN_OR_RETURN(auto level, LevelOf(names.level));
    if (names.own_level != nullptr) {
      VPOD_ASSIGN_OR_RETURN(const auto own, LevelOf(names.own_level));
      if (own.has_value()) level = own;
    }
    output.level = level.value_or(LogLevel::kWarn);
    VPOD_ASSIGN_OR_RETURN(output.fd, Destination(names.destination));
  }
  return settings;
}

bool SdkLogSettings::Shows(LogModule module, LogLevel level) const {
  return level >= outputs_.at(module).level && level != LogLevel::kOff;
}

void SdkLogSettings::Write(LogModule module, LogLevel level, absl::string_view text) const {
  if (!Shows(module, level)) return;
  const std::string line =
      absl::StrFormat("%s %-11s %d.%d %c: %s\n",
                      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone()),
                      kModules[static_cast<size_t>(module)].shown, getpid(), gettid(),
                      kLevels[static_cast<size_t>(level)][0], text);
  // In one piece, so that lines of several processes do not mix. A log that cannot be written must
  // not end the program.
  (void)!write(outputs_.at(module).fd, line.data(), line.size());
}

absl::Status CheckSdkLog() { return Settings().status(); }

bool SdkLogs(LogModule module, LogLevel level) {
  return Settings().ok() && Settings()->Shows(module, level);
}

void SdkLog(LogModule module, LogLevel level, absl::string_view text) {
  if (Settings().ok()) Settings()->Write(module, level, text);
}

}  // namespace vpod
