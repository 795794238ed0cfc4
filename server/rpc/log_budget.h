// Bounds how much of a daemon's log others can cause: bytes a minute, for each user and for all
// together. Lines beyond are left out, and a line of the next minute says how many.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace vpod::rpc {

// Not thread-safe.
class LogBudget {
 public:
  using Clock = std::chrono::steady_clock;

  // Bytes a minute.
  static constexpr uint64_t kEachUser = 32 << 10;
  // What was refused has a budget of its own, because callers give themselves names.
  static constexpr uint64_t kAllRefused = 128 << 10;
  static constexpr uint64_t kAllUsers = 512 << 10;  // what users did
  static constexpr uint64_t kDaemon = 1 << 20;      // lines that name no user

  // Whether the line is to be written.
  bool Take(absl::string_view line, Clock::time_point now);
  // What was left out in the minute before, once; empty: nothing.
  std::string LeftOut(Clock::time_point now);

 private:
  struct Minute {
    Clock::time_point begin;
    std::map<std::string, uint64_t>
        bytes;  // written, by account and by the sum to which it belongs
    uint64_t lines_left_out = 0, bytes_left_out = 0;
    std::set<std::string> users_left_out;
  };
  bool Spend(const std::string& account, uint64_t limit, const std::string& sum, uint64_t sum_limit,
             uint64_t bytes);
  void Advance(Clock::time_point now);

  Minute present_, before_;
};

}  // namespace vpod::rpc
