// A `vpod restore` at work, and the mark in the POD's directory by which other commands notice one
// that was killed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/base/unique_fd.h"
#include "tools/vpod/ending_signals.h"
#include "tools/vpod/pod.h"

namespace vpod::tools {

// A file in the POD's directory. Its first line names the backup. Its second line describes the POD
// of the backup; the line is missing while nothing has changed yet.
inline constexpr char kRestoreMark[] = "unfinished-restore";

// DataLoss names the backup whose restore was begun in a POD's directory and has not ended.
absl::Status CheckNoRestoreIsUnfinished(const std::string& home);

// The description that BeginChange has left in a POD's directory; nothing if there is no mark, or
// nothing has changed yet.
std::optional<std::string> HalfRestoredPod(const std::string& home);

// Holds the POD's lock from its beginning to its end. If it is destroyed before anything has
// changed, it leaves nothing behind; so does a signal that ends the process then.
class RestoreAttempt {
 public:
  // Where no POD is, the mark is left at once: the next `vpod up` is not to make a new one without
  // a word. A POD that is there stays usable until it changes. `file` names the backup.
  // Unavailable: another command works there, or nothing can be written.
  static absl::StatusOr<std::unique_ptr<RestoreAttempt>> Begin(const Pod& pod,
                                                               const std::string& file,
                                                               EndingSignals& signals);
  ~RestoreAttempt();
  RestoreAttempt(const RestoreAttempt&) = delete;
  RestoreAttempt& operator=(const RestoreAttempt&) = delete;

  // The directory was made for it.
  bool is_new() const { return is_new_; }
  // Call before the POD changes, with the description of the POD to be.
  absl::Status BeginChange(const std::string& description);
  // What was changed since BeginChange is as it was again.
  void TakeBack();
  // The POD is that of the backup.
  void Finish();

 private:
  enum class State { kUnchanged, kChanging, kDone };

  RestoreAttempt(const std::string& home, const std::string& file, EndingSignals& signals);
  // Makes the directory and leaves the mark, as Begin says.
  absl::Status Prepare(const Pod& pod);
  absl::Status Mark(const std::string& description);
  // Removes what the attempt has made, if nothing has changed.
  void CleanUp() const;
  // What remains, for the user whose command ends now.
  std::string Remains() const;
  EndingSignals::LastAct LastAct();

  const std::string home_, file_;
  EndingSignals& signals_;
  base::UniqueFd lock_;
  // A signal looks at them; they change while it has to wait.
  State state_ = State::kUnchanged;
  bool is_new_ = false;
  bool is_marked_ = false;          // by this attempt
  bool was_half_restored_ = false;  // by an earlier attempt
};

}  // namespace vpod::tools
