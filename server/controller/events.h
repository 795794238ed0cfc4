// The log of events (`vipu-admin list events`): what was asked for and what happened by itself.
// Requested changes are committed with their event. An event that happened by itself is committed
// with the next change or within a quarter of a second, many at once: a rack that comes back must
// not cost a disk write for every partition. Each event is also a line of the daemon's log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/controller/store/store.h"

namespace vpod::controller {

enum class Severity { kInfo, kWarning, kError };

// Not thread-safe: guarded by the controller's lock.
class EventLog {
 public:
  static constexpr size_t kMaxWaiting = 100000;  // beyond, while nothing can be written, the oldest
                                                 // are given up
  // A longer text is cut. Whoever wrote its parts, it becomes one printable line: a text that is
  // not UTF-8 would hide all events from everybody.
  static constexpr size_t kMostTextBytes = 800;

  EventLog() = default;
  explicit EventLog(uint64_t last_number) : last_number_(last_number) {}

  void Add(Severity severity, std::string object, const std::string& text, std::string user = "");
  bool empty() const { return waiting_.empty(); }
  const std::vector<StoredEvent>& waiting() const { return waiting_; }
  // They are in the store; writes their lines.
  void Committed();
  // The last event was of a change that could not be made.
  void TakeBack();

 private:
  uint64_t last_number_ = 0;
  std::vector<StoredEvent> waiting_;  // not committed yet
};

}  // namespace vpod::controller
