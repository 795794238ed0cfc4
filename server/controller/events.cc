#include "server/controller/events.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "device/base/text.h"

namespace vpod::controller {
namespace {

int64_t WallMilliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

const char* Name(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "INFO";
    case Severity::kWarning:
      return "WARNING";
    case Severity::kError:
      return "ERROR";
  }
  return "";
}

spdlog::level::level_enum Level(const std::string& severity) {
  return severity == "INFO"      ? spdlog::level::info
         : severity == "WARNING" ? spdlog::level::warn
                                 : spdlog::level::err;
}

}  // namespace

void EventLog::Add(Severity severity, std::string object, const std::string& text,
                   std::string user) {
  StoredEvent event;
  event.number = ++last_number_;
  event.time_ms = WallMilliseconds();
  event.severity = Name(severity);
  event.object = std::move(object);
  event.user = std::move(user);
  event.text = base::Printable(text, kMostTextBytes);
  waiting_.push_back(std::move(event));
  if (waiting_.size() > kMaxWaiting) waiting_.erase(waiting_.begin());
}

void EventLog::Committed() {
  for (const StoredEvent& event : waiting_) {
    spdlog::log(Level(event.severity), "event={} object=\"{}\" user=\"{}\" text=\"{}\"",
                event.number, event.object, event.user, event.text);
  }
  waiting_.clear();
}

void EventLog::TakeBack() {
  waiting_.pop_back();
  --last_number_;
}

}  // namespace vpod::controller
