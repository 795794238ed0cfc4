// Logs of the libraries that programs are linked with, in the form of the real ones
// (spec/poprun.md 7.1):
//   2023-08-22T23:49:40.103248Z PO:ENGINE   3556102.3556102 W: text
// POPLAR_LOG_LEVEL, GCL_LOG_LEVEL and IPUOF_LOG_LEVEL say what is written, from TRACE to OFF; WARN
// if they are not set. POPLAR_ENGINE_LOG_LEVEL and POPLAR_TARGET_LOG_LEVEL go before
// POPLAR_LOG_LEVEL. POPLAR_LOG_DEST and so on say where: stderr, stdout or a file.
//
//   if (SdkLogs(LogModule::kEngine, LogLevel::kDebug))
//     SdkLog(LogModule::kEngine, LogLevel::kDebug, absl::StrCat("Running program ", name));
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace vpod {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kErr, kOff };
enum class LogModule { kEngine, kTarget, kGcl, kIpuof };

// Settings from the variables. Any thread may write.
class SdkLogSettings {
 public:
  // InvalidArgument names a variable and the values that it can have. Unavailable: a file cannot be
  // opened.
  static absl::StatusOr<SdkLogSettings> FromEnvironment();

  bool Shows(LogModule module, LogLevel level) const;
  void Write(LogModule module, LogLevel level, absl::string_view text) const;

 private:
  struct Output {
    LogLevel level = LogLevel::kWarn;
    int fd = -1;  // of this process to its end
  };
  std::map<LogModule, Output> outputs_;
};

// The levels of this process, read once. Nothing is logged if there is an error in them; the code
// that opens a device reports it.
absl::Status CheckSdkLog();
bool SdkLogs(LogModule module, LogLevel level);
void SdkLog(LogModule module, LogLevel level, absl::string_view text);

}  // namespace vpod
