#include "tools/vpod/restore_attempt.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "device/base/file.h"
#include "device/base/status.h"
#include "tools/vpod/fail.h"

namespace vpod::tools {
namespace {

namespace fs = std::filesystem;

std::string MarkIn(const std::string& home) { return absl::StrCat(home, "/", kRestoreMark); }

// The lines of the mark; none if there is no mark.
std::vector<std::string> LinesOfMark(const std::string& home) {
  return absl::StrSplit(base::ReadFile(MarkIn(home)), '\n', absl::SkipEmpty());
}

}  // namespace

absl::Status CheckNoRestoreIsUnfinished(const std::string& home) {
  std::error_code error;
  if (!fs::exists(MarkIn(home), error)) return absl::OkStatus();
  const std::vector<std::string> lines = LinesOfMark(home);
  return absl::DataLossError(
      absl::StrCat(home, " holds an unfinished restore of ", lines.empty() ? "a backup" : lines[0],
                   "; repeat 'vpod restore', or give it up with 'vpod down'"));
}

std::optional<std::string> HalfRestoredPod(const std::string& home) {
  std::vector<std::string> lines = LinesOfMark(home);
  if (lines.size() < 2) return std::nullopt;
  return std::move(lines[1]);
}

absl::StatusOr<std::unique_ptr<RestoreAttempt>> RestoreAttempt::Begin(const Pod& pod,
                                                                      const std::string& file) {
  std::error_code error;
  const bool is_new = fs::create_directories(pod.home(), error);
  std::unique_ptr<RestoreAttempt> attempt(
      new RestoreAttempt(pod.home(), fs::absolute(file, error).lexically_normal(), is_new));
  VPOD_ASSIGN_OR_RETURN(attempt->lock_, pod.Lock());
  const bool is_marked = !CheckNoRestoreIsUnfinished(pod.home()).ok();
  const bool has_pod = !is_marked && !absl::IsNotFound(pod.Shape().status());
  attempt->was_half_restored_ = HalfRestoredPod(pod.home()).has_value();
  if (attempt->was_half_restored_ || has_pod) return attempt;
  attempt->is_marked_ = true;
  VPOD_RETURN_IF_ERROR(attempt->Mark(""));
  return attempt;
}

absl::Status RestoreAttempt::BeginChange(const std::string& description) {
  VPOD_RETURN_IF_ERROR(Mark(description));
  is_marked_ = false;
  return absl::OkStatus();
}

void RestoreAttempt::Finish() {
  is_finished_ = true;
  std::error_code error;
  fs::remove(MarkIn(home_), error);
}

void RestoreAttempt::Abandon() {
  if (std::exchange(is_finished_, true)) return;
  std::error_code error;
  if (is_marked_) fs::remove(MarkIn(home_), error);
  if (is_new_) fs::remove_all(home_, error);
}

absl::Status RestoreAttempt::Mark(const std::string& description) const {
  return base::ReplaceFile(MarkIn(home_), absl::StrCat(Shown(file_), "\n", description, "\n"),
                           0600);
}

}  // namespace vpod::tools
