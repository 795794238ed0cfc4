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

RestoreAttempt::RestoreAttempt(const std::string& home, const std::string& file,
                               EndingSignals& signals)
    : home_(home), file_(file), signals_(signals) {
  signals_.SetLastAct(LastAct());
}

RestoreAttempt::~RestoreAttempt() {
  (void)signals_.Undisturbed(
      [this] {
        CleanUp();
        return absl::OkStatus();
      },
      [remains = Remains()] { return remains; });
}

absl::StatusOr<std::unique_ptr<RestoreAttempt>> RestoreAttempt::Begin(const Pod& pod,
                                                                      const std::string& file,
                                                                      EndingSignals& signals) {
  std::error_code error;
  const fs::path path = fs::absolute(file, error).lexically_normal();
  std::unique_ptr<RestoreAttempt> attempt(new RestoreAttempt(pod.home(), path.string(), signals));
  VPOD_RETURN_IF_ERROR(
      signals.Undisturbed([&] { return attempt->Prepare(pod); }, attempt->LastAct()));
  return attempt;
}

absl::Status RestoreAttempt::Prepare(const Pod& pod) {
  std::error_code error;
  is_new_ = fs::create_directories(home_, error);
  VPOD_ASSIGN_OR_RETURN(lock_, pod.Lock());
  was_half_restored_ = HalfRestoredPod(home_).has_value();
  const bool was_marked = !CheckNoRestoreIsUnfinished(home_).ok();
  const bool has_pod = !was_marked && !absl::IsNotFound(pod.Shape().status());
  return was_half_restored_ || has_pod ? absl::OkStatus() : Mark("");
}

absl::Status RestoreAttempt::BeginChange(const std::string& description) {
  return signals_.Undisturbed(
      [&] {
        const absl::Status marked = Mark(description);
        if (marked.ok()) state_ = State::kChanging;
        return marked;
      },
      LastAct());
}

void RestoreAttempt::TakeBack() {
  (void)signals_.Undisturbed(
      [this] {
        if (!was_half_restored_) state_ = State::kUnchanged;
        return absl::OkStatus();
      },
      LastAct());
}

void RestoreAttempt::Finish() {
  (void)signals_.Undisturbed(
      [this] {
        std::error_code error;
        fs::remove(MarkIn(home_), error);
        state_ = State::kDone;
        return absl::OkStatus();
      },
      LastAct());
}

absl::Status RestoreAttempt::Mark(const std::string& description) {
  is_marked_ = true;
  return base::ReplaceFile(MarkIn(home_), absl::StrCat(Shown(file_), "\n", description, "\n"),
                           0600);
}

void RestoreAttempt::CleanUp() const {
  if (state_ != State::kUnchanged) return;
  std::error_code error;
  if (is_marked_ && !was_half_restored_) fs::remove(MarkIn(home_), error);
  if (is_new_) fs::remove_all(home_, error);
}

std::string RestoreAttempt::Remains() const {
  switch (state_) {
    case State::kUnchanged:
      return absl::StrCat("nothing has changed in ", home_);
    case State::kChanging:
      return absl::StrCat("the POD in ", home_,
                          " is restored in part; repeat it, or give it up with 'vpod down'");
    case State::kDone:
      break;
  }
  return absl::StrCat("the POD in ", home_, " is restored; 'vpod up' starts it");
}

EndingSignals::LastAct RestoreAttempt::LastAct() {
  return [this] {
    CleanUp();
    return Remains();
  };
}

}  // namespace vpod::tools
