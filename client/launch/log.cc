#include "client/launch/log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

namespace vpod::launch {

void Log::Write(int level, char letter, const std::string& message) const {
  if (level > verbosity_) return;
  const auto now = std::chrono::system_clock::now();
  const std::time_t time = std::chrono::system_clock::to_time_t(now);
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  localtime_r(&time, &parts);
  std::fprintf(stderr, "%02d:%02d:%02d.%03d %d POPRUN [%c] %s\n", parts.tm_hour, parts.tm_min,
               parts.tm_sec, static_cast<int>(ms), getpid(), letter, message.c_str());
}

}  // namespace vpod::launch
