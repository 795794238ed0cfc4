// Where the lines of a daemon's log go: by a budget, to stderr or to files of limited size.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"
#include "server/rpc/log_budget.h"

namespace vpod::rpc {

// Bytes of a message; what is longer is cut.
inline constexpr size_t kLongestMessage = 8 << 10;

// Writes to a file. When it would be larger than it may, it becomes FILE.1, FILE.1 becomes FILE.2,
// and so on; the oldest is removed. The new file has the mode of the old one. If the disk is full,
// lines are lost; the daemon goes on.
class RotatingFileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  static constexpr uint64_t kMostBytes = 10 << 20;
  static constexpr int kOlderFiles = 4;

  // FailedPrecondition: the file cannot be written.
  static absl::StatusOr<std::shared_ptr<RotatingFileSink>> Open(const std::string& path,
                                                                uint64_t most_bytes = kMostBytes);

 private:
  RotatingFileSink(std::string path, uint64_t most_bytes, base::UniqueFd file, uint64_t bytes);
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}
  void Rotate();

  const std::string path_;
  const uint64_t most_bytes_;
  base::UniqueFd file_;
  uint64_t bytes_;
};

// Hands on what the budget allows.
class BudgetedSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit BudgetedSink(std::shared_ptr<spdlog::sinks::sink> to) : to_(std::move(to)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override { to_->flush(); }
  void set_formatter_(std::unique_ptr<spdlog::formatter> formatter) override {
    to_->set_formatter(std::move(formatter));
  }

  const std::shared_ptr<spdlog::sinks::sink> to_;
  LogBudget budget_;
};

}  // namespace vpod::rpc
