#include "server/rpc/log_sinks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace vpod::rpc {
namespace {

base::UniqueFd OpenToAppend(const std::string& path, mode_t mode) {
  return base::UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode));
}

std::string NameOf(const std::string& path, int number) {
  return number == 0 ? path : absl::StrCat(path, ".", number);
}

}  // namespace

absl::StatusOr<std::shared_ptr<RotatingFileSink>> RotatingFileSink::Open(const std::string& path,
                                                                         uint64_t most_bytes) {
  base::UniqueFd file = OpenToAppend(path, 0644);
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot write log file ", path, ": ", std::strerror(errno)));
  }
  return std::shared_ptr<RotatingFileSink>(
      new RotatingFileSink(path, most_bytes, std::move(file), static_cast<uint64_t>(info.st_size)));
}

RotatingFileSink::RotatingFileSink(std::string path, uint64_t most_bytes, base::UniqueFd file,
                                   uint64_t bytes)
    : path_(std::move(path)), most_bytes_(most_bytes), file_(std::move(file)), bytes_(bytes) {}

void RotatingFileSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t line;
  formatter_->format(message, line);
  if (bytes_ > 0 && bytes_ + line.size() > most_bytes_) Rotate();
  const ssize_t written = write(file_.get(), line.data(), line.size());
  if (written > 0) bytes_ += static_cast<uint64_t>(written);
}

void RotatingFileSink::Rotate() {
  bytes_ = 0;  // if no other file can be made, this one grows on for as much again
  struct stat info {};
  if (fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  for (int number = kOlderFiles; number > 0; --number)
    std::rename(NameOf(path_, number - 1).c_str(), NameOf(path_, number).c_str());
  base::UniqueFd next = OpenToAppend(path_, info.st_mode & 0777);
  if (!next.valid()) return;
  fchmod(next.get(), info.st_mode & 0777);  // whatever the umask is
  file_ = std::move(next);
}

void BudgetedSink::sink_it_(const spdlog::details::log_msg& message) {
  const LogBudget::Clock::time_point now = LogBudget::Clock::now();
  if (const std::string left_out = budget_.LeftOut(now); !left_out.empty()) {
    to_->log(spdlog::details::log_msg(message.logger_name, spdlog::level::warn, left_out));
  }
  const absl::string_view line(message.payload.data(), message.payload.size());
  if (budget_.Take(line.substr(0, kLongestMessage), now)) to_->log(message);
}

}  // namespace vpod::rpc
